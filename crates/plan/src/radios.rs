// SPDX-License-Identifier: Apache-2.0
//! The radios of a plan, and their use by the links of each file.

use super::spread::Links;
use super::team::Radio;
use tautline::config::{Config, LinkConfig, PeerConfig, channel};
use tautline::link_policy;
use tautline::status::{LinkReport, LinkUseReport, Status, TopicReport};
use tautline::treatment::{LinkRule, TopicRule};
use tautline_proto::LinkPolicy;

const FORM: &str = "INTERFACE[,INTERFACE...]=RADIO";
/// Fraction of a topic's bytes below which a link carried only probes.
const MIN_SHARE: f64 = 0.05;

/// The radios that a team shares.
#[derive(Debug, Clone)]
pub struct Radios {
    all: Vec<Radio>,
    /// For each radio, the interfaces that use it in all files, as the command line names them; `None` if
    /// the radios are those of the files.
    interfaces: Option<Vec<Vec<String>>>,
}

impl Radios {
    /// Parses radios of the command line: one for all links, or `wlan0=wifi:6Mbps` for the links of an
    /// interface.
    pub fn from_options(options: &[String]) -> Result<Self, String> {
        let (mut all, mut interfaces) = (Vec::new(), Vec::new());
        for text in options {
            let named = text.split_once('=').filter(|(names, _)| !names.contains(':'));
            let (names, form) = named.unwrap_or(("", text));
            let channel =
                channel::parse(form).map_err(|error| format!("--radio {text}: {error}"))?;
            let names = names.split(',').map(str::trim).filter(|it| !it.is_empty());
            let names: Vec<String> = names.map(str::to_owned).collect();
            if names.is_empty() && options.len() > 1 {
                return Err(format!(
                    "--radio {text}: no interface; several radios need {FORM} each"
                ));
            }
            if let Some(twice) =
                names.iter().find(|it| interfaces.iter().flatten().any(|one| one == *it))
            {
                return Err(format!("--radio {text}: {twice} has a radio already"));
            }
            let name = names.first().map_or("radio", |it| it).to_owned();
            all.push(Radio { name, channel });
            interfaces.push(names);
        }
        Ok(Self { all, interfaces: Some(interfaces) })
    }

    /// Reads the radios of files (`radios.NAME.channel`). Equal channels in different files are the
    /// same radio; several equal channels in one file correspond to those of other files in order.
    pub fn from_files<'a>(files: impl Iterator<Item = &'a Config>) -> Result<Self, String> {
        let mut all: Vec<Radio> = Vec::new();
        let mut most = 0;
        for config in files {
            most = most.max(config.channels.len());
            for (index, (name, channel)) in config.channels.iter().enumerate() {
                let alike = |it: &&Radio| it.channel == *channel;
                if all.iter().filter(alike).count() <= ordinal(config, index) {
                    all.push(Radio { name: name.clone(), channel: channel.clone() });
                }
            }
        }
        if all.is_empty() {
            return Err(format!(
                "no radio: give --radio, or in a file: radios: INTERFACE: {{ channel: \"wifi:6Mbps\" }}; allowed are {}",
                channel::FORMS
            ));
        }
        if all.len() > most.max(1) {
            let known: Vec<String> = all
                .iter()
                .map(|it| format!("  {}: {}", it.name, channel::words(&it.channel)))
                .collect();
            return Err(format!(
                "the files have different radios; choose one with --radio, or name all radios in each file:\n{}",
                known.join("\n")
            ));
        }
        Ok(Self { all, interfaces: None })
    }

    /// Returns the radios.
    pub fn as_slice(&self) -> &[Radio] {
        &self.all
    }

    /// Whether all links use the only radio, regardless of their interface.
    fn is_for_all(&self) -> bool {
        match &self.interfaces {
            Some(names) => names.iter().flatten().next().is_none(),
            None => self.all.len() == 1,
        }
    }

    /// Returns the radio of an interface in a file; without `interface`, the file's only radio.
    fn of_interface(&self, config: &Config, interface: Option<&str>) -> Option<usize> {
        if let Some(interfaces) = &self.interfaces {
            let interface = interface?;
            return interfaces.iter().position(|names| names.iter().any(|it| it == interface));
        }
        let own = match interface {
            Some(name) => config.channels.iter().position(|(it, _)| it == name)?,
            None if config.channels.len() == 1 => 0,
            None => return None,
        };
        let (_, channel) = &config.channels[own];
        let alike = self.all.iter().enumerate().filter(|(_, it)| it.channel == *channel);
        alike.map(|(index, _)| index).nth(ordinal(config, own))
    }

    fn of_link(&self, config: &Config, link: &LinkConfig) -> Option<usize> {
        self.of_interface(config, link.interface.as_deref())
    }

    /// Returns the radios that carry a topic to a peer; an error names the link whose radio is
    /// unknown. If this file has no links to the peer, the peer's links to this node apply.
    pub(super) fn links(
        &self,
        config: &Config,
        rule: &TopicRule,
        to: &PeerConfig,
        files: &[&Config],
    ) -> Result<Links, String> {
        let policy = link_policy(&rule.treatment);
        if self.is_for_all() {
            return Ok(Links { policy, ..Links::single_radio() });
        }
        let (owner, links) = links_between(config, to, files)?;
        let mut found = Links { radios: vec![], fallback_radios: vec![], policy };
        for link in links.iter().filter(|it| allows(&rule.treatment.links, it)) {
            let radio = self.of_link(owner, link).ok_or_else(|| {
                format!(
                    "{}: the link to {} has a radio that is unknown: {}",
                    owner.name,
                    link.host,
                    self.radio_hint(link)
                )
            })?;
            found.add(radio, is_avoided(&rule.treatment.links, link));
        }
        found.preferred().ok_or_else(|| {
            format!("{}: {}: no link carries it to {}", config.name, rule.pattern.as_str(), to.name)
        })
    }

    /// Returns the radios that carried a topic, according to a daemon's snapshot.
    pub(super) fn links_of(
        &self,
        status: &Status,
        report: &TopicReport,
        before: Option<&TopicReport>,
        file: Option<&Config>,
    ) -> Result<Links, String> {
        let used = LinkUsage::from_reports(report, before);
        if self.is_for_all() {
            return Ok(Links { policy: used.policy, ..Links::single_radio() });
        }
        let mut found = Links { radios: vec![], fallback_radios: vec![], policy: used.policy };
        let of_peer = |it: &&LinkReport| it.peer == report.peer && it.up && !it.radio.is_empty();
        for link in status.links.iter().filter(of_peer).filter(|it| used.allows(&it.name)) {
            let radio = match (&self.interfaces, file) {
                (Some(all), _) => all.iter().position(|names| names.contains(&link.radio)),
                (None, Some(file)) => self.of_interface(file, Some(&link.radio)),
                (None, None) => None,
            };
            let radio = radio.ok_or_else(|| {
                format!(
                    "the snapshot of {}: the radio {} is unknown: give --radio {}=RADIO",
                    status.node, link.radio, link.radio
                )
            })?;
            found.add(radio, !used.carried(&link.name));
        }
        found.preferred().ok_or_else(|| {
            format!(
                "the snapshot of {}: no link to {} is up without a relay",
                status.node, report.peer
            )
        })
    }

    fn radio_hint(&self, link: &LinkConfig) -> String {
        match (&link.interface, &self.interfaces) {
            (None, _) => "give the link an interface".into(),
            (Some(name), Some(_)) => format!("give --radio {name}=RADIO"),
            (Some(name), None) => format!("give radios.{name}.channel"),
        }
    }
}

