// SPDX-License-Identifier: Apache-2.0
//! Computers as network namespaces, and the links between them: by this machine's kernel only, or by the
//! radio model.

use crate::air::{self, Air, Punctuality};
use crate::rig::enclosure::SCRATCH;
use crate::rig::namespace::{self, Namespaces};
use crate::rig::processes::{run, wait_for};
use crate::rig::staging;
use crate::scenario::{self, Scenario};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

/// Interface by which a computer on a wire reaches the others.
const INTERFACE: &str = "veth0";
/// Name of the computer that sends commands, and of the router's interface towards it.
const BASE: &str = "base";
/// Largest IP packet of every link, bytes.
pub const MTU: u32 = 1500;
const _: () = assert!(MTU == air::MTU);
/// Bytes of a full packet with its Ethernet header, as the kernel counts them.
pub const FRAME_BYTES: u32 = MTU + 14;

/// Script that runs a program with the given folder as /dev/shm. Network namespaces share /dev/shm, and
/// Fast DDS names its ports there by numbers: two computers would use the same names.
const OWN_MEMORY: &str = r#"mkdir -p "$0" && mount --bind "$0" /dev/shm && exec "$@""#;

/// Longest wait until the kernel marks a connected interface as running.
const RUNNING_PATIENCE: Duration = Duration::from_secs(5);

/// Limits of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLimits {
    /// Bits per second in each direction, Ethernet headers included; `None` for no limit.
    pub rate_bps: Option<u64>,
    /// Fraction of packets lost on arrival, 0-1, in each direction, independently.
    pub loss: f64,
}

/// The kernel's token bucket (tc-tbf(8)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucket {
    /// Bits per second, Ethernet headers included.
    pub rate_bps: u64,
    /// Bytes that pass at once after an idle time.
    pub burst_bytes: u32,
    /// Bytes that wait for the bucket; further bytes are dropped.
    pub queue_bytes: u32,
}

impl TokenBucket {
    /// Returns the token bucket of an ordinary interface: a burst of two full packets, and a long queue.
    pub const fn ordinary(rate_bps: u64) -> Self {
        Self { rate_bps, burst_bytes: 3200, queue_bytes: 100_000 }
    }
}

/// A link between two computers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Link {
    /// A cable with a token bucket in each direction.
    Wire(LinkLimits),
    /// The radios of the named scenario, with the stations `robot` and `base`. Its flows are not
    /// run.
    Radio(&'static str),
}

impl Link {
    /// A cable without limits.
    pub const UNLIMITED: Self = Self::Wire(LinkLimits { rate_bps: None, loss: 0.0 });

    /// Returns a cable with that rate and without loss.
    pub const fn wire(rate_bps: u64) -> Self {
        Self::Wire(LinkLimits { rate_bps: Some(rate_bps), loss: 0.0 })
    }

    /// Returns the bits per second available to IP packets and their Ethernet headers in one
    /// direction; `None` without a limit, and for a radio.
    pub fn rate_bps(self) -> Option<u64> {
        match self {
            Link::Wire(limits) => limits.rate_bps,
            Link::Radio(_) => None,
        }
    }
}

/// A computer: a named network namespace with an address.
pub struct Computer {
    /// Name: `robot`, `base`, ...
    pub name: String,
    /// IPv4 address on `interface`.
    pub address: String,
    /// Interface by which it reaches the others.
    pub interface: String,
    /// Removed with the computer; the namespace of a station belongs to [`Air`].
    _namespace: Option<Namespaces>,
}

impl Computer {
    /// Creates a computer of that name without a link; `number` determines its address.
    pub fn new(name: &str, number: u8) -> Result<Self> {
        let namespace = Namespaces::new(vec![name.into()])?;
        let computer = Self {
            name: name.into(),
            address: format!("10.71.0.{number}"),
            interface: INTERFACE.into(),
            _namespace: Some(namespace),
        };
        computer.ip(&["link", "set", "lo", "up"])?;
        Ok(computer)
    }

    /// Returns the computer of a station of `scenario`, reached on the station's first network.
    pub fn on_air(scenario: &Scenario, name: &str) -> Result<Self> {
        let missing = || format!("scenario {} has no station '{name}' with a radio", scenario.name);
        let is_wanted = |station: &scenario::Station| station.name == name;
        let number = scenario.stations.iter().position(is_wanted).with_context(missing)?;
        let network = *scenario.stations[number].networks.first().with_context(missing)?;
        Ok(Self {
            name: name.into(),
            address: staging::address(network, number).to_string(),
            interface: air::interface(0),
            _namespace: None,
        })
    }

