#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the packages for one architecture into target/packages/out: build.sh [amd64|arm64]
#
# The program is linked against the glibc of Debian 11 and Ubuntu 20.04 by Zig's linker, and runs
# on every later one. The same source folder gives the same files, byte for byte, in any folder:
# times are those of the commit, and paths are replaced.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
arch=${1:-$(dpkg --print-architecture)}
glibc=2.31
zig=0.17.1
zigbuild=0.24.1
cyclonedx=0.5.9
case $arch in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*)
    echo "packages: no architecture '$arch'; there are amd64 and arm64" >&2
    exit 1
    ;;
esac
triple=$machine-unknown-linux-gnu
objcopy=$machine-linux-gnu-objcopy

target=$root/target/packages
tools=${PACKAGE_TOOLS:-$target/tools}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
out=$target/out
stage=$target/stage-$arch
# Without git (a source archive), the caller gives the time.
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

install_tools() {
    if [ "$(cat "$tools/installed" 2>/dev/null)" != "$zig $zigbuild $cyclonedx" ]; then
        echo "packages: installing Zig, cargo-zigbuild and cargo-cyclonedx into $tools"
        /usr/bin/python3 -m venv --clear "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check "ziglang==$zig" "cargo-zigbuild==$zigbuild"
        cargo install --quiet --locked --root "$tools" "cargo-cyclonedx@$cyclonedx"
        echo "$zig $zigbuild $cyclonedx" >"$tools/installed"
    fi
    PATH=$tools/bin:$PATH
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
        rustup target add "$triple" || {
            echo "packages: Rust's standard library for $triple is missing; 'rustup target add $triple' installs it" >&2
            exit 1
        }
    fi
}

