// SPDX-License-Identifier: Apache-2.0
//! The columns of links.

use super::column::Width::{Either, Fixed, Flexible};
use super::column::{Cell, Column, Columns, ReportWithRates, Tone, Value};
use crate::rates::LinkRates;
use crate::status::LinkReport;
use Value::{Absent, Address, BitRate, Bytes, Count, Flag, Milliseconds, Share, Text, Unknown};

type Link = Column<LinkReport, LinkRates>;
type Row<'r, 's> = &'r ReportWithRates<'s, LinkReport, LinkRates>;

/// The columns of links.
pub const LINKS: Columns<LinkReport, LinkRates> = Columns(&[
    Link::new("The other node", |link| Text(link.now.peer.clone()))
        .in_status(10, "PEER")
        .cell(10, Cell::left_aligned("LINK", Flexible(2)))
        .for_programs(10, "peer"),
    Link::new("Name of the link in the file", |link| Text(link.now.name.clone()))
        .in_status(20, "LINK")
        .cell(140, Cell::left_aligned("NAME", Fixed(8)).only_wide())
        .in_diagnostics(10, "name")
        .for_programs(20, "link"),
    Link::new("The radio that sends its packets", |link| Text(link.now.radio.clone()))
        .in_status(30, "RADIO")
        .cell(20, Cell::left_aligned("RADIO", Fixed(8)))
        .for_programs(30, "radio"),
    Link::new("Remote address", |link| Address(link.now.remote.clone()))
        .in_status(40, "REMOTE")
        .cell(30, Cell { keeps_end: true, ..Cell::left_aligned("REMOTE", Flexible(3)) }),
    Link::new("The radio and the remote address", radio_and_remote).in_diagnostics(30, "leads"),
    Link::new("What lies between the two ends", |link| Text(link.now.path.clone()))
        .in_status(50, "PATH")
        .cell(130, Cell::left_aligned("PATH", Fixed(9)).only_wide()),
    Link::new("State in a word", |link| Text(link.now.state.clone()))
        .in_status(60, "STATE")
        .cell(40, Cell::left_aligned("", Either(4, 7)))
        .tone(|link| match link.now.up && !link.now.stalled && !link.now.silent {
            true => Tone::Normal,
            false => Tone::Fault,
        })
        .in_diagnostics(20, "is"),
    Link::new("1 if packets arrive", |link| Flag(link.now.up))
        .gauge(120, "tautline_link_up")
        .for_programs(40, "up"),
    Link::new(
        "1 if packets are stuck in the driver, so that other links carry the messages",
        |link| Flag(link.now.stalled),
    )
    .gauge(130, "tautline_link_stalled")
    .for_programs(50, "stalled"),
    Link::new(
        "1 if another link of the peer carries the messages: a direct path instead of a relay, or a relay \
         during the trial of a direct path",
        |link| Flag(link.now.state == "standby"),
    )
    .gauge(140, "tautline_link_standby"),
    Link::new("1 if the peer acknowledges nothing", |link| Flag(link.now.silent))
        .gauge(150, "tautline_link_silent"),
    Link::new("Smoothed round-trip time", |link| Value::if_known(link.now.rtt_ms, Milliseconds))
        .in_status(70, "RTT ms")
        .cell(50, Cell::right_aligned("RTT ms", 6))
        .gauge(170, "tautline_link_rtt_seconds")
        .in_diagnostics(40, "round trip (ms)")
        .for_programs(100, "rtt_s"),
    Link::new("Loss since the last interruption, and since the start", losses).in_status(80, "LOSS"),
    Link::new("Fraction of packets lost, smoothed over 64 packets, 0 to 1", |link| {
        Share(link.now.loss)
    })
    .gauge(160, "tautline_link_loss_ratio"),
    Link::new("Fraction of packets lost in the interval", |link| link.change(|it| it.loss, Share))
    .cell(60, Cell::right_aligned("LOSS", 6))
    .in_diagnostics(50, "loss (%)"),
    // Without an earlier snapshot, this would be the loss since the start.
    Link::new("Fraction of packets lost in an interval that has begun", |link| {
        link.change(|it| it.loss.filter(|_| it.sent_bps.is_some()), Share)
    })
    .for_programs(90, "loss"),
    Link::new("Largest IP packet that the path carries, and how this is known", mtu)
        .in_status(90, "MTU"),
    Link::new("Largest IP packet that the path carries", |link| Bytes(link.now.mtu))
        .gauge(210, "tautline_link_mtu_bytes"),
    Link::new("1 if larger packets used to arrive and do not any more", |link| {
        Flag(link.now.mtu_known_by == "black hole")
    })
    .gauge(220, "tautline_link_black_hole"),
    Link::new("1 while probes look for a larger MTU", |link| {
        Flag(link.now.mtu_known_by == "searching")
    })
    .gauge(230, "tautline_link_mtu_searching"),
    Link::new("Available rate, bits per second of IP packets", |link| Value::bit_rate(link.now.available_bps))
    .in_status(100, "CAN SEND")
    .cell(70, Cell::right_aligned("CAN SEND", 8))
    .gauge(180, "tautline_link_available_bps")
    .in_diagnostics(60, "can send (bit/s)"),
    Link::new("Available rate, 0 while the link is down", |link| {
        let available_bps = if link.now.up { link.now.available_bps } else { Some(0) };
        Value::bit_rate(available_bps)
    })
    .for_programs(60, "available_bps"),
    Link::new("The signal that held packets back last", |link| Text(link.now.paced_by.clone()))
        .in_status(110, "PACED BY")
        .cell(120, Cell::left_aligned("PACED BY", Fixed(13)).only_wide())
        .in_diagnostics(70, "paced by")
        .for_programs(70, "paced_by"),
    Link::new("IP bytes sent", |link| Bytes(link.now.sent_bytes))
        .in_status(120, "SENT")
        .counter(60, "tautline_link_sent_bytes"),
    Link::new("IP bits sent per second", |link| link.change(|it| it.sent_bps, BitRate))
    .cell(80, Cell::right_aligned("SENDS", 8))
    .in_diagnostics(80, "sends (bit/s)")
    .for_programs(80, "sent_bps"),
    Link::new("IP bytes received", |link| Bytes(link.now.received_bytes))
        .in_status(130, "RECEIVED")
        .counter(100, "tautline_link_received_bytes"),
    Link::new("IP bits received per second", |link| link.change(|it| it.received_bps, BitRate))
    .cell(90, Cell::right_aligned("RECEIVES", 8))
    .in_diagnostics(90, "gets (bit/s)"),
    Link::new("Bytes of repairs among the bytes sent", |link| Bytes(link.now.repair_bytes))
        .in_status(140, "REPAIRS")
        .counter(70, "tautline_link_repair_bytes"),
    Link::new("Repairs as a fraction of the bytes sent in the interval", |link| link.change(|it| it.repairs, Share))
    .cell(110, Cell::right_aligned("REPAIRS", 7).only_wide()),
    Link::new("Packets received twice", |link| Count(link.now.duplicate_packets))
        .in_status(150, "TWICE")
        .counter(110, "tautline_link_duplicate_packets"),
    Link::new("Used part of the budget", budget).in_diagnostics(100, "budget"),
    Link::new("IP bytes of the budget that are used in the current period, of those allowed", |link| {
        let budget = link.now.budget.as_ref();
        budget.map_or(Absent, |it| Value::UsedBytes(it.used_bytes, it.total_bytes))
    })
    .cell(100, BUDGET_CELL)
    .tone(|link| match link.now.budget.as_ref().is_some_and(|budget| budget.spent) {
        true => Tone::Fault,
        false => Tone::Normal,
    }),
    Link::new("IP bytes that the link's budget allows in a period", |link| {
        link.now.budget.as_ref().map_or(Absent, |budget| Bytes(budget.total_bytes))
    })
    .gauge(190, "tautline_link_budget_bytes"),
    Link::new("IP bytes of the budget that are used in the current period", |link| {
        link.now.budget.as_ref().map_or(Absent, |budget| Bytes(budget.used_bytes))
    })
    .gauge(200, "tautline_link_budget_used_bytes"),
    Link::new("Packets sent", |link| Count(link.now.sent_packets))
        .counter(10, "tautline_link_sent_packets"),
    Link::new("Packets acknowledged by the peer", |link| Count(link.now.acked_packets))
        .counter(20, "tautline_link_acked_packets"),
    Link::new("Packets that were declared lost", |link| Count(link.now.lost_packets))
        .counter(30, "tautline_link_lost_packets"),
    Link::new("Packets that were declared lost and arrived after all", |link| {
        Count(link.now.late_packets)
    })
    .counter(40, "tautline_link_late_packets"),
    Link::new("Packets that the path marked for congestion (ECN)", |link| {
        Count(link.now.marked_packets)
    })
    .counter(50, "tautline_link_marked_packets"),
    Link::new(
        "Bytes among the bytes sent that were sent again before a loss was known",
        |link| Bytes(link.now.redundant_bytes),
    )
    .counter(80, "tautline_link_redundant_bytes"),
    Link::new("Packets received", |link| Count(link.now.received_packets))
        .counter(90, "tautline_link_received_packets"),
]);

