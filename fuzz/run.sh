#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds all fuzz targets once and runs each: run.sh SECONDS NOT_RUN [TARGET...]
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
    cargo install cargo-fuzz --version 0.13.2 --locked --root target/tools

# All declared fuzz targets run.
[ $# -gt 0 ] || set -- $(cargo "+$toolchain" fuzz list --fuzz-dir fuzz)
cargo "+$toolchain" fuzz build --fuzz-dir fuzz --target-dir target/fuzz
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')

for target in "$@"; do
    echo "fuzz: $target for $seconds s"
    corpus=target/fuzz/corpus/$target
    artifacts=target/fuzz/artifacts/$target/
    mkdir -p "$corpus" "$artifacts"
    set -- "$corpus" "fuzz/seeds/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="$artifacts"
    dictionary=fuzz/dictionaries/$target.dict
    [ ! -f "$dictionary" ] || set -- "$@" -dict="$dictionary"
    "target/fuzz/$host/release/$target" "$@" 2>"$artifacts/log" || {
        cat "$artifacts/log" >&2
        echo "fuzz: $target failed; the input is in $artifacts" >&2
        exit 1
    }
    sed -n 's/^stat::number_of_executed_units: *\(.*\)/  \1 inputs/p; s/^stat::peak_rss_mb: *\(.*\)/  \1 MB at most/p' "$artifacts/log"
done
