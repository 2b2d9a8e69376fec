// SPDX-License-Identifier: Apache-2.0
//! UDP traffic of iperf3 from one computer to another.

use super::ros::WRITE_PATIENCE;
use super::world::Computer;
use crate::rig::processes::{Process, run, wait_for};
use anyhow::{Context, Result};
use std::path::Path;

/// UDP payload: with headers, below the MTU of every link.
const BYTES: &str = "1400";

/// Running traffic. It ends when it is dropped.
pub struct Iperf {
    client: Process,
    _server: Process,
}

impl Iperf {
    /// Starts traffic of a rate as iperf3 writes it (`30M`).
    pub fn start(from: &Computer, to: &Computer, rate: &str, folder: &Path) -> Result<Self> {
        let mut server = to.command("iperf3");
        server.args(["--server", "--one-off"]);
        let server =
            Process::start("iperf3-server", server, folder).context("iperf3 (package iperf3)")?;
        let listens = || {
            let sockets = run(to.command("ss").args(["-Hltn", "sport = :5201"]))?;
            Ok((!sockets.trim().is_empty()).then_some(()))
        };
        wait_for(WRITE_PATIENCE, listens)?.context("iperf3 does not listen")?;
        let mut client = from.command("iperf3");
        client.args(["--client", &to.address, "--udp", "--time", "3600"]);
        client.args(["--length", BYTES, "--bitrate", rate]);
        let client = Process::start("iperf3-client", client, folder)?;
        Ok(Self { client, _server: server })
    }

    /// Fails if the traffic has ended.
    pub fn check(&mut self) -> Result<()> {
        self.client.check_running()
    }
}
