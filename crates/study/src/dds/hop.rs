// SPDX-License-Identifier: Apache-2.0
//! Running systems with one publisher and some subscribers each.

use super::Context;
use super::probe::{Probe, Quality, Role, Start};
use super::stage::{Place, Side, Stage};
use super::system::System;
use anyhow::{Context as _, Result};
use serde::Serialize;

/// A failure of a system in a part of the study.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Part of the study.
    pub part: &'static str,
    pub system: System,
    pub place: Place,
    pub error: String,
}

/// The common settings of one part's hops.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Part of the study, which also names the folder of the samples.
    pub part: &'static str,
    pub place: Place,
    pub quality: Quality,
    /// Subscribers of each publisher.
    pub subscribers: usize,
}

impl Kind {
    /// Prints a failure, and returns its record.
    pub fn failure(&self, system: System, error: &anyhow::Error) -> Failure {
        eprintln!("tautline-lab: {}, {}: {error:#}", self.part, system.name());
        Failure { part: self.part, system, place: self.place, error: format!("{error:#}") }
    }
}

/// A running system.
pub struct Hop {
    pub system: System,
    pub stage: Stage,
    pub subscribers: Vec<Probe>,
    /// The publisher. It is dropped, which ends its program, before the stage.
    pub publisher: Option<Probe>,
}

impl Hop {
    /// Starts the stage, without waiting for it and without subscribers.
    fn start(context: &Context, kind: &Kind, system: System, run: &str) -> Result<Self> {
        let label = format!("{}-{}-{run}", kind.place.name(), system.name());
        let folder = context.folder(kind.part).join(label);
        let number = context.next_number();
        let mut stage = {
            // The daemons keep as many messages as the clients: all, or their default of ten.
            let keeps_all = kind.quality.depth == 0;
            let topic = if keeps_all { "when_slow: queue" } else { "priority: 100" };
            Stage::with_topic(system, kind.place, number, &context.daemons, folder, topic)?
        };
        if kind.subscribers == 1 {
            // The subscriber is up first.
            stage.zenoh_listens = Side::To;
        }
        Ok(Self { system, stage, subscribers: Vec::new(), publisher: None })
    }

    fn subscribe(&mut self, kind: &Kind) -> Result<()> {
        self.stage.await_ready()?;
        for number in 0..kind.subscribers {
            let start = Start::for_role(Role::Subscribe, kind.quality);
            let probe = Probe::start(&self.stage, start, &format!("subscriber-{number}"))?;
            self.subscribers.push(probe);
        }
        Ok(())
    }

    /// Starts the publisher; with `warm`, it publishes uncounted messages.
    pub fn advertise(&mut self, kind: &Kind, warm: bool) -> Result<()> {
        let start = Start { warm, ..Start::for_role(Role::Publish, kind.quality) };
        self.publisher = Some(Probe::start(&self.stage, start, "publisher")?);
        Ok(())
    }

    fn await_first(&mut self) -> Result<()> {
        self.publisher()?.await_ready()?;
        self.subscribers.iter_mut().try_for_each(Probe::await_first)
    }

    /// Returns the publisher.
    pub fn publisher(&mut self) -> Result<&mut Probe> {
        self.publisher.as_mut().context("no publisher")
    }

    /// Ends the programs.
    pub fn end(self) -> Result<()> {
        drop((self.publisher, self.subscribers));
        self.stage.end()
    }
}

/// Starts systems until their subscribers are ready. A system that fails is recorded and omitted.
pub fn subscribed(
    context: &Context,
    kind: &Kind,
    systems: &[System],
    run: &str,
    failures: &mut Vec<Failure>,
) -> Vec<Hop> {
    let start = |system: &System| (*system, Hop::start(context, kind, *system, run));
    let started: Vec<_> = systems.iter().map(start).collect();
    let mut hops = Vec::new();
    for (system, hop) in started {
        let subscribe = |mut hop: Hop| hop.subscribe(kind).map(|()| hop);
        match hop.and_then(subscribe) {
            Ok(hop) => hops.push(hop),
            Err(error) => failures.push(kind.failure(system, &error)),
        }
    }
    successful_hops(hops, kind, failures, |hop| {
        hop.subscribers.iter_mut().try_for_each(|it| it.await_ready().map(drop))
    })
}

/// Starts systems until their first uncounted message has reached every subscriber.
pub fn connected(
    context: &Context,
    kind: &Kind,
    systems: &[System],
    failures: &mut Vec<Failure>,
) -> Vec<Hop> {
    let hops = subscribed(context, kind, systems, "run", failures);
    let hops = successful_hops(hops, kind, failures, |hop| hop.advertise(kind, true));
    successful_hops(hops, kind, failures, Hop::await_first)
}

/// Applies a function to every hop, and omits hops for which it fails.
fn successful_hops(
    hops: Vec<Hop>,
    kind: &Kind,
    failures: &mut Vec<Failure>,
    mut act: impl FnMut(&mut Hop) -> Result<()>,
) -> Vec<Hop> {
    let mut kept = Vec::new();
    for mut hop in hops {
        match act(&mut hop) {
            Ok(()) => kept.push(hop),
            Err(error) => failures.push(kind.failure(hop.system, &error)),
        }
    }
    kept
}