    /// Returns a command that runs `program` on this computer, with its own shared memory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = namespace::command(&self.name, "unshare");
        command.args(["--mount", "--", "sh", "-c", OWN_MEMORY]);
        command.arg(format!("{SCRATCH}/{}.shm", self.name)).arg(program);
        command
    }

    /// Returns the computer's entry among the peers of another node's file
    /// ([`crate::rig::node_file::NodeFile`]).
    pub fn entry(&self) -> (&str, String) {
        (&self.name, format!("address: {}", self.address))
    }

    /// Runs `ip` on this computer.
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    /// Adds its address to its interface.
    pub fn add_address(&self) -> Result<()> {
        self.ip(&["addr", "add", &self.prefix(), "dev", &self.interface])?;
        Ok(())
    }

    /// Removes its address from its interface.
    pub fn delete_address(&self) -> Result<()> {
        self.ip(&["addr", "del", &self.prefix(), "dev", &self.interface])?;
        Ok(())
    }

    fn prefix(&self) -> String {
        format!("{}/24", self.address)
    }

    fn take_address(&self) -> Result<()> {
        self.add_address()?;
        self.ip(&["link", "set", INTERFACE, "up"])?;
        Ok(())
    }

    /// Waits until the kernel marks [`INTERFACE`] as running, up to about a second after its cable
    /// is connected. Fast DDS never uses an interface that was not running when Fast DDS started.
    pub fn await_running(&self) -> Result<()> {
        let runs = || {
            let state = self.ip(&["-oneline", "link", "show", "dev", INTERFACE])?;
            Ok(state.contains(" state UP ").then_some(()))
        };
        wait_for(RUNNING_PATIENCE, runs)?
            .with_context(|| format!("{INTERFACE} is not running after {RUNNING_PATIENCE:?}"))
    }

    /// Limits the rate of packets sent by [`INTERFACE`], and drops a fraction of received packets.
    fn limit(&self, limits: LinkLimits) -> Result<()> {
        if let Some(rate_bps) = limits.rate_bps {
            self.shape("add", INTERFACE, TokenBucket::ordinary(rate_bps))?;
        }
        if limits.loss > 0.0 {
            // Loss applies to packets, not datagrams: before the kernel reassembles IP fragments.
            run(self
                .command("iptables")
                .args(["-t", "mangle", "-A", "PREROUTING", "-i", INTERFACE])
                .args(["-m", "statistic", "--mode", "random"])
                .args(["--probability", &limits.loss.to_string(), "-j", "DROP"]))?;
        }
        Ok(())
    }
}

/// Failures of the link on [`INTERFACE`].
impl Computer {
    /// Sets an interface's token bucket.
    fn shape(&self, verb: &str, interface: &str, bucket: TokenBucket) -> Result<()> {
        let TokenBucket { rate_bps, burst_bytes, queue_bytes } = bucket;
        run(Command::new("tc")
            .args(["-n", &self.name, "qdisc", verb, "dev", interface, "root", "tbf"])
            .args(["rate", &format!("{rate_bps}bit")])
            .args(["burst", &burst_bytes.to_string(), "limit", &queue_bytes.to_string()]))?;
        Ok(())
    }

    /// Unplugs the cable at this computer, or plugs it in: the kernel at the other end loses the
    /// carrier.
    pub fn carrier(&self, plugged: bool) -> Result<()> {
        self.ip(&["link", "set", INTERFACE, if plugged { "up" } else { "down" }])?;
        Ok(())
    }

    /// Drops all packets received on the interface, or none.
    pub fn mute(&self, mute: bool) -> Result<()> {
        let verb = if mute { "-A" } else { "-D" };
        let mut iptables = self.command("iptables");
        run(iptables.args(["-t", "mangle", verb, "PREROUTING", "-i", INTERFACE, "-j", "DROP"]))?;
        Ok(())
    }

    /// Makes the interface hold its packets: at this rate, one packet takes 12 s.
    pub fn block(&self) -> Result<()> {
        self.shape("change", INTERFACE, TokenBucket::ordinary(1000))
    }

    /// Ends [`Self::block`]. The held packets are dropped, since the bucket's timer would hold
    /// them for longer.
    pub fn unblock(&self, limits: LinkLimits) -> Result<()> {
        let mut tc = Command::new("tc");
        run(tc.args(["-n", &self.name, "qdisc", "del", "dev", INTERFACE, "root"]))?;
        let bucket = limits.rate_bps.map(TokenBucket::ordinary);
        bucket.map_or(Ok(()), |bucket| self.shape("add", INTERFACE, bucket))
    }
}

/// Interface of the second link between two computers.
const SECOND_INTERFACE: &str = "veth1";

/// A second cable between two computers.
pub struct SecondLink {
    /// Addresses of robot and base on this link.
    pub addresses: [String; 2],
}

