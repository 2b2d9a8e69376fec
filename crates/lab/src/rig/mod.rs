// SPDX-License-Identifier: Apache-2.0
//! What emulator, simulator, benches and validations share: namespaces, processes and threads of
//! the machine; the medium of a scenario; statistics, tables, pictures and progress of a run.

pub mod clock;
pub mod docs_page;
pub mod enclosure;
pub mod figures;
pub mod machine;
pub mod namespace;
pub mod node_file;
pub mod output;
pub mod parallel;
pub mod plot;
pub mod processes;
pub mod progress;
pub mod punctual;
pub mod staging;
pub mod stamp;
pub mod stats;
pub mod table;
pub mod verdict;
pub mod worker;
