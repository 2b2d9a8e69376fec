// SPDX-License-Identifier: Apache-2.0
//! A radio as people write it: `wifi:6Mbps`, `line:2Mbps,delay=40ms,loss=1%`.

use super::units;
use std::time::Duration;

/// What the planner assumes about a radio.
#[derive(Debug, Clone, PartialEq)]
pub enum Channel {
    /// An 802.11 channel that all stations share.
    Wifi(WifiChannel),
    /// A line without contention.
    Line(LineChannel),
}

/// An 802.11 channel.
#[derive(Debug, Clone, PartialEq)]
pub struct WifiChannel {
    /// Fixed bit rate, one of [`OFDM_BPS`] or [`DSSS_BPS`].
    pub bps: u64,
    /// Whether it has access categories (WMM).
    pub has_wmm: bool,
    /// Fraction of packets that are lost after all attempts.
    pub loss: f64,
}

/// A line that each robot has to itself, or that all robots share.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChannel {
    /// Bit rate.
    pub bps: u64,
    /// Delay of each packet, in addition to its serialization time.
    pub delay: Duration,
    /// Fraction of packets that are lost.
    pub loss: f64,
    /// Whether all robots share the line, in both directions.
    pub is_shared: bool,
}

/// Bit rates of 802.11a and g.
pub const OFDM_BPS: [u64; 8] =
    [6_000_000, 9_000_000, 12_000_000, 18_000_000, 24_000_000, 36_000_000, 48_000_000, 54_000_000];
/// Bit rates of 802.11b.
pub const DSSS_BPS: [u64; 4] = [1_000_000, 2_000_000, 5_500_000, 11_000_000];

impl Channel {
    /// Fraction of packets lost after all attempts.
    pub fn loss(&self) -> f64 {
        match self {
            Self::Wifi(wifi) => wifi.loss,
            Self::Line(line) => line.loss,
        }
    }

    /// Whether packets of all robots, in both directions, share the channel.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Wifi(_) => true,
            Self::Line(line) => line.is_shared,
        }
    }
}

/// The allowed values.
pub const FORMS: &str =
    "wifi:RATE[,dcf][,loss=SHARE] or line:RATE[,delay=TIME][,loss=SHARE][,shared]";

/// The allowed values as a regular expression, for JSON Schema.
pub const PATTERN: &str = "^(wifi|line):[0-9]+([.][0-9]*)? *(bps|kbps|Mbps|Gbps)(,.*)?$";

/// The reason why a text does not describe a radio.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChannelError {
    /// No kind before the rate.
    #[error("no kind before the rate; allowed are {FORMS}")]
    NoKind,
    /// An unknown kind.
    #[error("'{0}' is no kind; allowed are {FORMS}")]
    Kind(String),
    /// The rate is missing or is not a bit rate.
    #[error("'{0}' is no rate; allowed is 6Mbps, for example")]
    Rate(String),
    /// A bit rate that 802.11 does not have.
    #[error(
        "{} Mbps is no rate of 802.11; allowed are {} (a, g) and {} (b) Mbps",
        in_mbps(std::slice::from_ref(.0)), in_mbps(&OFDM_BPS), in_mbps(&DSSS_BPS)
    )]
    WifiRate(u64),
    /// An option that this kind of radio does not have: the option, and the kind in words.
    #[error("'{0}' is no option of {1}; allowed are {FORMS}")]
    Option(String, &'static str),
    /// Not a delay.
    #[error("'{0}' is no delay; allowed is 40ms, for example")]
    Delay(String),
    /// A loss that is not a fraction, or is too large.
    #[error("loss '{0}' is out of range; allowed are 0% to 90%")]
    Loss(String),
}

fn in_mbps(rates_bps: &[u64]) -> String {
    let rates: Vec<String> = rates_bps.iter().map(|bps| (*bps as f64 / 1e6).to_string()).collect();
    rates.join(", ")
}

