// SPDX-License-Identifier: Apache-2.0
//! Checks of the kernel features that the emulator needs, on the kernel of this machine.

mod frames;
mod measure;
mod pipe;

use super::{Plumbing, RadioPlan, StationPlan};
use crate::namespace::{self, enter};
use crate::processes::run;
use anyhow::{Context, Result, ensure};
use pipe::{Pipe, Rules};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Time within which an expected packet must arrive.
const PATIENCE: Duration = Duration::from_secs(10);
const PORT: u16 = 7001;
const MTU: u32 = 1500;

/// `tautline-lab air-check CASE`.
#[derive(clap::Args)]
pub struct Arguments {
    case: Case,
    /// Stations on the network, where something is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=256))]
    stations: u16,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Case {
    /// ping and the ARP before it are held, and pass.
    Ping,
    /// A held packet stays charged to its socket.
    BackPressure,
    /// What is discarded does not arrive; a broadcast arrives where it is injected.
    Verdicts,
    /// Frames are known by radio, two in one station.
    Radios,
    /// The kernel forwards for others by its one radio.
    Relay,
    /// A megabyte by TCP, in frames of one packet.
    Tcp,
    /// Too many frames at once are counted, and no reason to stop.
    Overrun,
    /// Processor time per frame, and time from release to receiver.
    Measure,
    /// Stations that stay until this is killed.
    Stay,
}

impl Arguments {
    /// Runs one case; an error names the deviation.
    pub fn run(&self) -> Result<()> {
        match self.case {
            Case::Ping => frames::ping(),
            Case::BackPressure => frames::back_pressure(),
            Case::Verdicts => frames::verdicts(),
            Case::Radios => frames::radios(),
            Case::Relay => frames::relay(),
            Case::Tcp => frames::tcp(),
            Case::Overrun => frames::overrun(),
            Case::Measure => measure::run(self.stations.into()),
            Case::Stay => stay(),
        }
    }
}

/// Prints the namespaces of this program and of a station, and holds a frame until killed.
fn stay() -> Result<()> {
    let plan = plan(2, &[0]);
    let plumbing = Plumbing::new(&plan)?;
    let mut ping = plumbing.command(0, "ping").arg(address(0, 1).to_string()).spawn()?;
    let of_station = plumbing.inside(0, || namespaces_of("thread-self"))?;
    let mut output = std::io::stdout();
    writeln!(output, "{} {of_station}", namespaces_of("self")?)?;
    output.flush()?;
    let status = ping.wait()?;
    anyhow::bail!("ping ended with {status} although nothing was ever released")
}

fn namespaces_of(process: &str) -> Result<String> {
    let kinds = ["net", "mnt", "pid"];
    let links = kinds.map(|kind| std::fs::read_link(format!("/proc/{process}/ns/{kind}")));
    let links = links.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    Ok(links.iter().map(|link| link.display().to_string()).collect::<Vec<_>>().join(" "))
}

/// Returns plans of `s0`, `s1`, ..., each with a radio on each network.
fn plan(stations: usize, networks: &[u8]) -> Vec<StationPlan> {
    let radio = |station, network| RadioPlan {
        network,
        interface: format!("wlan{network}"),
        address: address(network, station),
        prefix: 24,
        mtu: MTU,
    };
    let station = |number| StationPlan {
        name: format!("s{number}"),
        radios: networks.iter().map(|&network| radio(number, network)).collect(),
    };
    (0..stations).map(station).collect()
}

fn address(network: u8, station: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 72, network, station as u8 + 1)
}

/// Starts a pipe between stations of network 0.
fn pipe(stations: usize, rules: Rules) -> Result<Pipe> {
    let plan = plan(stations, &[0]);
    Ok(Pipe::start(Plumbing::new(&plan)?, &plan, rules))
}

/// Opens a socket in a station, bound to [`PORT`], with a read timeout of [`PATIENCE`].
fn udp(station: usize) -> Result<UdpSocket> {
    enter(&format!("s{station}"), || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_broadcast(true)?;
        Ok(socket)
    })
}

/// Returns the length of the next datagram.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match socket.recv(buffer) {
            // The kernel does not restart a read with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome.context("nothing arrived"),
        }
    }
}

/// Returns the next datagram as text.
fn next(socket: &UdpSocket) -> Result<String> {
    let mut buffer = [0; 2048];
    let length = receive(socket, &mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn expect(socket: &UdpSocket, text: &str) -> Result<()> {
    let found = next(socket)?;
    ensure!(found == text, "'{found}' arrived first and not '{text}'");
    Ok(())
}

/// Sends three pings; returns the output of ping.
fn ping_from(station: usize, to: Ipv4Addr) -> Result<String> {
    let mut ping = namespace::command(&format!("s{station}"), "ping");
    run(ping.args(["-n", "-c", "3", "-i", "0.2", "-W", "5"]).arg(to.to_string()))
}
