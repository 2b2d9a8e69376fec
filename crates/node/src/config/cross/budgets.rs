// SPDX-License-Identifier: Apache-2.0
//! Checks of the budgets of links, and of the topics that may exceed them.

use super::Findings;
use crate::config::Budget;
use crate::config::validate::{Named, Section};
use tautline_proto::{HEARTBEAT_BYTES_PER_SECOND, METERED_HEARTBEAT_BYTES_PER_SECOND};

impl Findings {
    pub(super) fn budgets(&mut self, file: &Section) {
        for peer in file.named("peers") {
            let links = peer.section.sections("links");
            // The link then has few heartbeats while it is idle.
            let bytes_per_second = match links.iter().all(is_metered) {
                true => HEARTBEAT_BYTES_PER_SECOND,
                false => METERED_HEARTBEAT_BYTES_PER_SECOND,
            };
            for (index, link) in links.iter().enumerate() {
                let place = format!("peers.{}.links[{index}]", peer.text);
                self.budget(link, &place, bytes_per_second);
            }
        }
        self.peers_without_topics_over_budget(file);
        self.topics_over_no_budget(file);
    }

    fn budget(&mut self, link: &Section, place: &str, idle_bytes_per_second: u64) {
        let Some(budget) = link.get::<Budget>("budget") else { return };
        if link.get("metered") == Some(false) && link.is_given("metered") {
            let found = "'metered: false' together with 'budget'";
            let allowed = "'metered: true', which a budget implies, or no 'budget'";
            self.wrong(link.place("metered"), format!("{place}.metered"), found, allowed);
        }
        let heartbeats = idle_bytes_per_second * budget.period.as_secs();
        if budget.bytes < heartbeats {
            let needed = Budget { bytes: heartbeats.next_multiple_of(1_000_000), ..budget };
            let text = format!("heartbeats alone use about {needed}, more than this budget");
            self.odd(link.place("budget"), format!("{place}.budget"), text);
        }
    }

    fn peers_without_topics_over_budget(&mut self, file: &Section) {
        for peer in file.named("peers") {
            let links = peer.section.sections("links");
            let has_budgets = !links.is_empty() && links.iter().all(|it| it.is_given("budget"));
            let has_relay = !peer.section.list("via").is_empty();
            let continues = |topic: &Named| {
                let to: Vec<String> = topic.section.all("to");
                is_over_budget(topic) && (to.is_empty() || to.contains(&peer.text))
            };
            if has_budgets && !has_relay && !file.named("topics").iter().any(continues) {
                let text = "every link has a budget, and no topic to this peer has \
                            'over_budget: true': when all budgets are used up, the peer receives \
                            no topic until the next period";
                let place = format!("peers.{}.links", peer.text);
                self.odd(peer.section.place("links"), place, text);
            }
        }
    }

    fn topics_over_no_budget(&mut self, file: &Section) {
        let mut links = file.named("peers").iter().flat_map(|it| it.section.sections("links"));
        if links.any(|link| link.is_given("budget")) {
            return;
        }
        for topic in file.named("topics").iter().filter(|it| is_over_budget(it)) {
            let place = format!("topics.{}.over_budget", topic.text);
            self.odd(topic.section.place("over_budget"), place, "no link has a 'budget'");
        }
    }
}

fn is_metered(link: &Section) -> bool {
    link.get("metered") == Some(true) || link.is_given("budget")
}

fn is_over_budget(topic: &Named) -> bool {
    topic.section.get("over_budget") == Some(true)
}
