// SPDX-License-Identifier: Apache-2.0
//! Keys about the names of tf frames.

use super::Findings;
use crate::config::table::RobotFile;

impl Findings {
    pub(super) fn check_frames(&mut self, file: &RobotFile) {
        let tf = file.tf.value.as_ref();
        if tf.is_some_and(|tf| tf.prefix.value.is_some()) {
            return;
        }
        if let Some(tf) = tf.filter(|tf| !tf.shared.entries().is_empty()) {
            let allowed = "'shared' together with 'prefix'";
            self.add_error(tf.shared.at, "tf.shared", "'shared' without 'prefix'", allowed);
        }
        let topics = file.topics.entries().iter();
        for topic in topics.filter(|topic| topic.keys.tf_prefix.is_given) {
            let entry = &topic.keys.tf_prefix;
            self.warn_of_key(topic, entry, "'tf' has no 'prefix'");
        }
    }
}
