// SPDX-License-Identifier: Apache-2.0
//! The program `tautline-lab`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tautline_lab::run()
}
