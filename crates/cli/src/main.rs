// SPDX-License-Identifier: Apache-2.0
//! The `tautline` command.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
