#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds all fuzz targets once and runs each, as many at once as there are processors: run.sh SECONDS NOT_RUN [TARGET...]
# Without a nightly toolchain it adds a line to the file NOT_RUN, which `make test` prints.
set -eu

pinned=nightly-2026-05-20
seconds=$1
not_run=$2
shift 2

installed() {
    # An interrupted installation may have only one of them.
    cargo "+$1" --version >/dev/null 2>&1 && rustc "+$1" --version >/dev/null 2>&1
}

# By default rustup may install a missing toolchain without asking.
export RUSTUP_AUTO_INSTALL=0
if ! installed $pinned && command -v rustup >/dev/null; then
    timeout 300 rustup toolchain install $pinned --profile minimal >/dev/null 2>&1 ||
        rustup toolchain uninstall $pinned >/dev/null 2>&1 || true
fi
if installed $pinned; then
    toolchain=$pinned
elif installed nightly; then
    toolchain=nightly
    echo "fuzz: $pinned cannot be installed here; $(rustc +nightly --version) is used instead"
else
    echo "fuzz: not run, no nightly toolchain (rustup toolchain install $pinned)"
    mkdir -p "$(dirname "$not_run")"
    echo "fuzzing (no nightly toolchain)" >>"$not_run"
    exit 0
fi

cargo "+$toolchain" fuzz --version >/dev/null 2>&1 ||
    cargo install cargo-fuzz --version 0.13.2 --locked --debug --root target/tools

# All declared fuzz targets run.
[ $# -gt 0 ] || set -- $(cargo "+$toolchain" fuzz list --fuzz-dir fuzz)
cargo "+$toolchain" fuzz build --fuzz-dir fuzz --target-dir target/fuzz
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')

# Each target keeps one processor busy.
echo "fuzz: $# targets, each for $seconds s"
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" fuzz/one.sh "$host" "$seconds"
