// SPDX-License-Identifier: Apache-2.0
//! Wi-Fi, as `iw` shows it: the kernel has no files with these settings.

use super::machine::{Machine, Said};
use super::robot::Robot;
use super::{Answer, Found, Harm};

/// Signal below which a radio falls to its lowest rates, in dBm.
const WEAK_DBM: f64 = -75.0;
/// Rate below which a camera does not fit, in Mbit/s; and the signal below which it is no rate of an idle
/// radio, which sends its few packets at the lowest one.
const SLOW_MBPS: f64 = 12.0;
const FAIR_DBM: f64 = -65.0;
/// Pause of the kernel between two attempts of ARP that is short, in milliseconds.
const SHORT_RETRY_MS: u64 = 100;

/// What `iw` says about each Wi-Fi interface.
fn ask(machine: &Machine, arguments: &[&str]) -> Result<Vec<(String, String)>, Answer> {
    let names = machine.wifi_interfaces();
    if names.is_empty() {
        return Err(Answer::DoesNotApply("no Wi-Fi interface".into()));
    }
    let mut all = Vec::new();
    for name in names {
        let words: Vec<&str> =
            ["dev", &name].into_iter().chain(arguments.iter().copied()).collect();
        match machine.run("iw", &words) {
            Said::Output(text) => all.push((name, text)),
            Said::Missing => return Err(missing()),
            Said::Failed(text) => {
                return Err(Answer::NotMade(format!("iw {}: {}", words.join(" "), text.trim())));
            }
        }
    }
    Ok(all)
}

fn missing() -> Answer {
    Answer::NotMade("iw is not installed: apt install iw".into())
}

/// The value of a line `NAME: VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    lines.find(|(it, _)| *it == name).map(|(_, value)| value.trim())
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

pub(super) fn power_save(machine: &Machine, _: &Robot) -> Answer {
    let said = match ask(machine, &["get", "power_save"]) {
        Ok(said) => said,
        Err(answer) => return answer,
    };
    let on = said.into_iter().filter(|(_, text)| field(text, "Power save") == Some("on"));
    let found = on.map(|(name, _)| {
        let found = Found::new(
            Harm::Delays,
            format!("power saving of {name} is on"),
            "A sleeping radio gets packets only after a beacon of the access point, every 102 ms.",
        );
        found.fix(format!("iw dev {name} set power_save off")).fix(
            "permanently: printf '[connection]\\nwifi.powersave = 2\\n' > \
             /etc/NetworkManager/conf.d/90-tautline.conf; systemctl reload NetworkManager",
        )
    });
    Answer::Made(found.collect())
}

pub(super) fn signal(machine: &Machine, _: &Robot) -> Answer {
    let said = match ask(machine, &["link"]) {
        Ok(said) => said,
        Err(answer) => return answer,
    };
    let mut all = Vec::new();
    for (name, text) in said {
        let signal = field(&text, "signal").and_then(first_number);
        let rate = field(&text, "tx bitrate").and_then(first_number);
        let is_weak = signal.is_some_and(|it| it < WEAK_DBM);
        let is_slow =
            rate.is_some_and(|it| it < SLOW_MBPS) && signal.is_some_and(|it| it < FAIR_DBM);
        if !is_weak && !is_slow {
            continue;
        }
        let mut words = Vec::new();
        words.extend(signal.map(|it| format!("signal {it:.0} dBm")));
        words.extend(rate.map(|it| format!("bit rate {it} Mbit/s")));
        let found = Found::new(
            Harm::Delays,
            format!("{name}: {}", words.join(", ")),
            format!(
                "Below {WEAK_DBM:.0} dBm, a radio sends at its lowest rates, and repeats many packets."
            ),
        );
        all.push(
            found.fix("move the antenna or the access point, or add an access point").fix(
                "or send less: topics: /camera/**: { rate: 2Hz }  (docs/how-to/slow-links.md)",
            ),
        );
    }
    Answer::Made(all)
}

pub(super) fn wmm(machine: &Machine, _: &Robot) -> Answer {
    let said = match ask(machine, &["station", "dump"]) {
        Ok(said) => said,
        Err(answer) => return answer,
    };
    let off = said.into_iter().filter(|(_, text)| field(text, "WMM/WME") == Some("no"));
    let found = off.map(|(name, _)| {
        let found = Found::new(
            Harm::Delays,
            format!("{name} and its access point do not use WMM"),
            "Without access categories, urgent packets of one robot wait for images of another.",
        );
        found.fix("at the access point: switch WMM on (hostapd.conf: wmm_enabled=1)")
    });
    Answer::Made(found.collect())
}

pub(super) fn region(machine: &Machine, _: &Robot) -> Answer {
    if machine.wifi_interfaces().is_empty() {
        return Answer::DoesNotApply("no Wi-Fi interface".into());
    }
    let text = match machine.run("iw", &["reg", "get"]) {
        Said::Output(text) => text,
        Said::Missing => return missing(),
        Said::Failed(text) => return Answer::NotMade(format!("iw reg get: {}", text.trim())),
    };
    // Later sections are those of devices, which may be fixed by their makers.
    let global = text.lines().find_map(|line| line.trim().strip_prefix("country "));
    if global.is_none_or(|it| !it.starts_with("00")) {
        return Answer::Made(Vec::new());
    }
    let found = Found::new(
        Harm::Wastes,
        "the regulatory domain is 00 (world)",
        "Most channels of 5 GHz may then only be listened to, and the power is limited.",
    );
    Answer::Made(vec![found.fix("iw reg set DE  # with your country").fix(
        "permanently: options cfg80211 ieee80211_regdom=DE  # in /etc/modprobe.d/cfg80211.conf",
    )])
}

pub(super) fn neighbour_retry(machine: &Machine, _: &Robot) -> Answer {
    let names = machine.wifi_interfaces();
    if names.is_empty() {
        return Answer::DoesNotApply("no Wi-Fi interface".into());
    }
    let mut all = Vec::new();
    for name in names {
        let path = format!("/proc/sys/net/ipv4/neigh/{name}/retrans_time_ms");
        let Some(pause) = machine.number(path).filter(|it| *it > SHORT_RETRY_MS) else { continue };
        let found = Found::new(
            Harm::Note,
            format!("the kernel repeats ARP on {name} after {pause} ms"),
            "After an outage, messages flow again after 0.04 s with 50 ms, and after 0.36 s with 1000.",
        );
        all.push(found.fix(format!(
            "sysctl -w net.ipv4.neigh.{name}.retrans_time_ms=50 net.ipv6.neigh.{name}.retrans_time_ms=50"
        )));
    }
    Answer::Made(all)
}
