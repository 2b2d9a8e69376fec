// SPDX-License-Identifier: Apache-2.0
//! A radio as people write it: `wifi:6Mbps`, `line:2Mbps,delay=40ms,loss=1%`.

use super::Channel;
use crate::config::units;
use tautline_medium::{Access, Loss, Phy, PipeConfig, RateControl, Trial, WifiConfig};

/// What is allowed.
pub const FORMS: &str =
    "wifi:RATE[,dcf][,loss=SHARE] or line:RATE[,delay=TIME][,loss=SHARE][,shared]";

/// The same for JSON Schema.
pub const PATTERN: &str = "^(wifi|line):[0-9]+([.][0-9]*)? *(bps|kbps|Mbps|Gbps)(,.*)?$";

/// Parses a radio; the error names what was found and what is allowed.
pub fn parse(text: &str) -> Result<Channel, String> {
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("no kind before the rate; allowed are {FORMS}"))?;
    let mut parts = rest.split(',').map(str::trim);
    let rate = parts.next().unwrap_or_default();
    let bps = units::bit_rate(rate).filter(|it| *it > 0);
    let bps = bps.ok_or_else(|| format!("'{rate}' is no rate; allowed is 6Mbps, for example"))?;
    let options: Vec<&str> = parts.collect();
    match kind {
        "wifi" => wifi(bps, &options).map(Channel::Wifi),
        "line" => line(bps, &options).map(Channel::Pipe),
        _ => Err(format!("'{kind}' is no kind; allowed are {FORMS}")),
    }
}

fn wifi(bps: u64, options: &[&str]) -> Result<WifiConfig, String> {
    let has = |phy: &Phy| phy.rates().iter().any(|it| it.bps == bps);
    let Some(phy) = [Phy::Ofdm, Phy::Dsss].into_iter().find(has) else {
        let rates = |phy: Phy| {
            let all: Vec<String> =
                phy.rates().iter().map(|it| format!("{}", it.bps as f64 / 1e6)).collect();
            all.join(", ")
        };
        return Err(format!(
            "{} Mbps is no rate of 802.11; allowed are {} (a, g) and {} (b) Mbps",
            bps as f64 / 1e6,
            rates(Phy::Ofdm),
            rates(Phy::Dsss)
        ));
    };
    let rate = RateControl::Fixed(bps);
    // A loss that `status` shows is one after all attempts.
    let trial = Trial::Frame;
    let mut config = WifiConfig { phy, rate, access: Access::Edca, trial, ..WifiConfig::default() };
    for option in options {
        match option.split_once('=') {
            None if *option == "dcf" => config.access = Access::Dcf,
            Some(("loss", value)) => config.loss = loss(value)?,
            _ => return Err(format!("'{option}' is no option of wifi; allowed are {FORMS}")),
        }
    }
    Ok(config)
}

fn line(bps: u64, options: &[&str]) -> Result<PipeConfig, String> {
    let mut config = PipeConfig { rate_bps: bps, ..PipeConfig::default() };
    for option in options {
        match option.split_once('=') {
            None if *option == "shared" => config.half_duplex = true,
            Some(("loss", value)) => config.loss = loss(value)?,
            Some(("delay", value)) => {
                let delay = units::duration(value);
                let delay = delay.ok_or_else(|| {
                    format!("'{value}' is no delay; allowed is 40ms, for example")
                })?;
                config.delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            }
            _ => return Err(format!("'{option}' is no option of a line; allowed are {FORMS}")),
        }
    }
    Ok(config)
}

fn loss(value: &str) -> Result<Loss, String> {
    let share = units::quantity(value, units::SHARE_UNITS).filter(|it| (0.0..=0.9).contains(it));
    let probability =
        share.ok_or_else(|| format!("loss '{value}' is out of range; allowed are 0% to 90%"))?;
    Ok(Loss::Uniform { probability })
}

/// Describes a radio.
pub fn words(channel: &Channel) -> String {
    let rate = |bps: u64| format!("{} Mbps", bps as f64 / 1e6);
    let lost = |loss: Loss| match loss {
        Loss::Uniform { probability } if probability > 0.0 => {
            format!(", {} % of packets lost", probability * 100.0)
        }
        _ => String::new(),
    };
    match channel {
        Channel::Wifi(wifi) => {
            let access = if wifi.access == Access::Edca { "WMM" } else { "no WMM" };
            let bps = if let RateControl::Fixed(bps) = wifi.rate {
                rate(bps)
            } else {
                "adaptive rate".into()
            };
            format!("802.11 at {bps}, {access}{}", lost(wifi.loss))
        }
        Channel::Pipe(pipe) => {
            let kind = if pipe.half_duplex { "a shared line" } else { "a line for each robot" };
            let delay = pipe.delay as f64 / 1e6;
            format!("{kind} of {}, {delay} ms{}", rate(pipe.rate_bps), lost(pipe.loss))
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
            let error = parse(text).unwrap_err();
            assert!(error.contains(found), "{error}");
        }
    }
}
