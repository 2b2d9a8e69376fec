// SPDX-License-Identifier: Apache-2.0
//! The columns of peers.

use super::column::{Column, Columns, Value};
use crate::status::PeerReport;
use Value::{Bytes, Count, Flag, Milliseconds, Number, Text, Unknown};

/// `top` shows peers in its second line, without rates, so the type of the rates is `()`.
type Peer = Column<PeerReport, ()>;

/// The columns of peers.
pub const PEERS: Columns<PeerReport, ()> = Columns(&[
    Peer::new("Name", |peer| Text(peer.now.name.clone())).in_status(10, "NAME"),
    Peer::new("State in a word", |peer| Text(peer.now.state.clone())).in_status(20, "STATE"),
    Peer::new("1 if the peer is up", |peer| Flag(peer.now.state == "up"))
        .gauge(10, "tautline_peer_up"),
    Peer::new("Messages queued for the peer", |peer| Count(peer.now.queued_messages))
        .in_status(30, "QUEUED")
        .gauge(30, "tautline_peer_queued_messages")
        .in_diagnostics(10, "messages waiting"),
    Peer::new("Bytes queued for the peer", |peer| Bytes(peer.now.queued_bytes))
        .in_status(40, "BYTES")
        .gauge(20, "tautline_peer_queued_bytes")
        .in_diagnostics(20, "bytes waiting"),
    Peer::new("Offset of its clock from the clock here, and the maximum error", |peer| {
        peer.now.clock.as_ref().map_or(Unknown, |clock| Text(clock.in_words()))
    })
    .in_status(50, "CLOCK ms"),
    Peer::new("Time of day at the peer minus the time of day here", |peer| {
        Value::if_known(peer.now.clock.as_ref().and_then(|clock| clock.offset_ms), Milliseconds)
    })
    .gauge(40, "tautline_peer_clock_offset_seconds"),
    Peer::new("Maximum error of the clock offset and of one-way delays", |peer| {
        Value::if_known(peer.now.clock.as_ref().map(|clock| clock.bound_ms), Milliseconds)
    })
    .gauge(50, "tautline_peer_clock_bound_seconds"),
    Peer::new("Drift of the peer's clock, positive if it runs faster", |peer| {
        Value::if_known(peer.now.clock.as_ref().and_then(|clock| clock.drift_ppm), Number)
    })
    .gauge(60, "tautline_peer_clock_drift_ppm"),
    Peer::new("Packets of other nodes for the peer, forwarded and dropped", |peer| {
        Value::Passed(peer.now.relayed_packets, peer.now.relayed_dropped.clone())
    })
    .in_status(60, "FORWARDED"),
    Peer::new("Packets of other nodes that were forwarded to the peer", |peer| {
        Count(peer.now.relayed_packets)
    })
    .counter(70, "tautline_peer_relayed_packets"),
]);
