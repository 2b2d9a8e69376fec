// SPDX-License-Identifier: Apache-2.0
//! Cases that the command `air` does not show, inside an enclosure: the emulator itself runs small
//! scenarios.

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use tautline_lab::air::{Air, Plumbing, sleep_until};
use tautline_lab::rig::namespace::enter;
use tautline_lab::rig::processes::{POLL_PERIOD, wait_for};
use tautline_lab::rig::staging::address;
use tautline_lab::scenario::{self, Scenario};

/// Time within which an expected packet must arrive.
const PATIENCE: Duration = Duration::from_secs(10);
const PORT: u16 = 7001;
/// Broadcast address of the first network.
const EVERYONE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 71, 255, 255), PORT);
const PAYLOAD: [u8; 1400] = [0; 1400];
/// Bytes sent by TCP.
const STREAM_BYTES: u32 = 1_000_000;
/// Payload of a TCP segment in a packet of the radio's MTU, without options.
const SEGMENT_BYTES: u64 = 1460;

/// Returns a scenario with the stations `s1`, `s2` and so on, on one pipe.
fn one_pipe(stations: usize, pipe: &str, rest: &str) -> Result<Scenario> {
    let text = format!(
        "about: A check of the kernel\nduration: 60s\n\
         networks: {{ one: {{ pipe: {{ {pipe} }} }} }}\n\
         stations: {{ s: {{ count: {stations}, networks: [one] }} }}\n{rest}"
    );
    scenario::parse_made("check", &text)
}

fn start(scenario: &Scenario) -> Result<Air> {
    Air::start(scenario, 1, 0)
}

fn name(station: usize) -> String {
    format!("s{}", station + 1)
}

/// Opens a socket in a station, bound to [`PORT`], with a read timeout of [`PATIENCE`].
fn udp(station: usize) -> Result<UdpSocket> {
    enter(&name(station), || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_broadcast(true)?;
        Ok(socket)
    })
}

/// Returns the next datagram as text.
fn receive_text(socket: &UdpSocket) -> Result<String> {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv(&mut buffer) {
            // The kernel does not restart a read with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => {
                let length = outcome.context("nothing arrived")?;
                return Ok(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
        }
    }
}

fn expect(socket: &UdpSocket, text: &str) -> Result<()> {
    let found = receive_text(socket)?;
    ensure!(found == text, "'{found}' arrived first and not '{text}'");
    Ok(())
}