impl SecondLink {
    /// Joins the computers by another cable with the same limits.
    pub fn join(pair: &Pair, limits: LinkLimits) -> Result<Self> {
        let addresses = ["10.72.0.1".to_owned(), "10.72.0.2".to_owned()];
        join(&pair.robot.name, SECOND_INTERFACE, &pair.base.name, SECOND_INTERFACE)?;
        for (computer, address) in [&pair.robot, &pair.base].into_iter().zip(&addresses) {
            computer.ip(&["addr", "add", &format!("{address}/24"), "dev", SECOND_INTERFACE])?;
            computer.ip(&["link", "set", SECOND_INTERFACE, "up"])?;
            if let Some(rate_bps) = limits.rate_bps {
                computer.shape("add", SECOND_INTERFACE, TokenBucket::ordinary(rate_bps))?;
            }
        }
        Ok(Self { addresses })
    }

    /// Returns a computer's entry among the peers of another node's file, with both links. `address` is
    /// the computer's address on this link.
    pub fn entry<'a>(&self, to: &'a Computer, address: &str) -> (&'a str, String) {
        let links = format!(
            "links: [{{ address: {}, interface: {INTERFACE} }}, {{ address: {address}, interface: {SECOND_INTERFACE} }}]",
            to.address
        );
        (&to.name, links)
    }
}

/// Two computers joined by one link.
pub struct Pair {
    /// Computer that sends sensor data.
    pub robot: Computer,
    /// Computer that sends commands.
    pub base: Computer,
    air: Option<Air>,
    router: Option<Box<Computer>>,
}

impl Pair {
    /// Creates both computers and the link between them; `seed` seeds the radio model.
    pub fn new(link: Link, seed: u64) -> Result<Self> {
        match link {
            Link::Wire(limits) => Self::by_wire(limits),
            Link::Radio(name) => Self::on_air(&scenario::named(name)?, seed),
        }
    }

    fn by_wire(limits: LinkLimits) -> Result<Self> {
        let pair = Self::joined(["robot", BASE])?;
        for computer in [&pair.robot, &pair.base] {
            computer.limit(limits)?;
        }
        Ok(pair)
    }

    /// Creates two computers of these names, joined by a cable without limits. All pairs have the
    /// same addresses.
    pub fn joined([robot, base]: [&str; 2]) -> Result<Self> {
        let (robot, base) = (Computer::new(robot, 1)?, Computer::new(base, 2)?);
        join(&robot.name, INTERFACE, &base.name, INTERFACE)?;
        for computer in [&robot, &base] {
            computer.take_address()?;
        }
        for computer in [&robot, &base] {
            computer.await_running()?;
        }
        Ok(Self { robot, base, air: None, router: None })
    }

    /// Creates both computers and a router between them, whose interface towards the base has
    /// `bucket`. The other direction has no limit.
    pub fn behind_router(bucket: TokenBucket) -> Result<Self> {
        let (robot, router) = (Computer::new("robot", 1)?, Computer::new("router", 254)?);
        let base = Computer { address: "10.72.0.1".into(), ..Computer::new(BASE, 1)? };
        for (computer, gateway) in [(&robot, "10.71.0.254"), (&base, "10.72.0.254")] {
            let port = computer.name.as_str();
            join(port, INTERFACE, &router.name, port)?;
            computer.take_address()?;
            router.ip(&["addr", "add", &format!("{gateway}/24"), "dev", port])?;
            router.ip(&["link", "set", port, "up"])?;
            computer.ip(&["route", "add", "default", "via", gateway])?;
            // Otherwise the queue of a few packets meets several TCP segments as one packet.
            computer.ip(&["link", "set", INTERFACE, "gso_max_segs", "1"])?;
        }
        router.shape("add", BASE, bucket)?;
        for computer in [&robot, &base] {
            computer.await_running()?;
        }
        Ok(Self { robot, base, air: None, router: Some(Box::new(router)) })
    }

    /// Creates the stations `robot` and `base` of a scenario, whose flows are not run.
    pub fn on_air(scenario: &Scenario, seed: u64) -> Result<Self> {
        let robot = Computer::on_air(scenario, "robot")?;
        let base = Computer::on_air(scenario, BASE)?;
        let air = Some(Air::start(scenario, seed, 0)?);
        Ok(Self { robot, base, air, router: None })
    }

    /// Returns the numbers of packets towards the base that the router has sent and has dropped; `None` if
    /// the pair has no router.
    pub fn routed_packets(&self) -> Result<Option<[u64; 2]>> {
        let Some(router) = &self.router else { return Ok(None) };
        let mut tc = Command::new("tc");
        let said =
            run(tc.args(["-n", &router.name, "-s", "-j", "qdisc", "show", "dev"]).arg(BASE))?;
        let list: Value = serde_json::from_str(&said)?;
        let count = |key: &str| list[0][key].as_u64().with_context(|| format!("no {key}: {said}"));
        Ok(Some([count("packets")?, count("drops")?]))
    }

