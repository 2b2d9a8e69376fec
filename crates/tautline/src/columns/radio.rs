// SPDX-License-Identifier: Apache-2.0
//! The columns of radios.

use super::column::Width::{Fixed, Flexible};
use super::column::{Cell, Column, Columns, Value};
use crate::rates::RadioRates;
use crate::status::RadioReport;
use Value::{BitRate, Bytes, Count, Number, PartOfBytes, Text};

type Radio = Column<RadioReport, RadioRates>;

/// The columns of radios.
pub const RADIOS: Columns<RadioReport, RadioRates> = Columns(&[
    Radio::new("Interface name", |radio| Text(radio.now.radio.clone()))
        .in_status(10, "RADIO")
        .cell(10, Cell::left_aligned("RADIO", Flexible(2))),
    Radio::new("The signal that paces the radio", |radio| Text(radio.now.paced_by.clone()))
        .in_status(20, "PACED BY")
        .cell(20, Cell::left_aligned("PACED BY", Fixed(13)))
        .in_diagnostics(10, "paced by"),
    Radio::new("Configured rate, bits per second", |radio| {
        Value::bit_rate(radio.now.configured_bps)
    })
    .in_status(30, "CONFIGURED")
    .cell(30, Cell::right_aligned("CONFIGURED", 10))
    .gauge(30, "tautline_radio_configured_bps")
    .in_diagnostics(20, "configured (bit/s)"),
    Radio::new("Measured rate, bits per second", |radio| Value::bit_rate(radio.now.measured_bps))
        .in_status(40, "MEASURED")
        .cell(40, Cell::right_aligned("MEASURED", 8))
        .gauge(40, "tautline_radio_measured_bps")
        .in_diagnostics(30, "measured (bit/s)"),
    Radio::new("Bytes in the kernel, of the maximum", |radio| {
        PartOfBytes(radio.now.in_flight_bytes, radio.now.in_flight_limit_bytes)
    })
    .in_status(50, "IN FLIGHT")
    .cell(50, Cell::right_aligned("IN FLIGHT", 13)),
    Radio::new("Bytes in the kernel", |radio| Bytes(radio.now.in_flight_bytes))
        .gauge(50, "tautline_radio_in_flight_bytes")
        .in_diagnostics(40, "in the kernel (bytes)"),
    Radio::new("Maximum bytes in the kernel", |radio| Bytes(radio.now.in_flight_limit_bytes))
        .gauge(60, "tautline_radio_in_flight_limit_bytes")
        .in_diagnostics(50, "may be in the kernel (bytes)"),
    Radio::new("IP bytes sent", |radio| Bytes(radio.now.sent_bytes))
        .in_status(60, "SENT")
        .counter(10, "tautline_radio_sent_bytes"),
    Radio::new("IP bits sent per second", |radio| radio.change(|it| it.sent_bps, BitRate))
        .cell(60, Cell::right_aligned("SENDS", 8))
        .in_diagnostics(60, "sends (bit/s)"),
    Radio::new("Packets sent", |radio| Count(radio.now.sent_packets))
        .in_status(70, "PACKETS")
        .counter(20, "tautline_radio_sent_packets"),
    Radio::new("Packets sent per second", |radio| radio.change(|it| it.sent_pps, Number))
        .cell(70, Cell::right_aligned("PACKETS/s", 9))
        .in_diagnostics(70, "sends (packets/s)"),
]);
