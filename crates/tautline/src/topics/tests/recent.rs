// SPDX-License-Identifier: Apache-2.0
//! Tests of the report of recently dropped messages, from the counters of real endpoints.

use super::*;
use crate::recent::{Recent, Stream};
use crate::status::GivenUpReport;

impl World {
    /// Publishes an image every 100 ms, and samples the robot's counters once per second.
    fn publish_images(&mut self, recent: &mut Recent, seconds: usize) {
        for _ in 0..seconds {
            for _ in 0..10 {
                self.publishes(0, "/image", 0, "an image");
                self.run(Duration::from_millis(100));
            }
            recent.sample(self.now, self.sides[0].exchange());
        }
    }

    fn given_up(&self, recent: &Recent) -> Option<GivenUpReport> {
        let side = &self.sides[0];
        let key = side.topics.exported_topics()["/image"].keys().next().unwrap();
        recent.counters_until(self.now + SECOND, side.exchange()).given_up(Stream::Out(key))
    }
}

#[test]
fn drops_are_reported_for_ten_seconds_with_their_reason() {
    let mut world = World::pair(
        "peers: { base: 10.0.0.2 }\ntopics: { /image: {} }",
        "peers: { robot: 10.0.0.1 }",
    );
    let mut recent = Recent::default();
    world.inject(0, Event::Offered(topic("/image", "sensor_msgs/Image")));
    world.wants(1, "/image", true);
    world.publish_images(&mut recent, 3);
    assert_eq!(world.given_up(&recent), None, "all arrives");

    world.sides.iter_mut().for_each(|side| side.drops_incoming = true);
    world.publish_images(&mut recent, 3);
    let told = world.given_up(&recent).unwrap();
    // The newest message is still queued.
    assert!((28..=30).contains(&told.messages) && told.of > told.messages, "{told:?}");
    assert_eq!(told.reasons.keys().next_back().unwrap(), "superseded");
    assert!(told.why.contains("newer messages replaced them"), "{told:?}");
    assert!(told.why.ends_with(" (base is down)"), "{told:?}");

    world.sides.iter_mut().for_each(|side| side.drops_incoming = false);
    world.publish_images(&mut recent, 5);
    assert!(world.given_up(&recent).is_some(), "it is not long ago");
    world.publish_images(&mut recent, 12);
    assert_eq!(world.given_up(&recent), None, "it is over");
}
