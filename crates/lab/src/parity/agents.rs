// SPDX-License-Identifier: Apache-2.0
//! Agents: ROS nodes that obey orders (`ros/parity/`), two near and two far.

use super::record::{Event, Run};
use super::situation::NODES;
use crate::rig::processes::Process;
use crate::setup::ros::{Middleware, Ros, RosProgram, START_PATIENCE};
use crate::setup::world::Computer;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for an agent to carry out an order; a large burst takes seconds.
const ORDER_PATIENCE: Duration = Duration::from_secs(20);

/// One agent.
struct Agent {
    process: Process,
    is_ready: bool,
    /// Step of each order that is not done.
    orders: VecDeque<usize>,
}

impl Agent {
    fn start(computer: &Computer, ros: Ros, name: &str, folder: &Path) -> Result<Self> {
        let program = RosProgram { computer, middleware: Middleware::own(ros), folder };
        let script = format!("parity/agent{}.py", ros.number());
        let process = program.python(name, &script, &[name.replace('-', "_")])?;
        Ok(Self { process, is_ready: false, orders: VecDeque::new() })
    }

    fn order(&mut self, step: usize, order: &Value) -> Result<()> {
        self.orders.push_back(step);
        self.process.send_line(&order.to_string())
    }

    /// Reads what the agent has said; with `until_done`, waits until all its orders are done.
    fn read(&mut self, step: usize, until_done: bool, reader: &mut Reader<'_>) -> Result<()> {
        let deadline = Instant::now() + ORDER_PATIENCE.max(START_PATIENCE);
        loop {
            let waits = until_done && !(self.is_ready && self.orders.is_empty());
            let patience = if waits { Duration::from_millis(50) } else { Duration::ZERO };
            let Some(line) = self.process.next_line(patience)? else {
                ensure!(Instant::now() < deadline, "{} hangs", self.process.name());
                if waits { continue } else { return Ok(()) }
            };
            let event = serde_json::from_str(&line)
                .with_context(|| format!("{} said {line}", self.process.name()))?;
            let step = self.orders.front().copied().unwrap_or(step);
            match event {
                Event::Ready { .. } => self.is_ready = true,
                Event::Done { .. } => drop(self.orders.pop_front()),
                Event::Matched { counts } => reader.counts.extend(counts),
                event => {
                    reader.latest = Instant::now();
                    reader.run.events.push((step, event));
                }
            }
        }
    }
}

/// Destination of the events of agents.
struct Reader<'a> {
    run: &'a mut Run,
    counts: BTreeMap<String, u32>,
    latest: Instant,
}

/// Agents of one run: near and far nodes.
pub struct Agents {
    /// Computers and ROS of near and far nodes.
    places: [(Arc<Computer>, Ros); 2],
    nodes: [Vec<Agent>; 2],
    /// A far agent that replaces a killed one at once.
    spare: Option<Agent>,
    folder: PathBuf,
    started: u32,
    /// When the last event was read.
    pub latest: Instant,
}

const NEAR: usize = 0;
const FAR: usize = 1;

impl Agents {
    /// Creates an empty set of agents. The near and the far computer may be the same.
    pub fn new(places: [(Arc<Computer>, Ros); 2], folder: &Path) -> Self {
        Self {
            places,
            nodes: [Vec::new(), Vec::new()],
            spare: None,
            folder: folder.into(),
            started: 0,
            latest: Instant::now(),
        }
    }

    /// Starts all agents, without waiting until they are ready.
    pub fn start(&mut self) -> Result<()> {
        for _ in 0..NODES {
            for end in [NEAR, FAR] {
                let agent = self.start_another(end)?;
                self.nodes[end].push(agent);
            }
        }
        self.spare = Some(self.start_another(FAR)?);
        Ok(())
    }

    fn start_another(&mut self, end: usize) -> Result<Agent> {
        self.started += 1;
        let (computer, ros) = &self.places[end];
        let word = ["near", "far"][end];
        let name = format!("{}-{word}-{}", computer.name, self.started);
        Agent::start(computer, *ros, &name, &self.folder)
    }

    /// Gives an order to a near node.
    pub fn order_near(&mut self, node: usize, step: usize, order: &Value) -> Result<()> {
        self.nodes[NEAR][node].order(step, order)
    }

    /// Gives an order to a far node.
    pub fn order_far(&mut self, node: usize, step: usize, order: &Value) -> Result<()> {
        self.nodes[FAR][node].order(step, order)
    }

    /// Kills a far node; the spare takes its place.
    pub fn replace_far(&mut self, node: usize) -> Result<()> {
        let spare = self.spare.take().context("no spare agent")?;
        drop(std::mem::replace(&mut self.nodes[FAR][node], spare));
        self.spare = Some(self.start_another(FAR)?);
        Ok(())
    }

    /// Ends a near node cleanly, and starts another node.
    pub fn replace_near(&mut self, node: usize) -> Result<()> {
        let fresh = self.start_another(NEAR)?;
        let mut before = std::mem::replace(&mut self.nodes[NEAR][node], fresh);
        before.process.send_line(&serde_json::json!({"do": "leave"}).to_string())?;
        before.process.await_line("{\"event\": \"done\"", ORDER_PATIENCE)?;
        before.process.close()
    }

    /// Reads all events until all orders are done; returns the endpoints connected to each publisher
    /// and subscriber, if the orders asked for them.
    pub fn read(&mut self, step: usize, run: &mut Run) -> Result<BTreeMap<String, u32>> {
        let mut reader = Reader { run, counts: BTreeMap::new(), latest: self.latest };
        for agent in self.nodes.iter_mut().flatten() {
            agent.read(step, true, &mut reader)?;
        }
        if let Some(spare) = &mut self.spare {
            spare.read(step, false, &mut reader)?;
        }
        self.latest = reader.latest;
        Ok(reader.counts)
    }

    /// Asks every node for its connections.
    pub fn connections(&mut self, step: usize, run: &mut Run) -> Result<BTreeMap<String, u32>> {
        for agent in self.nodes.iter_mut().flatten() {
            agent.order(step, &serde_json::json!({"do": "matched"}))?;
        }
        self.read(step, run)
    }
}
