// SPDX-License-Identifier: Apache-2.0
//! Wi-Fi, as `iw` shows it: the kernel has no files with these settings.

use super::finding::{CheckFinding, CheckResult, Harm};
use super::machine::{Machine, ProgramOutput, interface_path};
use super::robot::Robot;

/// Signal below which a radio falls to its lowest rates, in dBm.
const WEAK_DBM: f64 = -75.0;
/// Rate below which a camera does not fit, in Mbit/s.
const SLOW_MBPS: f64 = 12.0;
/// Signal below which a low rate counts, in dBm. With a better signal, a low rate is that of an idle radio,
/// which sends its few packets at the lowest rate.
const FAIR_DBM: f64 = -65.0;
/// Longest interval of the kernel's ARP retries that counts as short, in milliseconds.
const SHORT_RETRY_MS: u64 = 100;

/// The Wi-Fi interfaces of links to peers.
fn wifi_interfaces_of_links(machine: &Machine, robot: &Robot) -> Result<Vec<String>, CheckResult> {
    let used = robot.interfaces(machine);
    let names = machine.wifi_interfaces();
    let names: Vec<String> = names.into_iter().filter(|it| used.contains(it)).collect();
    match names.is_empty() {
        true => Err(CheckResult::DoesNotApply("no link uses Wi-Fi".into())),
        false => Ok(names),
    }
}

/// Runs `iw dev NAME` with these arguments for each Wi-Fi interface of a link; `found` makes a
/// finding from the interface's name and the output.
fn check_each_interface(
    machine: &Machine,
    robot: &Robot,
    arguments: &[&str],
    found: impl Fn(&str, &str) -> Option<CheckFinding>,
) -> CheckResult {
    let names = match wifi_interfaces_of_links(machine, robot) {
        Ok(names) => names,
        Err(answer) => return answer,
    };
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        let words: Vec<&str> =
            ["dev", &name].into_iter().chain(arguments.iter().copied()).collect();
        match machine.run("iw", &words) {
            ProgramOutput::Output(text) => all.extend(found(&name, &text)),
            ProgramOutput::Missing => return check_without_iw(),
            ProgramOutput::Failed(text) => {
                errors.push(format!("iw {}: {}", words.join(" "), text.trim()))
            }
        }
    }
    if all.is_empty() && !errors.is_empty() {
        return CheckResult::Skipped(errors.join("; "));
    }
    let why = "This interface could not be checked.";
    all.extend(errors.into_iter().map(|error| CheckFinding::new(Harm::Note, error, why)));
    CheckResult::Completed(all)
}

fn check_without_iw() -> CheckResult {
    CheckResult::Skipped("iw is not installed: apt install iw".into())
}

/// The value of a line `NAME: VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    lines.find(|(it, _)| *it == name).map(|(_, value)| value.trim())
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

pub(super) fn power_save(machine: &Machine, robot: &Robot) -> CheckResult {
    check_each_interface(machine, robot, &["get", "power_save"], |name, text| {
        field(text, "Power save").filter(|it| *it == "on")?;
        let found = CheckFinding::new(
            Harm::Delays,
            format!("power saving of {name} is on"),
            "A sleeping radio gets packets only after a beacon of the access point, every 102 ms.",
        );
        // Files with a later name override earlier ones, such as default-wifi-powersave-on.conf of Ubuntu.
        Some(found.fix(format!("sudo iw dev {name} set power_save off")).fix(format!(
            "permanently: printf '[connection]\\nwifi.powersave = 2\\n' | sudo tee \
             /etc/NetworkManager/conf.d/zz-tautline.conf; sudo systemctl reload NetworkManager; \
             sudo nmcli device reapply {name}"
        )))
    })
}

pub(super) fn signal(machine: &Machine, robot: &Robot) -> CheckResult {
    check_each_interface(machine, robot, &["link"], |name, text| {
        let signal = field(text, "signal").and_then(first_number);
        let rate = field(text, "tx bitrate").and_then(first_number);
        let is_weak = signal.is_some_and(|it| it < WEAK_DBM);
        let is_slow =
            rate.is_some_and(|it| it < SLOW_MBPS) && signal.is_some_and(|it| it < FAIR_DBM);
        if !is_weak && !is_slow {
            return None;
        }
        let mut words = Vec::new();
        words.extend(signal.map(|it| format!("signal {it:.0} dBm")));
        words.extend(rate.map(|it| format!("bit rate {it} Mbit/s")));
        let found = CheckFinding::new(
            Harm::Delays,
            format!("{name}: {}", words.join(", ")),
            format!(
                "Below {WEAK_DBM:.0} dBm, a radio sends at its lowest rates, and repeats many packets."
            ),
        );
        Some(
            found
                .fix("move the antenna or the access point, or add an access point")
                .fix("or send less: a 'rate' of 2Hz for large topics  (page \"Slow links\")"),
        )
    })
}

