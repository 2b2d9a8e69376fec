// SPDX-License-Identifier: Apache-2.0
//! Tests that cannot be judged on this machine report this to `make test`.

use std::fs::OpenOptions;
use std::io::Write;

/// Variable with the file that collects skipped tests, one per line. Without it, only the output
/// names them.
const SKIPPED_VAR: &str = "TAUTLINE_NOT_RUN";

/// Reports that the calling test was skipped, and why. `make test` names it in its last line.
pub fn report_skip(reason: &str) {
    println!("SKIPPED: {reason}");
    let Some(path) = std::env::var_os(SKIPPED_VAR) else { return };
    let test = crate::again::this_test();
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).expect("the list of skips");
    // Write in one call, because other programs append to the file as well.
    file.write_all(format!("{test} (skipped: {reason})\n").as_bytes()).expect("the list of skips");
}
