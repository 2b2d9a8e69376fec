// SPDX-License-Identifier: Apache-2.0
//! Cases in which a frame must or must not arrive.

use super::pipe::{Pipe, Rules, udp_payload};
use super::{MTU, PATIENCE, PORT, address, expect, next, ping_from, pipe, plan, udp};
use crate::air::kernel::{HeldFrame, Plumbing};
use crate::namespace::enter;
use crate::processes::POLL_PERIOD;
use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

const PAYLOAD: [u8; 1400] = [0; 1400];

pub fn ping() -> Result<()> {
    let pipe = pipe(2, Rules::default())?;
    let said = ping_from(0, address(0, 1))?;
    let tally = pipe.stop()?;
    ensure!(tally.foreign_macs == 0, "{} frames of other MACs", tally.foreign_macs);
    ensure!(tally.arp >= 2, "only {} ARP frames were held", tally.arp);
    ensure!(tally.frames[&0] >= 4 && tally.frames[&1] >= 4, "held: {:?}", tally.frames);
    println!("{said}held by radio: {:?}, ARP among them: {}", tally.frames, tally.arp);
    Ok(())
}

pub fn back_pressure() -> Result<()> {
    let pipe = pipe(2, Rules::default())?;
    let (sender, receiver) = (udp(0)?, udp(1)?);
    let to = (address(0, 1), PORT);
    sender.send_to(b"neighbour is known", to)?;
    expect(&receiver, "neighbour is known")?;
    pipe.hold(true);
    set_socket_send_buffer_size(&sender, 10_000)?;
    sender.set_nonblocking(true)?;
    let before = fill(&sender, to)?;
    // No more packets fit, however long the others are held.
    std::thread::sleep(POLL_PERIOD);
    ensure!(fill(&sender, to)? == 0, "a packet left its socket while it was held");
    pipe.hold(false);
    let after = wait_and_fill(&sender, to)?;
    pipe.stop()?;
    println!(
        "{before} packets of {} bytes fill a socket while held; {after} more fit once some were released",
        PAYLOAD.len()
    );
    ensure!((1..=20).contains(&before), "{before} packets fit into 10000 bytes");
    Ok(())
}

/// Sends until the socket is full; returns the number of packets that fitted.
fn fill(socket: &UdpSocket, to: (Ipv4Addr, u16)) -> Result<u32> {
    for sent in 0..10_000 {
        match socket.send_to(&PAYLOAD, to) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("a socket is never full: no back-pressure");
}

fn wait_and_fill(socket: &UdpSocket, to: (Ipv4Addr, u16)) -> Result<u32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let fitted = fill(socket, to)?;
        if fitted > 0 {
            return Ok(fitted);
        }
        std::thread::sleep(POLL_PERIOD);
    }
    bail!("a socket stays full {PATIENCE:?} after its packets were released");
}

fn is_to_be_lost(frame: &HeldFrame) -> bool {
    udp_payload(frame).is_some_and(|payload| payload.starts_with(b"lost"))
}

pub fn verdicts() -> Result<()> {
    let pipe =
        pipe(4, Rules { loses: is_to_be_lost, hears: |radio| radio != 2, ..Rules::default() })?;
    let sockets = (0..4).map(udp).collect::<Result<Vec<_>>>()?;
    let (neighbour, everyone) = ((address(0, 1), PORT), (Ipv4Addr::new(10, 72, 0, 255), PORT));
    sockets[0].send_to(b"kept", neighbour)?;
    expect(&sockets[1], "kept")?;
    sockets[0].send_to(b"lost", neighbour)?;
    sockets[0].send_to(b"to all", everyone)?;
    expect(&sockets[1], "to all")?;
    expect(&sockets[3], "to all")?;
    // The kernel delivers a broadcast to its sender, on any interface.
    expect(&sockets[0], "to all")?;
    // s2 receives no ARP requests, so it must resolve s0 first.
    sockets[2].send_to(b"are you there", (address(0, 0), PORT))?;
    expect(&sockets[0], "are you there")?;
    sockets[0].send_to(b"yes", (address(0, 2), PORT))?;
    expect(&sockets[2], "yes")?;
    pipe.stop()?;
    println!("what was discarded did not arrive; the broadcast arrived at s1 and s3 and not at s2");
    Ok(())
}