pub(super) fn wmm(machine: &Machine, robot: &Robot) -> CheckResult {
    check_each_interface(machine, robot, &["station", "dump"], |name, text| {
        field(text, "WMM/WME").filter(|it| *it == "no")?;
        let found = CheckFinding::new(
            Harm::Delays,
            format!("{name} and its access point do not use WMM"),
            "Without access categories, urgent packets of one robot wait for images of another.",
        );
        Some(found.fix("at the access point: switch WMM on (hostapd.conf: wmm_enabled=1)"))
    })
}

/// Returns the regulatory domain of a radio in the output of `iw reg get`, and whether the radio's driver
/// chose the domain. In that case, the domain of the machine does not concern the radio.
fn country_of<'a>(text: &'a str, radio: &str) -> Option<(&'a str, bool)> {
    let number = radio.trim_start_matches("phy");
    let own = format!("phy#{number} (self-managed)");
    let below = |title: &str| {
        let section = text.lines().map(str::trim).skip_while(|line| *line != title).skip(1);
        let mut section = section.take_while(|it| *it != "global" && !it.starts_with("phy#"));
        section.find_map(|line| line.strip_prefix("country ")?.split(':').next())
    };
    below(&own).map(|it| (it, true)).or_else(|| Some((below("global")?, false)))
}

pub(super) fn region(machine: &Machine, robot: &Robot) -> CheckResult {
    let names = match wifi_interfaces_of_links(machine, robot) {
        Ok(names) => names,
        Err(answer) => return answer,
    };
    let text = match machine.run("iw", &["reg", "get"]) {
        ProgramOutput::Output(text) => text,
        ProgramOutput::Missing => return check_without_iw(),
        ProgramOutput::Failed(text) => {
            return CheckResult::Skipped(format!("iw reg get: {}", text.trim()));
        }
    };
    let found = names.iter().filter_map(|name| {
        let radio = machine.read(interface_path(name, "phy80211/name")).unwrap_or_default();
        let (_, is_own) = country_of(&text, &radio).filter(|(country, _)| *country == "00")?;
        let found = CheckFinding::new(
            Harm::Wastes,
            format!("the regulatory domain of {name} is 00 (world)"),
            "Most channels of 5 GHz may then only be listened to, and the power is limited.",
        );
        Some(match is_own {
            true => found.fix(
                "the driver chooses the domain: let the access point announce its country \
                 (hostapd.conf: country_code=DE, ieee80211d=1)",
            ),
            false => found.fix("sudo iw reg set DE  # with your country").fix(
                "permanently: options cfg80211 ieee80211_regdom=DE  # in /etc/modprobe.d/cfg80211.conf",
            ),
        })
    });
    CheckResult::Completed(found.collect())
}

pub(super) fn neighbour_retry(machine: &Machine, robot: &Robot) -> CheckResult {
    let names = match wifi_interfaces_of_links(machine, robot) {
        Ok(names) => names,
        Err(answer) => return answer,
    };
    let mut all = Vec::new();
    for name in names {
        let path = format!("/proc/sys/net/ipv4/neigh/{name}/retrans_time_ms");
        let Some(pause) = machine.number(path).filter(|it| *it > SHORT_RETRY_MS) else { continue };
        let found = CheckFinding::new(
            Harm::Note,
            format!("the kernel repeats ARP on {name} after {pause} ms"),
            "After an outage, messages flow again after 0.04 s with 50 ms, and after 0.36 s with 1000.",
        );
        all.push(found.fix(format!(
            "sudo sysctl -w net.ipv4.neigh.{name}.retrans_time_ms=50 net.ipv6.neigh.{name}.retrans_time_ms=50"
        )));
    }
    CheckResult::Completed(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_managed_radio_has_its_own_regulatory_domain() {
        let text = "global\ncountry 00: DFS-UNSET\n\t(2402 - 2472 @ 40), (6, 20), (N/A)\n\n\
                    phy#1\ncountry FR: DFS-ETSI\n\nphy#0 (self-managed)\ncountry US: DFS-UNSET\n";
        assert_eq!(country_of(text, "phy0"), Some(("US", true)));
        assert_eq!(country_of(text, "phy1"), Some(("00", false)));
        assert_eq!(country_of(text, ""), Some(("00", false)));
        assert_eq!(country_of("", "phy0"), None);
    }
}