/// A held packet stays charged to its socket.
pub fn back_pressure() -> Result<()> {
    // A full packet takes more than a second.
    let air = start(&one_pipe(2, "rate: 8kbps", "")?)?;
    let (sender, receiver) = (udp(0)?, udp(1)?);
    let to = (address(0, 1), PORT);
    sender.send_to(b"neighbour is known", to)?;
    expect(&receiver, "neighbour is known")?;
    set_socket_send_buffer_size(&sender, 10_000)?;
    sender.set_nonblocking(true)?;
    let before = fill(&sender, to)?;
    std::thread::sleep(POLL_PERIOD);
    ensure!(fill(&sender, to)? == 0, "a packet left its socket while it was held");
    let after = wait_for(PATIENCE, || Ok(Some(fill(&sender, to)?).filter(|count| *count > 0)))?;
    let after = after.context("a socket stays full after a packet was sent")?;
    air.stop()?;
    println!(
        "{before} packets of {} bytes fill a socket while held; {after} more fit once some were sent",
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

/// Frames that the medium loses do not arrive; a broadcast arrives where the medium delivers it.
pub fn verdicts() -> Result<()> {
    let cut = "events: [ { at: 3s, for: 50s, outage: [s1, s3] } ]\n";
    let air = start(&one_pipe(4, "rate: 6Mbps", cut)?)?;
    let sockets = (0..4).map(udp).collect::<Result<Vec<_>>>()?;
    let third = (address(0, 2), PORT);
    sockets[0].send_to(b"kept", third)?;
    expect(&sockets[2], "kept")?;
    sockets[1].send_to(b"neighbour is known", third)?;
    expect(&sockets[2], "neighbour is known")?;
    sleep_until(air.origin(), 3_100_000_000);
    sockets[0].send_to(b"lost", third)?;
    sockets[0].send_to(b"to all", EVERYONE)?;
    expect(&sockets[1], "to all")?;
    expect(&sockets[3], "to all")?;
    // The kernel delivers a broadcast to its sender, on any interface.
    expect(&sockets[0], "to all")?;
    sockets[1].send_to(b"after", third)?;
    expect(&sockets[2], "after")?;
    air.stop()?;
    println!("lost frames did not arrive; the broadcast arrived at s2 and s4, not at s3");
    Ok(())
}

/// A megabyte by TCP, in frames of one packet.
pub fn tcp() -> Result<()> {
    let air = start(&one_pipe(2, "rate: 6Mbps", "")?)?;
    let sent: Vec<u8> = (0..STREAM_BYTES).map(|place| (place * 7 / 5) as u8).collect();
    let to = (address(0, 1), PORT);
    let listener = enter(&name(1), || Ok(TcpListener::bind(to)?))?;
    let receiver = std::thread::spawn(move || -> Result<Vec<u8>> {
        let mut received = Vec::new();
        listener.accept()?.0.read_to_end(&mut received)?;
        Ok(received)
    });
    let begin = Instant::now();
    let mut stream = enter(&name(0), || Ok(TcpStream::connect(to)?))?;
    stream.write_all(&sent)?;
    drop(stream);
    let received = receiver.join().ok().context("the receiver panicked")??;
    let took = begin.elapsed();
    let frames = air.stop()?.radios[0].attempts;
    ensure!(received == sent, "{} of {} bytes arrived, or others", received.len(), sent.len());
    let segments = u64::from(STREAM_BYTES) / SEGMENT_BYTES;
    ensure!(frames >= segments, "{frames} frames for {segments} segments");
    let mbps = sent.len() as f64 * 8e-6 / took.as_secs_f64();
    println!("1 MB by TCP in {took:?}, {mbps:.2} Mbps, {frames} frames");
    Ok(())
}

/// Too many simultaneous frames are counted, and do not stop the emulator.
pub fn overrun() -> Result<()> {
    let scenario = one_pipe(2, "rate: 1Gbps, queue: 10MB", "")?;
    let plumbing = Plumbing::new(&scenario)?;
    let (sender, receiver) = (udp(0)?, udp(1)?);
    let sent = flood()?;
    let air = Air::run(&scenario, 1, 0, plumbing)?;
    let arrived = drain(&sender, &receiver)?;
    let unreported = air.unreported_frames();
    let last = air.stop()?;
    println!(
        "{sent} frames at once: {arrived} arrived, {unreported} were not reported; {}",
        last.punctuality
    );
    ensure!(arrived > 0 && unreported > 0, "the queue was not overrun");
    let counted = last.radios[0].attempts + last.radios[0].queue_drops + unreported;
    ensure!(counted >= sent, "only {counted} frames were held or counted as lost");
    Ok(())
}

/// Broadcasts more frames from the first station than the kernel may report before it is read;
/// returns their number.
fn flood() -> Result<u64> {
    const FRAMES: u64 = 60_000;
    // A socket fills before the buffer for reports does.
    const SOCKETS: usize = 400;
    let mut sent = 0;
    for _ in 0..SOCKETS {
        let socket = enter(&name(0), || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?))?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        while sent < FRAMES && socket.send_to(b"flood", EVERYONE).is_ok() {
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
        match receive_text(receiver) {
            Ok(text) if text == "after" => return Ok(arrived),
            Ok(_) => arrived += 1,
            Err(_) => {
                sender.send_to(b"after", (address(0, 1), PORT))?;
            }
        }
    }
    bail!("no datagram sent after the overrun arrived in {PATIENCE:?}");
}