/// The cell of a budget. Narrow terminals show only the percentage used.
const BUDGET_CELL: Cell = {
    let narrow = Cell { hide_if_empty: true, ..Cell::right_aligned("BUDGET", 6) };
    Cell { wide: Fixed(13), ..narrow }
};

fn radio_and_remote(link: Row) -> Value {
    let remote = if link.now.remote.is_empty() { "-" } else { &link.now.remote };
    Text(format!("by {} to {remote}", link.now.radio))
}

/// Returns the loss since the last interruption, and the loss since the start. Losses during the
/// interruption say nothing about a link that has worked since then.
fn losses(link: Row) -> Value {
    let lost = link.now.lost_packets.saturating_sub(link.now.late_packets);
    let outcomes = link.now.acked_packets + lost;
    let total = (outcomes > 0).then(|| lost as f64 / outcomes as f64);
    let total = Value::if_known(total, Share);
    match &link.now.steady {
        Some(steady) => {
            let steady = Value::if_known(steady.loss(), Share);
            Value::NowAndTotal(Box::new(steady), Box::new(total))
        }
        None => total,
    }
}

/// Returns the MTU of the path, followed by a word if the MTU differs from what the interface or the
/// file allows.
fn mtu(link: Row) -> Value {
    match link.now.mtu_known_by.as_str() {
        _ if !link.now.up => Unknown,
        "interface" | "configured" | "relay" | "" => Text(link.now.mtu.to_string()),
        known_by => Text(format!("{} {known_by}", link.now.mtu)),
    }
}

fn budget(link: Row) -> Value {
    link.now.budget.as_ref().map_or(Absent, |budget| Text(budget.in_words()))
}
