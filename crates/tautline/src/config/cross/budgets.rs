// SPDX-License-Identifier: Apache-2.0
//! Checks of the budgets of links, and of the topics that may exceed them.

use super::Findings;
use crate::config::budget::Budget;
use crate::config::table::{LinkKeys, RobotFile, Topic};
use tautline_proto::{HEARTBEAT_BYTES_PER_SECOND, METERED_HEARTBEAT_BYTES_PER_SECOND};

impl Findings {
    pub(super) fn check_budgets(&mut self, file: &RobotFile) {
        for peer in file.peers.entries() {
            let links = peer.keys.links.entries();
            // An idle metered link has few heartbeats only if another link to the peer is not metered.
            let bytes_per_second = match links.iter().all(is_metered) {
                true => HEARTBEAT_BYTES_PER_SECOND,
                false => METERED_HEARTBEAT_BYTES_PER_SECOND,
            };
            for (index, link) in links.iter().enumerate() {
                let place = format!("{}[{index}]", peer.path_of(&peer.keys.links));
                self.check_link_budget(link, &place, bytes_per_second);
            }
        }
        self.peers_without_topics_over_budget(file);
        self.topics_over_no_budget(file);
    }

    fn check_link_budget(&mut self, link: &LinkKeys, place: &str, idle_bytes_per_second: u64) {
        let Some(budget) = link.budget.get() else { return };
        if link.metered.is(false) && link.metered.is_given {
            let found = "'metered: false' together with 'budget'";
            let allowed = "'metered: true', which a budget implies, or no 'budget'";
            self.add_error(
                link.metered.at,
                format!("{place}.{}", link.metered.key),
                found,
                allowed,
            );
        }
        let heartbeats = idle_bytes_per_second * budget.period.as_secs();
        if budget.bytes < heartbeats {
            let needed = Budget { bytes: heartbeats.next_multiple_of(1_000_000), ..budget };
            let text = format!("heartbeats alone use about {needed}, more than this budget");
            self.warn(link.budget.at, format!("{place}.{}", link.budget.key), text);
        }
    }

    fn peers_without_topics_over_budget(&mut self, file: &RobotFile) {
        for peer in file.peers.entries() {
            let links = peer.keys.links.entries();
            let has_budgets = !links.is_empty() && links.iter().all(|it| it.budget.is_given);
            let has_relay = !peer.keys.via.entries().is_empty();
            let continues = |topic: &Topic| {
                let to = topic.keys.to.values();
                is_over_budget(topic) && (to.is_empty() || to.contains(&peer.text))
            };
            if has_budgets && !has_relay && !file.topics.entries().iter().any(continues) {
                let text = "every link has a budget, and no topic to this peer has \
                            'over_budget: true': when all budgets are used up, the peer receives \
                            no topic until the next period";
                self.warn_of_key(peer, &peer.keys.links, text);
            }
        }
    }

    fn topics_over_no_budget(&mut self, file: &RobotFile) {
        let mut links = file.peers.entries().iter().flat_map(|it| it.keys.links.entries());
        if links.any(|link| link.budget.is_given) {
            return;
        }
        for topic in file.topics.entries().iter().filter(|it| is_over_budget(it)) {
            let entry = &topic.keys.over_budget;
            self.warn_of_key(topic, entry, "no link has a 'budget'");
        }
    }
}

fn is_metered(link: &LinkKeys) -> bool {
    link.metered.is(true) || link.budget.is_given
}

fn is_over_budget(topic: &Topic) -> bool {
    topic.keys.over_budget.is(true)
}
