#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks Cargo.lock against the database of known vulnerabilities: advisories.sh NOT_RUN
# If the database cannot be fetched and there is no copy, adds a line to the file NOT_RUN, which `make test`
# prints. A copy that is more than 90 days old counts as none (cargo-deny's default).
set -eu

not_run=$1
database=target/advisories
log=target/advisories.log
mkdir -p target

if timeout 60 cargo deny --locked fetch db >"$log" 2>&1 || ls -d "$database"/*/crates >/dev/null 2>&1; then
    for manifest in Cargo.toml fuzz/Cargo.toml; do
        cargo deny --locked --config deny.toml --manifest-path "$manifest" check --disable-fetch advisories
    done
else
    echo "deny: advisories not checked, their database cannot be fetched ($log)"
    echo "advisories (no database)" >>"$not_run"
fi