/// A topic's use of the links, according to a snapshot.
struct LinkUsage {
    report: Option<LinkUseReport>,
    policy: LinkPolicy,
}

impl LinkUsage {
    fn from_reports(report: &TopicReport, before: Option<&TopicReport>) -> Self {
        let before = before.and_then(|it| it.links.as_ref());
        let used = report.links.as_ref().map(|it| it.since(before));
        let by_priority = LinkPolicy::of_priority(report.priority);
        let named = used.as_ref().and_then(|used| LinkPolicy::from_name(&used.policy));
        let policy = named.unwrap_or(by_priority);
        Self { report: used, policy }
    }

    fn allows(&self, link: &str) -> bool {
        let limit = self.report.as_ref().and_then(|it| it.limits.get(link));
        !matches!(limit.map(String::as_str), Some("only_links" | "budget used up"))
    }

    /// Whether a link carried a part of the topic; true if nothing was sent.
    fn carried(&self, link: &str) -> bool {
        let Some(report) = &self.report else { return true };
        let all = report.bytes.values().sum::<u64>() as f64;
        let bytes = report.bytes.get(link).copied().unwrap_or(0) as f64;
        bytes >= MIN_SHARE * all
    }
}

/// Returns the links between two nodes, and the file that contains them.
fn links_between<'a>(
    config: &'a Config,
    to: &'a PeerConfig,
    files: &[&'a Config],
) -> Result<(&'a Config, &'a [LinkConfig]), String> {
    let name = &config.name;
    if to.links.is_empty() && !to.via.is_empty() {
        return Err(format!(
            "{name}: a relay leads to {}; relays are planned with one radio only",
            to.name
        ));
    }
    let other = files.iter().find(|it| it.name == to.name);
    let back = other.and_then(|it| it.peers.iter().find(|peer| peer.name == *name));
    let one = |caller: &str, of: &str| {
        format!(
            "{caller}: peers.{of} has no links, so that only one of the other side's works at a time: \
             name all of them in both files"
        )
    };
    match (&to.links[..], other.zip(back)) {
        ([], Some((other, peer))) => match &peer.links[..] {
            [_] => Ok((other, &peer.links)),
            [] => Err(format!("{name} and {}: neither has links to the other", to.name)),
            _ => Err(one(name, &to.name)),
        },
        ([], None) => Err(format!(
            "{name}: peers.{} has no links, and no file of {} has links to {name}: its radio is unknown",
            to.name, to.name
        )),
        ([_, _, ..], Some((_, peer))) if peer.is_caller() => Err(one(&to.name, name)),
        (links, _) => Ok((config, links)),
    }
}

/// Returns the number of earlier radios in a file with the same channel.
fn ordinal(config: &Config, index: usize) -> usize {
    let (_, channel) = &config.channels[index];
    config.channels[..index].iter().filter(|(_, it)| it == channel).count()
}

fn allows(rule: &LinkRule, link: &LinkConfig) -> bool {
    rule.only.is_empty() || rule.only.contains(&link.name)
}

/// Whether a link carries a topic only if no other link can.
fn is_avoided(rule: &LinkRule, link: &LinkConfig) -> bool {
    rule.avoid.contains(&link.name) || (link.metered && !rule.only.contains(&link.name))
}
