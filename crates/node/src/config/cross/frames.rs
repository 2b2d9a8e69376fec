// SPDX-License-Identifier: Apache-2.0
//! Keys about the names of tf frames.

use super::Findings;
use crate::config::validate::Section;

impl Findings {
    pub(super) fn frames(&mut self, file: &Section) {
        let tf = file.section("tf");
        if tf.is_some_and(|tf| tf.text("prefix").is_some()) {
            return;
        }
        if let Some(tf) = tf.filter(|tf| !tf.list("shared").is_empty()) {
            let allowed = "'shared' together with 'prefix'";
            self.wrong(tf.place("shared"), "tf.shared", "'shared' without 'prefix'", allowed);
        }
        let topics = file.named("topics").iter();
        for topic in topics.filter(|topic| topic.section.is_given("tf_prefix")) {
            let place = format!("topics.{}.tf_prefix", topic.text);
            self.odd(topic.section.place("tf_prefix"), place, "'tf' has no 'prefix'");
        }
    }
}
