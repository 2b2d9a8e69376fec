#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one fuzz target that is built: one.sh HOST SECONDS TARGET
set -eu

program=target/fuzz/$1/release/$3
seconds=$2
target=$3
corpus=target/fuzz/corpus/$target
artifacts=target/fuzz/artifacts/$target/
mkdir -p "$corpus" "$artifacts"
set -- "$corpus" "fuzz/seeds/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -verbosity=0 -print_final_stats=1 -artifact_prefix="$artifacts"
dictionary=fuzz/dictionaries/$target.dict
[ ! -f "$dictionary" ] || set -- "$@" -dict="$dictionary"
"$program" "$@" 2>"$artifacts/log" || {
    cat "$artifacts/log" >&2
    echo "fuzz: $target failed; the input is in $artifacts" >&2
    exit 1
}
figure() { sed -n "s/^stat::$1: *//p" "$artifacts/log"; }
echo "fuzz: $target: $(figure number_of_executed_units) inputs in $seconds s, $(figure peak_rss_mb) MB at most"
