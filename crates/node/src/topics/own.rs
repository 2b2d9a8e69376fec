// SPDX-License-Identifier: Apache-2.0
//! Topics that this node itself publishes: to local subscribers, and to peers in the same manner as
//! topics of local publishers.

use super::remote::{Publication, is_same_type};
use super::{Outgoing, Topics};
use crate::topics::Context;
use bytes::Bytes;
use std::collections::BTreeSet;
use tautline_gateway::{Command, MAX_SOURCES, Origin, Source, Topic};

/// This node as a source, after the publishers of its ROS.
const SOURCE: Source = Source::here(MAX_SOURCES);

impl Topics {
    /// Publishes `topic` here, and advertises it to peers if a rule of the file names it. To be
    /// repeated, since others may take or free the name. If others use it with another type, theirs
    /// stays.
    pub(crate) fn publish_own(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        self.publish_own_here(cx, topic);
        self.exports.publish_own(cx, topic);
    }

    /// Publishes `topic` only here, whatever the file states for its name; to be repeated as well.
    pub(crate) fn publish_own_here(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        let Some(publication) = self.publications.get_mut(&topic.name) else {
            let topic = topic.clone();
            let publication = Publication {
                topic: topic.clone(),
                from: BTreeSet::new(),
                own: true,
                wanted: false,
                unwanted_since: None,
            };
            self.publications.insert(topic.name.clone(), publication);
            return cx.gateway(Command::Advertise { topic });
        };
        if publication.own || !is_same_type(&publication.topic, topic) {
            return;
        }
        publication.own = true;
        let united = topic.qos.united(publication.topic.qos);
        if publication.topic.qos != united {
            publication.topic.qos = united;
            let topic = publication.topic.clone();
            cx.gateway(Command::Advertise { topic });
        }
    }

    /// Stops publishing `name`; other publishers of the name continue.
    pub(crate) fn stop_own(&mut self, cx: &mut Context<'_>, name: &str) {
        self.exports.stop_own(cx, name);
        if let Some(publication) = self.publications.get_mut(name) {
            publication.own = false;
            self.unpublish_if_unused(cx, name);
        }
    }

    /// Whether the topic has subscribers, here or at a peer.
    pub(crate) fn own_is_wanted(&self, name: &str) -> bool {
        self.own_is_wanted_here(name) || self.exports.own_is_wanted(name)
    }

    fn own_is_wanted_here(&self, name: &str) -> bool {
        self.publications.get(name).is_some_and(|it| it.own && it.wanted)
    }

    /// Sends a message on the topic to its subscribers.
    pub(crate) fn send_own(&mut self, cx: &mut Context<'_>, name: &str, payload: Bytes) {
        let now = cx.now;
        let topic = name.to_owned();
        if self.own_is_wanted_here(name) {
            let (topic, payload, origin) = (topic.clone(), payload.clone(), Origin::default());
            cx.gateway(Command::Publish { topic, source: SOURCE, payload, origin });
        }
        if self.exports.own_is_wanted(name) {
            let (source, origin, encoded, published) = (SOURCE, Origin::default(), false, now);
            self.exports
                .message(cx, Outgoing { topic, source, payload, origin, encoded, published });
        }
    }
}
