// SPDX-License-Identifier: Apache-2.0
//! Cost of holding a frame, and delay from release to arrival.

use super::pipe::{Rules, sequence};
use super::{PORT, address, expect, pipe, udp};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const LAST: u64 = u64::MAX;
const MEASURED: Duration = Duration::from_secs(5);

/// Saturates 6 Mbps with full packets from one station to another.
pub fn run(stations: usize) -> Result<()> {
    let begin = Instant::now();
    let pipe = pipe(stations, Rules::default())?;
    println!("{stations} stations made in {:.2?}", begin.elapsed());
    let (sender, receiver) = (udp(0)?, udp(1)?);
    let to = (address(0, 1), PORT);
    sender.send_to(b"hello", to)?;
    expect(&receiver, "hello")?;
    let receiving = std::thread::spawn(move || receive(&receiver));
    let mut datagram = [0; 1472];
    let begin = Instant::now();
    for number in 0.. {
        let number = if begin.elapsed() < MEASURED { number } else { LAST };
        datagram[..8].copy_from_slice(&u64::to_be_bytes(number));
        sender.send_to(&datagram, to)?;
        if number == LAST {
            break;
        }
    }
    let arrivals = receiving.join().ok().context("the receiver panicked")??;
    let took = begin.elapsed();
    let tally = pipe.stop()?;
    let released: HashMap<u64, Instant> = tally.releases.iter().copied().collect();
    let mut delays: Vec<Duration> = arrivals
        .iter()
        .filter_map(|(number, arrival)| Some(arrival.duration_since(*released.get(number)?)))
        .collect();
    let frames: u64 = tally.frames.values().sum();
    println!(
        "{frames} frames in {took:.2?} ({:.0}/s): {:.1?} of processor per frame, {:.2} % of a core",
        frames as f64 / took.as_secs_f64(),
        tally.cpu / frames.max(1) as u32,
        100.0 * tally.cpu.as_secs_f64() / took.as_secs_f64()
    );
    println!("real-time priority: {}", tally.real_time);
    print_spread("release to receiver", &mut delays);
    print_spread("lateness of release", &mut tally.lateness.clone());
    Ok(())
}

fn receive(socket: &UdpSocket) -> Result<Vec<(u64, Instant)>> {
    let mut buffer = [0; 2048];
    let mut arrivals = Vec::new();
    loop {
        let length = super::receive(socket, &mut buffer)?;
        let number = sequence(&buffer[..length]).context("a datagram without number")?;
        arrivals.push((number, Instant::now()));
        if number == LAST {
            return Ok(arrivals);
        }
    }
}

fn print_spread(what: &str, values: &mut [Duration]) {
    values.sort_unstable();
    let at = |share: usize| values.get(values.len() * share / 1000).copied().unwrap_or_default();
    println!("{what}: median {:.1?}, p99 {:.1?}, p99.9 {:.1?}", at(500), at(990), at(999));
}
