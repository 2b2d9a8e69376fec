#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the packages of the last commit twice, in two folders without anything built, and compares
# them: reproducible.sh [amd64|arm64]
#
# Both builds have the same tools and the same time. Zig's part of the debug information names its
# folders, so that the package with the debug information may differ; everything else must not.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
arch=${1:-$(dpkg --print-architecture)}
folder=$root/target/reproducible
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
PACKAGE_TOOLS=$root/target/packages/tools
export SOURCE_DATE_EPOCH PACKAGE_TOOLS

rm -rf "$folder"
for copy in first another/folder/second; do
    mkdir -p "$folder/$copy"
    git -C "$root" archive HEAD | tar -x -C "$folder/$copy"
    echo "reproducible: building in $folder/$copy"
    "$folder/$copy/packaging/build.sh" "$arch" >"$folder/log" 2>&1 || {
        tail -30 "$folder/log" >&2
        exit 1
    }
    mv "$folder/$copy/target/packages/out/SHA256SUMS" "$folder/$(basename "$copy").sums"
done
if ! cmp -s "$folder/first.sums" "$folder/second.sums"; then
    diff "$folder/first.sums" "$folder/second.sums" || true
fi
grep -v dbgsym "$folder/first.sums" >"$folder/first.compared"
grep -v dbgsym "$folder/second.sums" >"$folder/second.compared"
cmp "$folder/first.compared" "$folder/second.compared"
cat "$folder/first.compared"
echo "reproducible: both builds gave the same files"
