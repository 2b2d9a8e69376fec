// SPDX-License-Identifier: Apache-2.0
//! Flows as plain ROS 1 carries them: a TCP connection for each, by the model in [`super::tcp`].

use super::flows::{Carriage, Flow, Flows};
use super::net::Net;
use super::tcp::{Connection, Part, Segment};
use crate::rig::stamp::Stamp;
use tautline_medium::Nanos;

/// Bytes of the length that ROS 1 puts in front of each message.
const LENGTH_BYTES: u32 = 4;

/// The connection of a flow.
pub struct PlainRos {
    connection: Box<Connection<Stamp>>,
    /// Time at which its timers are due next, as scheduled.
    armed: Option<Nanos>,
}

impl PlainRos {
    /// Returns the connection of a flow with this transport, if it has one.
    pub fn for_carriage(carriage: &Carriage) -> Option<Self> {
        let Carriage::PlainRos { queue } = carriage else { return None };
        let connection = Box::new(Connection::with_queue(false, *queue as usize));
        Some(Self { connection, armed: None })
    }

    /// Returns the messages that the queue of ROS has dropped.
    pub fn dropped_messages(&self) -> u64 {
        self.connection.dropped
    }
}

impl Flow {
    /// Puts a message into the queue of ROS.
    pub fn write_plain_ros(&mut self, stamp: Stamp) {
        let bytes = self.plan.bytes as u32 + LENGTH_BYTES;
        if let Some(ros) = &mut self.plain_ros {
            ros.connection.write(stamp, bytes);
        }
    }

    /// Sends what a connection has to send now. Returns when its timers are due, if earlier than scheduled.
    fn pump(&mut self, net: &mut Net, number: usize) -> Option<Nanos> {
        let (from, [there, _]) = (self.plan.from, self.plan.addresses);
        let ros = self.plain_ros.as_mut()?;
        while let Some(part) = ros.connection.poll_data(net.now()) {
            let stamp = net.now();
            net.send_segment(from, there, Segment { connection: number, part, stamp });
        }
        let due = ros.connection.poll_timeout()?;
        let is_news = ros.armed.is_none_or(|at| due < at);
        is_news.then(|| *ros.armed.insert(due))
    }

    fn send_ack(&self, net: &mut Net, number: usize, ack: Option<(Part, Nanos)>) {
        if let Some((part, stamp)) = ack {
            let (to, [_, back]) = (self.plan.to, self.plan.addresses);
            net.send_segment(to, back, Segment { connection: number, part, stamp });
        }
    }
}

impl Flows {
    /// Sends what the connection of a flow has to send. Returns when its timers are due, if earlier than
    /// scheduled.
    pub fn pump_plain_ros(&mut self, net: &mut Net, number: usize) -> Option<Nanos> {
        self.all[number].pump(net, number)
    }

    /// Handles a segment that has left the radio's queue, sent or not; returns whether the flow uses
    /// TCP.
    pub fn segment_left(&mut self, number: usize) -> bool {
        let ros = self.all[number].plain_ros.as_mut();
        ros.map(|ros| ros.connection.handle_left()).is_some()
    }

    /// Handles a TCP packet at its receiver. Returns its flow.
    pub fn segment(&mut self, net: &mut Net, segment: Segment) -> usize {
        let Segment { connection: number, part, stamp } = segment;
        let (now, mut delivered) = (net.now(), Vec::new());
        let flow = &mut self.all[number];
        let Some(ros) = &mut flow.plain_ros else { return number };
        match part {
            Part::Data { from, bytes } => {
                let ack = ros.connection.handle_data(now, (from, bytes), stamp, &mut delivered);
                for Stamp { sequence, sent_ns } in delivered {
                    flow.on_arrival(now, sequence, sent_ns);
                }
                flow.send_ack(net, number, ack);
            }
            Part::Ack(next) => ros.connection.handle_ack(now, next, stamp),
        }
        number
    }

    /// Handles due timers of a connection.
    pub fn plain_ros_timer(&mut self, net: &mut Net, number: usize) {
        let flow = &mut self.all[number];
        let Some(ros) = &mut flow.plain_ros else { return };
        ros.armed = None;
        let ack = ros.connection.handle_timeout(net.now());
        flow.send_ack(net, number, ack);
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario;
    use crate::sim;

    fn delays(file: &str, is_plain: bool) -> (usize, Vec<f64>) {
        let mut scenario = scenario::parse_made("plain", file).unwrap();
        scenario.is_plain_ros = is_plain;
        let (_, samples) = sim::samples(&scenario, 1).unwrap().swap_remove(0);
        let all = 0..scenario.duration;
        (samples.published_count(all.clone()), samples.delays(all))
    }

    fn file(rate: &str) -> String {
        format!(
            "about: a laser alongside a camera\nduration: 20s\nnetworks:\n  wire: {{ pipe: {{ rate: 1Gbps }} }}\n  \
             far: {{ pipe: {{ rate: {rate}, delay: 10ms, queue: 1MB }} }}\nstations:\n  a: {{ networks: [wire] }}\n  \
             r: {{ networks: [wire, far] }}\n  b: {{ networks: [far] }}\nroutes: [[a, r, b]]\n\
             flows:\n  - {{ name: laser, from: a, to: b, size: 4KB, every: 50ms, priority: 200, keep_last: 10 }}\n  \
             - {{ name: camera, from: a, to: b, size: 60KB, every: 100ms, priority: 20, keep_last: 2 }}\n"
        )
    }

    #[test]
    fn on_a_fast_link_each_message_arrives_as_fast_as_over_tautline() {
        let [plain, ours] = [true, false].map(|is_plain| delays(&file("100Mbps"), is_plain));
        assert_eq!((plain.0, plain.1.len()), (400, 400));
        let worst = |delays: &[f64]| delays.iter().copied().fold(0.0, f64::max);
        assert!(worst(&plain.1) < 60.0, "{}", worst(&plain.1));
        assert!(worst(&ours.1) < 25.0, "{}", worst(&ours.1));
    }

    #[test]
    fn on_a_slow_link_the_laser_waits_behind_the_camera() {
        let [plain, ours] = [true, false].map(|is_plain| delays(&file("4Mbps"), is_plain));
        let median = |delays: &(usize, Vec<f64>)| {
            let mut sorted = delays.1.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        assert!(median(&plain) > 5.0 * median(&ours), "{} {}", median(&plain), median(&ours));
    }
}