/// Parses a radio.
pub fn parse(text: &str) -> Result<Channel, ChannelError> {
    let (kind, rest) = text.split_once(':').ok_or(ChannelError::NoKind)?;
    let mut parts = rest.split(',').map(str::trim);
    let rate = parts.next().unwrap_or_default();
    let bps = units::bit_rate(rate).filter(|it| *it > 0);
    let bps = bps.ok_or_else(|| ChannelError::Rate(rate.into()))?;
    let options: Vec<&str> = parts.collect();
    match kind {
        "wifi" => wifi(bps, &options).map(Channel::Wifi),
        "line" => line(bps, &options).map(Channel::Line),
        _ => Err(ChannelError::Kind(kind.into())),
    }
}

fn wifi(bps: u64, options: &[&str]) -> Result<WifiChannel, ChannelError> {
    if !OFDM_BPS.contains(&bps) && !DSSS_BPS.contains(&bps) {
        return Err(ChannelError::WifiRate(bps));
    }
    let mut config = WifiChannel { bps, has_wmm: true, loss: 0.0 };
    for option in options {
        match option.split_once('=') {
            None if *option == "dcf" => config.has_wmm = false,
            Some(("loss", value)) => config.loss = loss(value)?,
            _ => return Err(ChannelError::Option((*option).into(), "wifi")),
        }
    }
    Ok(config)
}

fn line(bps: u64, options: &[&str]) -> Result<LineChannel, ChannelError> {
    let mut config = LineChannel { bps, delay: Duration::ZERO, loss: 0.0, is_shared: false };
    for option in options {
        match option.split_once('=') {
            None if *option == "shared" => config.is_shared = true,
            Some(("loss", value)) => config.loss = loss(value)?,
            Some(("delay", value)) => {
                let delay = units::duration(value);
                config.delay = delay.ok_or_else(|| ChannelError::Delay(value.into()))?;
            }
            _ => return Err(ChannelError::Option((*option).into(), "a line")),
        }
    }
    Ok(config)
}

fn loss(value: &str) -> Result<f64, ChannelError> {
    let share = units::quantity(value, units::SHARE_UNITS).filter(|it| (0.0..=0.9).contains(it));
    share.ok_or_else(|| ChannelError::Loss(value.into()))
}

/// Describes a radio.
pub fn words(channel: &Channel) -> String {
    let rate = |bps: u64| format!("{} Mbps", bps as f64 / 1e6);
    let lost = |loss: f64| match loss > 0.0 {
        true => format!(", {} % of packets lost", loss * 100.0),
        false => String::new(),
    };
    match channel {
        Channel::Wifi(wifi) => {
            let access = if wifi.has_wmm { "WMM" } else { "no WMM" };
            format!("802.11 at {}, {access}{}", rate(wifi.bps), lost(wifi.loss))
        }
        Channel::Line(line) => {
            let kind = if line.is_shared { "a shared line" } else { "a line for each robot" };
            let delay = line.delay.as_nanos() as f64 / 1e6;
            format!("{kind} of {}, {delay} ms{}", rate(line.bps), lost(line.loss))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radios_are_read_as_they_are_written() {
        for (text, expected) in [
            ("wifi:6Mbps", "802.11 at 6 Mbps, WMM"),
            ("wifi:11Mbps,dcf,loss=5%", "802.11 at 11 Mbps, no WMM, 5 % of packets lost"),
            (
                "line:2Mbps,delay=40ms,loss=1%",
                "a line for each robot of 2 Mbps, 40 ms, 1 % of packets lost",
            ),
            ("line:1500kbps,shared", "a shared line of 1.5 Mbps, 0 ms"),
        ] {
            assert_eq!(parse(text).map(|it| words(&it)), Ok(expected.into()));
        }
    }

    #[test]
    fn wrong_radios_name_what_was_found_and_what_is_allowed() {
        for (text, found) in [
            ("6Mbps", "no kind before the rate"),
            ("lora:6Mbps", "'lora' is no kind"),
            ("wifi:7Mbps", "7 Mbps is no rate of 802.11; allowed are 6, 9, 12"),
            ("wifi:fast", "'fast' is no rate"),
            ("wifi:0Mbps", "'0Mbps' is no rate"),
            ("wifi:6Mbps,delay=3ms", "'delay=3ms' is no option of wifi"),
            ("line:1Mbps,loss=95%", "loss '95%' is out of range"),
            ("line:1Mbps,delay=3", "'3' is no delay"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }
}