build_program() {
    cargo_home=${CARGO_HOME:-$HOME/.cargo}
    sources=$(rustc --print sysroot)/lib/rustlib/src/rust
    commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
    separator=$(printf '\037')
    flags=--remap-path-prefix=$root=/usr/src/tautline
    flags=$flags$separator--remap-path-prefix=$cargo_home=/usr/src/cargo
    flags=$flags$separator--remap-path-prefix=$sources=/rustc/$commit
    flags=$flags$separator-Clink-arg=-Wl,--build-id=sha1
    c_flags="-ffile-prefix-map=$root=/usr/src/tautline -ffile-prefix-map=$cargo_home=/usr/src/cargo -ffile-prefix-map=$tools=/usr/src/zig"
    # Zig names its headers relative to the current folder if they are below it, and bindgen runs
    # in another one. Therefore the current folder does not contain them.
    # Cyclone DDS writes the commit of the repository around its sources into the program: with
    # GIT_DIR it finds none.
    (
        cd "$root/crates/cli"
        GIT_DIR=/dev/null CARGO_ENCODED_RUSTFLAGS=$flags CFLAGS=$c_flags CXXFLAGS=$c_flags \
            ZIG_GLOBAL_CACHE_DIR=$target/zig-cache CARGO_ZIGBUILD_CACHE_DIR=$target/zigbuild-cache \
            cargo-zigbuild zigbuild --release --locked -p tautline-cli \
            --target "$triple.$glibc" --target-dir "$root/target"
    )
    program=$root/target/$triple/release/tautline
    needed=$($machine-linux-gnu-objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    if [ -z "$needed" ] || [ "$(printf '%s\n' "$needed" "GLIBC_$glibc" | sort -V | tail -1)" != "GLIBC_$glibc" ]; then
        echo "packages: the program needs $needed; the packages promise $glibc" >&2
        exit 1
    fi
}

# Writes the build ID, which connects the program with its debug information.
set_build_id() {
    perl -e 'binmode STDOUT; print pack("V3 a4 H*", 4, 20, 3, "GNU", $ARGV[0])' "$1" >"$stage/note"
    $objcopy --update-section .note.gnu.build-id="$stage/note" "$2"
    rm "$stage/note"
}

# Separates the debug information. The linker makes the build ID from all of its output, and Zig's
# part of the debug information names the folder of Zig. Therefore the ID is made from the program alone.
separate_debug_information() {
    cp "$program" "$stage/whole"
    set_build_id 0000000000000000000000000000000000000000 "$stage/whole"
    $objcopy --strip-all --remove-section=.comment "$stage/whole" "$stage/tautline"
    id=$(sha1sum <"$stage/tautline" | cut -d' ' -f1)
    set_build_id "$id" "$stage/whole"
    $objcopy --strip-all --remove-section=.comment "$stage/whole" "$stage/tautline"
    folder=$stage/debug/.build-id/$(echo "$id" | cut -c1-2)
    mkdir -p "$folder"
    $objcopy --only-keep-debug --compress-debug-sections "$stage/whole" "$folder/$(echo "$id" | cut -c3-).debug"
    chmod 644 "$folder"/*.debug
    rm "$stage/whole"
}

# Everything that debian/*.install names, in the folder in which debhelper runs.
fill_stage() {
    rm -rf "$stage"
    mkdir -p "$stage/share" "$stage/examples" "$stage/notes"
    cp -r "$root/packaging/debian" "$stage/debian"
    separate_debug_information
    (cd "$root" && PAGES=$stage/pages cargo test --quiet --locked -p tautline-cli --bin tautline pages >"$target/pages.log" 2>&1) || {
        cat "$target/pages.log" >&2
        exit 1
    }
    mv "$stage/pages/doc/tautline/examples/robot.yaml" "$stage/examples/robot.yaml"
    cp "$root"/packaging/*.service "$root"/packaging/*.timer "$stage"
    cp -r "$root/packaging/examples/." "$root/packaging/drop-ins" "$root/packaging/radio-firewall.nft" "$stage/examples"
    mv "$stage/examples/relay.yaml" "$stage/relay.yaml"
    cp "$root/docs/reference/robot.schema.json" "$root/docs/reference/relay.schema.json" "$stage/share"
    cp "$root/CHANGELOG.md" "$stage/notes"
    # The pages that help texts, files and units name, without their pictures.
    for kind in how-to reference tutorial; do
        mkdir "$stage/notes/$kind"
        cp "$root/docs/$kind"/*.md "$stage/notes/$kind"
    done
    # The ROS packages: packaging/ros/ros1 and ros2 are installed as /usr/share/tautline/ros1 and ros2.
    if [ -d "$root/packaging/ros" ]; then
        cp -r "$root/packaging/ros/." "$stage/share"
    fi
    (cd "$root" && /usr/bin/python3 packaging/licences.py "$triple") >"$stage/notes/third-party.txt"
    sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$(date -u -R -d "@$SOURCE_DATE_EPOCH")/" \
        "$root/packaging/debian/changelog" >"$stage/debian/changelog"
    find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

build_debian_packages() {
    rm -f "$target"/tautline*_"$version"_*.deb
    (
        cd "$stage"
        dpkg-buildpackage --build=binary --host-arch "$arch" --no-check-builddeps \
            --unsigned-changes --unsigned-buildinfo
    ) >"$target/debian-$arch.log" 2>&1 || {
        cat "$target/debian-$arch.log" >&2
        exit 1
    }
    mv "$target"/tautline*_"$version"_*.deb "$out"
    rm -f "$target"/tautline_*.buildinfo "$target"/tautline_*.changes
}

# The tree of both packages, for systems without dpkg.
build_archive() {
    name=tautline-$version-linux-$arch
    tree=$target/$name
    rm -rf "$tree"
    mkdir -p "$tree"
    for package in tautline tautline-relay; do
        cp -a "$stage/debian/$package/usr" "$tree"
    done
    rm -rf "$tree/usr/share/lintian"
    cp "$root/packaging/INSTALL" "$root/LICENSE" "$tree"
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    tar -C "$target" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
        -cf - "$name" | xz -9 -T1 >"$out/$name.tar.xz"
    rm -rf "$tree"
}

# Lists the parts of the program, for scanners of vulnerabilities.
build_bill_of_materials() {
    # cargo cyclonedx writes files into the folders of all crates.
    (cd "$root" && cargo cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --format json --spec-version 1.5 \
        --target "$triple" --no-build-deps --describe binaries)
    sed "s#path+file://$root/#path+file:///usr/src/tautline/#" "$root/crates/cli/tautline_bin.cdx.json" \
        >"$out/tautline-$version-linux-$arch.cdx.json"
    rm "$root"/crates/*/*_bin.cdx.json
}

# Removes everything but the packages of this version for the other architecture.
empty_out() {
    mkdir -p "$out"
    find "$out" -type f \( -name "*[_-]$arch.*" -o -name '*_all.deb' -o ! -name "*[_-]$version[_-]*" \) -delete
}

mkdir -p "$target"
empty_out
install_tools
build_program
fill_stage
build_debian_packages
build_archive
build_bill_of_materials
(cd "$out" && sha256sum -- *.deb *.tar.xz *.cdx.json >SHA256SUMS)
(cd "$out" && ls -l -- *"$version"*)
echo "packages: $out"