pub fn radios() -> Result<()> {
    let plan = plan(2, &[0, 5]);
    let pipe = Pipe::start(Plumbing::new(&plan)?, &plan, Rules::default());
    ping_from(0, address(5, 1))?;
    let tally = pipe.stop()?;
    let used: Vec<usize> = tally.frames.keys().copied().collect();
    ensure!(used == [1, 3], "ping on the second network used radios {used:?}");
    println!("frames by radio: {:?}", tally.frames);
    Ok(())
}

pub fn relay() -> Result<()> {
    let plan = plan(3, &[0]);
    let plumbing = Plumbing::new(&plan)?;
    let via = address(0, 1);
    plumbing.add_route(0, address(0, 2), via)?;
    plumbing.add_route(2, address(0, 0), via)?;
    let pipe = Pipe::start(plumbing, &plan, Rules::default());
    let said = ping_from(0, address(0, 2))?;
    let tally = pipe.stop()?;
    ensure!(said.contains("ttl=63"), "ping did not take two hops: {said}");
    ensure!(tally.frames[&1] >= 6, "the relay forwarded too little: {:?}", tally.frames);
    println!("{said}frames by radio: {:?}", tally.frames);
    Ok(())
}

pub fn tcp() -> Result<()> {
    let pipe = pipe(2, Rules::default())?;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|place| (place * 7 / 5) as u8).collect();
    let listener = enter("s1", || Ok(TcpListener::bind((address(0, 1), PORT))?))?;
    let receiver = std::thread::spawn(move || -> Result<Vec<u8>> {
        let mut received = Vec::new();
        listener.accept()?.0.read_to_end(&mut received)?;
        Ok(received)
    });
    let begin = Instant::now();
    let mut stream = enter("s0", || Ok(TcpStream::connect((address(0, 1), PORT))?))?;
    stream.write_all(&sent)?;
    drop(stream);
    let received = receiver.join().ok().context("the receiver panicked")??;
    let took = begin.elapsed();
    let tally = pipe.stop()?;
    ensure!(received == sent, "{} of {} bytes arrived, or others", received.len(), sent.len());
    let longest = tally.longest_bytes;
    ensure!(longest <= MTU as usize, "a packet of {longest} bytes at an MTU of {MTU}");
    let mbps = sent.len() as f64 * 8e-6 / took.as_secs_f64();
    println!("1 MB by TCP in {took:?}, {mbps:.2} Mbps; longest packet {longest} bytes");
    Ok(())
}

pub fn overrun() -> Result<()> {
    let plan = plan(2, &[0]);
    let plumbing = Plumbing::new(&plan)?;
    let (sender, receiver) = (udp(0)?, udp(1)?);
    let sent = flood()?;
    let rules = Rules { rate_bps: 1_000_000_000, ..Rules::default() };
    let pipe = Pipe::start(plumbing, &plan, rules);
    let arrived = drain(&sender, &receiver)?;
    let tally = pipe.stop()?;
    println!(
        "{sent} frames at once: {arrived} arrived, {:?}, {} copies not injected",
        tally.troubles, tally.uninjected_frames
    );
    ensure!(arrived > 0 && tally.troubles.overruns > 0, "the queue was not overrun");
    let counted = tally.frames[&0] + tally.troubles.unreported_frames;
    ensure!(counted >= sent, "only {counted} frames were held or counted as lost");
    Ok(())
}

/// Broadcasts more frames from the first station than the kernel may report before it is read;
/// returns their number.
fn flood() -> Result<u64> {
    const FRAMES: u64 = 60_000;
    // A socket fills before the buffer for reports does.
    const SOCKETS: usize = 400;
    let everyone = (Ipv4Addr::new(10, 72, 0, 255), PORT);
    let mut sent = 0;
    for _ in 0..SOCKETS {
        let socket = enter("s0", || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?))?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        while sent < FRAMES && socket.send_to(b"flood", everyone).is_ok() {
            sent += 1;
        }
    }
    Ok(sent)
}

/// Receives until a datagram sent after the flood arrives; returns the number of datagrams before
/// it. The datagram is repeated whenever nothing arrives, since a full receiver loses it.
fn drain(sender: &UdpSocket, receiver: &UdpSocket) -> Result<u64> {
    receiver.set_read_timeout(Some(POLL_PERIOD))?;
    let deadline = Instant::now() + PATIENCE;
    let mut arrived = 0;
    while Instant::now() < deadline {
        match next(receiver) {
            Ok(text) if text == "after" => return Ok(arrived),
            Ok(_) => arrived += 1,
            Err(_) => {
                sender.send_to(b"after", (address(0, 1), PORT))?;
            }
        }
    }
    bail!("nothing sent after too much arrived in {PATIENCE:?}");
}
