// SPDX-License-Identifier: Apache-2.0
//! Delay by message size, place and quality of service.

use super::probe::Quality;
use super::series::{Cell, Group, Variant, duration};
use super::stage::Place;
use super::system::System;
use super::{Context, Part, Step, step};
use anyhow::Result;

/// Sizes of the paper in bytes; its 1K is 1000 bytes.
pub const SIZES: [usize; 15] = [
    256, 512, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000,
    2_000_000, 4_000_000,
];
/// Fewer sizes, for places whose curve is similar to others.
const FEWER_SIZES: [usize; 8] =
    [256, 1000, 16_000, 64_000, 256_000, 1_000_000, 2_000_000, 4_000_000];
const QOS_SIZES: [usize; 5] = [256, 64_000, 256_000, 1_000_000, 4_000_000];
const QUICK_SIZES: [usize; 4] = [1000, 64_000, 1_000_000, 4_000_000];
/// Counted messages of each size, as many as in the paper.
const MESSAGES: u64 = 100;
/// Counted messages of each size in quick runs.
const QUICK_MESSAGES: u64 = 10;
/// All systems, in the order in which groups are formed: a direct system runs together with Tautline
/// between the same programs.
const ORDER: [System; 10] = [
    System::Rospy,
    System::RclpyUdp,
    System::Tautline11,
    System::Tautline22,
    System::Roscpp,
    System::RclpyShm,
    System::Cyclone,
    System::Zenoh,
    System::Tautline12,
    System::Tautline21,
];
/// Number of systems in a group, which run at the same time.
const TOGETHER: usize = 5;
/// Deadline of the paper's QoS, ms.
const DEADLINE_MS: u32 = 100;

const PLACES: [Place; 4] = [Place::InProcess, Place::Local, Place::Wire, Place::Unlimited];

/// Variants that run together, with their sizes.
struct Plan {
    variants: Vec<Variant>,
    sizes: Vec<usize>,
    title: String,
}

fn messages(context: &Context) -> u64 {
    if context.quick { QUICK_MESSAGES } else { MESSAGES }
}

fn plans(context: &Context) -> Vec<Plan> {
    places(context).flat_map(|place| plans_at(context, place)).collect()
}

/// Returns the places to measure: the requested ones, or all.
fn places(context: &Context) -> impl Iterator<Item = Place> {
    let wanted = |place: &Place| context.places.is_empty() || context.places.contains(place);
    PLACES.into_iter().filter(wanted)
}

/// Whether a system has a case at a place.
fn fits(system: System, place: Place) -> bool {
    match place {
        Place::InProcess => system.has_in_process(),
        Place::Local => true,
        Place::Wire | Place::Unlimited => system.is_networked(),
    }
}

fn plans_at(context: &Context, place: Place) -> Vec<Plan> {
    let here = systems_at(context, place);
    let wanted = |system: &System| here.contains(system) && fits(*system, place);
    let variants: Vec<Variant> =
        ORDER.into_iter().filter(wanted).map(|system| Variant::new(system, place)).collect();
    let plan = |variants: &[Variant]| Plan {
        variants: variants.to_vec(),
        sizes: sizes(context, place),
        title: place.title().into(),
    };
    variants.chunks(TOGETHER).map(plan).collect()
}

/// Returns the systems that are measured or reported as unsupported at a place.
fn systems_at(context: &Context, place: Place) -> Vec<System> {
    match (context.quick, place) {
        (true, Place::Unlimited) if context.places.is_empty() => Vec::new(),
        (true, Place::Wire) => context.few_in_quick(),
        _ => context.systems.clone(),
    }
}

fn sizes(context: &Context, place: Place) -> Vec<usize> {
    if !context.sizes.is_empty() {
        return context.sizes.clone();
    }
    match (context.quick, place) {
        (true, Place::Wire) => vec![1000, 64_000, 1_000_000],
        (true, _) => QUICK_SIZES.into(),
        (false, Place::Local | Place::Wire) => SIZES.into(),
        (false, _) => FEWER_SIZES.into(),
    }
}

/// The paper's three qualities of service, the last with three depths.
pub fn qualities() -> [(&'static str, Quality); 5] {
    let depth =
        |depth| Quality { reliable: true, transient_local: true, depth, deadline_ms: DEADLINE_MS };
    let best_effort =
        Quality { reliable: false, transient_local: false, depth: 1, deadline_ms: DEADLINE_MS };
    [
        ("reliable", depth(0)),
        ("best effort", best_effort),
        ("depth 1", depth(1)),
        ("depth 10", depth(10)),
        ("depth 100", depth(100)),
    ]
}

/// Returns one plan per DDS: its qualities run together.
fn qos_plans(context: &Context) -> Vec<Plan> {
    let systems = [System::RclpyUdp, System::RclpyShm, System::Cyclone];
    let taken = if context.quick { 1 } else { systems.len() };
    let wanted = systems.into_iter().filter(|it| context.systems.contains(it) && it.is_dds());
    let variant = |system, (name, quality): (&str, Quality)| Variant {
        name: name.into(),
        quality,
        ..Variant::new(system, Place::Local)
    };
    let plan = |system| Plan {
        variants: qualities().map(|it| variant(system, it)).into(),
        sizes: if context.quick { vec![256, 1_000_000] } else { QOS_SIZES.into() },
        title: system_title(system),
    };
    wanted.take(taken).map(plan).collect()
}

fn system_title(system: System) -> String {
    format!("{}, local", system.title())
}

fn steps_of(part: Part, plans: &[Plan], messages: u64) -> Vec<Step> {
    let one = |plan: &Plan| {
        (step(part, &plan.title), duration(plan.variants.len(), &plan.sizes, messages))
    };
    plans.iter().map(one).collect()
}

/// Returns the steps of [`run`].
pub fn steps(context: &Context) -> Vec<Step> {
    steps_of(Part::Latency, &plans(context), messages(context))
}

/// Returns the steps of [`run_qos`].
pub fn qos_steps(context: &Context) -> Vec<Step> {
    steps_of(Part::Qos, &qos_plans(context), messages(context))
}

/// Measures all systems at all places.
pub fn run(context: &Context) -> Result<Vec<Cell>> {
    let mut cells = run_plans(context, &plans(context), "latency")?;
    for place in places(context) {
        let not_there = |system: &System| !fits(*system, place);
        for system in systems_at(context, place).into_iter().filter(not_there) {
            let variant = Variant::new(system, place);
            cells.extend(sizes(context, place).into_iter().map(|bytes| variant.unsupported(bytes)));
        }
    }
    Ok(cells)
}

/// Measures the qualities of service of each DDS.
pub fn run_qos(context: &Context) -> Result<Vec<Cell>> {
    run_plans(context, &qos_plans(context), "qos")
}

fn run_plans(context: &Context, plans: &[Plan], part: &str) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for plan in plans {
        context.progress.enter_next();
        let mut group = Group::start(&plan.variants, context, part)?;
        cells.extend(group.run(&plan.sizes, messages(context)));
        group.end()?;
    }
    let order = |cell: &Cell| (cell.place, cell.system, cell.bytes);
    cells.sort_by_key(order);
    Ok(cells)
}
