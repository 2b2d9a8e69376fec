// SPDX-License-Identifier: Apache-2.0
//! Network namespaces and the links between them, on this machine's kernel.

use super::processes::run;
use anyhow::Result;
use std::process::Command;

/// The interface by which a robot reaches the others.
pub const INTERFACE: &str = "veth0";
/// IP packet size of every link.
pub const MTU: u32 = 1500;
/// Bytes the kernel's token bucket lets go at once: two full packets.
const BURST_BYTES: u32 = 3200;
/// Bytes that may wait in the kernel's queue, as an ordinary interface has them.
const QUEUE_BYTES: u32 = 100_000;

/// What limits a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLimits {
    /// Bits per second in each direction, Ethernet headers included; `None` is as fast as it goes.
    pub rate_bps: Option<u64>,
    /// Share of packets lost on arrival, 0-1, in each direction, independently.
    pub loss: f64,
}

/// One computer: a named network namespace with an address.
pub struct Computer {
    /// `robot`, `base`, ...
    pub name: String,
    /// Its IPv4 address on [`INTERFACE`].
    pub address: String,
}

impl Computer {
    /// A computer of that name with no link yet; `number` makes its address.
    pub fn new(name: &str, number: u8) -> Result<Self> {
        run(Command::new("ip").args(["netns", "add", name]))?;
        let computer = Self { name: name.into(), address: format!("10.71.0.{number}") };
        computer.ip(&["link", "set", "lo", "up"])?;
        Ok(computer)
    }

    /// `program` on this computer.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    fn ip(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    fn take_address(&self) -> Result<()> {
        self.ip(&["addr", "add", &format!("{}/24", self.address), "dev", INTERFACE])?;
        self.ip(&["link", "set", INTERFACE, "up"])?;
        Ok(())
    }

    /// Limits what leaves by [`INTERFACE`] to a rate and loses some of what comes in.
    fn limit(&self, limits: LinkLimits) -> Result<()> {
        if let Some(rate_bps) = limits.rate_bps {
            run(Command::new("tc")
                .args(["-n", &self.name, "qdisc", "add", "dev", INTERFACE, "root", "tbf"])
                .args(["rate", &format!("{rate_bps}bit")])
                .args(["burst", &BURST_BYTES.to_string(), "limit", &QUEUE_BYTES.to_string()]))?;
        }
        if limits.loss > 0.0 {
            run(self
                .command("iptables")
                .args(["-A", "INPUT", "-i", INTERFACE, "-m", "statistic", "--mode", "random"])
                .args(["--probability", &limits.loss.to_string(), "-j", "DROP"]))?;
        }
        Ok(())
    }
}

impl Drop for Computer {
    fn drop(&mut self) {
        // A failure leaves a namespace that ends with the bench's own.
        let _ = run(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// Two computers joined by one link.
pub struct Pair {
    /// Sends sensor data.
    pub robot: Computer,
    /// Sends commands.
    pub base: Computer,
}

impl Pair {
    /// Makes both and joins them.
    pub fn new(limits: LinkLimits) -> Result<Self> {
        let (robot, base) = (Computer::new("robot", 1)?, Computer::new("base", 2)?);
        join(&robot.name, INTERFACE, &base.name, INTERFACE)?;
        for computer in [&robot, &base] {
            computer.take_address()?;
            computer.limit(limits)?;
        }
        Ok(Self { robot, base })
    }
}

/// One computer that reaches several others by one limited interface, through a bridge.
pub struct Star {
    /// The one that sends to all.
    pub sender: Computer,
    /// The others, each on a port of the bridge.
    pub peers: Vec<Computer>,
    bridge: Computer,
}

impl Star {
    /// `peers` computers around a sender; the limits hold for the sender's interface.
    pub fn new(peers: u8, limits: LinkLimits) -> Result<Self> {
        let bridge = Computer::new("air", 254)?;
        bridge.ip(&["link", "add", "bridge0", "type", "bridge"])?;
        bridge.ip(&["link", "set", "bridge0", "up"])?;
        let sender = Computer::new("sender", 1)?;
        let peers = (1..=peers).map(|number| Computer::new(&format!("peer{number}"), number + 1));
        let star = Self { sender, peers: peers.collect::<Result<_>>()?, bridge };
        for computer in star.peers.iter().chain([&star.sender]) {
            star.plug_in(computer)?;
        }
        star.sender.limit(limits)?;
        Ok(star)
    }

    fn plug_in(&self, computer: &Computer) -> Result<()> {
        join(&computer.name, INTERFACE, &self.bridge.name, &computer.name)?;
        self.bridge.ip(&["link", "set", &computer.name, "master", "bridge0", "up"])?;
        computer.take_address()
    }

    /// Takes a peer off the bridge; the sender forgets where it was, as after a reboot.
    pub fn unplug(&self, peer: &Computer) -> Result<()> {
        self.bridge.ip(&["link", "set", &peer.name, "down"])?;
        self.sender.ip(&["neigh", "flush", "to", &peer.address])?;
        Ok(())
    }
}

fn join(one: &str, one_interface: &str, other: &str, other_interface: &str) -> Result<()> {
    let mtu = MTU.to_string();
    run(Command::new("ip").args(["-n", one, "link", "add", one_interface, "mtu", &mtu]).args([
        "type",
        "veth",
        "peer",
        "name",
        other_interface,
        "mtu",
        &mtu,
        "netns",
        other,
    ]))?;
    Ok(())
}