    /// Returns the machine's monotonic time at which the clock of the emulator was 0; `None` for a
    /// wire.
    pub fn origin(&self) -> Option<u64> {
        Some(self.air.as_ref()?.origin())
    }

    /// Returns a warning for the user if the radio's emulator may be late.
    pub fn warning(&self) -> Option<&str> {
        self.air.as_ref()?.warning()
    }

    /// Returns the time for which the radio channel was busy since its start, and the time up to which
    /// this is counted, in nanoseconds; `None` for a wire.
    pub fn channel(&self) -> Option<[u64; 2]> {
        let (until, busy) = self.air.as_ref()?.busy();
        Some([*busy.first()?, until])
    }

    /// Returns the frames at the radios now, waiting or on the air; `None` for a wire.
    pub fn radio_frames(&self) -> Option<u64> {
        Some(self.air.as_ref()?.waiting_frames())
    }

    /// Discards the lateness of the radio's emulator up to now.
    pub fn count_from_now(&self) {
        if let Some(air) = &self.air {
            air.count_from_now();
        }
    }

    /// Returns the emulator's lateness since [`Pair::count_from_now`]; `None` for a wire. Fails if
    /// the emulator has failed.
    pub fn punctuality(&mut self) -> Result<Option<Punctuality>> {
        match self.air.take_if(|air| !air.runs()) {
            Some(ended) => Ok(Some(ended.stop()?.punctuality)),
            None => Ok(self.air.as_ref().map(|air| air.look().punctuality)),
        }
    }
}

/// A switch: a separate namespace with a port for each computer.
pub struct Bridge(Computer);

impl Bridge {
    /// Creates a switch without ports.
    pub fn new() -> Result<Self> {
        let bridge = Computer::new("air", 254)?;
        bridge.ip(&["link", "add", "bridge0", "type", "bridge"])?;
        bridge.ip(&["link", "set", "bridge0", "up"])?;
        Ok(Self(bridge))
    }

    /// Gives a computer its interface and address, and connects it to a port.
    pub fn plug_in(&self, computer: &Computer) -> Result<()> {
        join(&computer.name, INTERFACE, &self.0.name, &computer.name)?;
        self.0.ip(&["link", "set", &computer.name, "master", "bridge0", "up"])?;
        computer.take_address()
    }

    /// Forwards all frames of a computer's port, or none, ARP included. The cable stays connected
    /// either way, so that no kernel notices.
    pub fn forward(&self, computer: &Computer, all: bool) -> Result<()> {
        // BR_STATE_FORWARDING and BR_STATE_DISABLED of linux/if_bridge.h.
        let state = if all { "3" } else { "0" };
        let mut bridge = Command::new("bridge");
        bridge.args(["-n", &self.0.name, "link", "set", "dev", &computer.name, "state", state]);
        run(&mut bridge)?;
        Ok(())
    }
}

/// One computer that reaches several others over one limited interface, through a switch.
pub struct Star {
    /// Computer that sends to all others.
    pub sender: Computer,
    /// The other computers, each on a port of the switch.
    pub peers: Vec<Computer>,
    bridge: Bridge,
}

impl Star {
    /// Creates `peers` computers and a sender; the limits apply to the sender's interface.
    pub fn new(peers: u8, limits: LinkLimits) -> Result<Self> {
        let bridge = Bridge::new()?;
        let sender = Computer::new("sender", 1)?;
        let peers = (1..=peers).map(|number| Computer::new(&format!("peer{number}"), number + 1));
        let star = Self { sender, peers: peers.collect::<Result<_>>()?, bridge };
        for computer in star.peers.iter().chain([&star.sender]) {
            star.bridge.plug_in(computer)?;
        }
        star.sender.limit(limits)?;
        Ok(star)
    }

    /// Disconnects a peer from the switch. The sender forgets the peer's neighbour entry, as after
    /// a reboot.
    pub fn unplug(&self, peer: &Computer) -> Result<()> {
        self.bridge.0.ip(&["link", "set", &peer.name, "down"])?;
        self.sender.ip(&["neigh", "flush", "to", &peer.address])?;
        Ok(())
    }
}

/// Connects two computers, given by name, with a cable between two new interfaces.
pub fn join(one: &str, one_interface: &str, other: &str, other_interface: &str) -> Result<()> {
    let mtu = MTU.to_string();
    let mut link = Command::new("ip");
    link.args(["-n", one, "link", "add", one_interface, "mtu", &mtu, "type", "veth"]);
    run(link.args(["peer", "name", other_interface, "mtu", &mtu, "netns", other]))?;
    Ok(())
}
