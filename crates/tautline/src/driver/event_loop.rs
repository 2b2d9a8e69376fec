// SPDX-License-Identifier: Apache-2.0
//! One iteration of the loop: wait, read sockets, take inputs, handle timers, drain outputs.

use super::listen::{self, Ready};
use super::{Driver, Settings};
use crate::codec::Codec;
use crate::codec::job::{Job, JobResult};
use crate::error::RunError;
use crate::inlet::Input;
use crate::reasons::RefusedInput;
use crate::status::Status;
use crate::topics::Order;
use crate::topics::message::Change;
use rustix::event::epoll;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, SystemTime};
use tautline_gateway::{Event as LocalEvent, Gateway};
use tautline_proto::{Event, Instant, PeerId};

/// Maximum number of inputs taken before packets are served.
const INPUT_BATCH: usize = 256;
/// Maximum time for the protocol's events before sockets and timers are served: one packet can
/// cause a thousand events.
const EVENT_TIME: Duration = Duration::from_millis(1);
/// Maximum number of sockets reported in one iteration of the loop.
const MAX_READY: usize = 64;
/// Interval at which failed links and topics of restarted peers are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Driver {
    pub(super) fn run_loop(
        &mut self,
        gateway: &dyn Gateway,
        codec: &Codec,
        settings: &Settings,
    ) -> Result<(), RunError> {
        let mut next_alive = settings.watchdog.map(|_| self.common.now());
        let mut next_sweep = self.common.now() + SWEEP_EVERY;
        // This buffer is local because the driver may move to another thread until the loop runs.
        let mut ready = Vec::with_capacity(MAX_READY);
        loop {
            let wake_at = [next_alive, Some(next_sweep), self.drain_until, self.news.next_due()];
            self.wait(wake_at.into_iter().flatten().min(), &mut ready)?;
            self.reader.read_sockets(&mut self.common, &mut self.links);
            self.take_inputs(gateway, codec);
            if let Some(failure) = self.waiting.failure() {
                return Err(failure);
            }
            let now = self.common.now();
            self.common.endpoint.handle_timeout(now);
            self.topics.handle_timeout(&mut self.common.context(now));
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.sweep(now, gateway, codec);
            }
            self.news.report_changed(now, &mut self.common, &mut self.topics);
            if let (Some(at), Some(watchdog)) = (next_alive, settings.watchdog)
                && now >= at
            {
                (watchdog.alive)();
                next_alive = Some(now + watchdog.every);
            }
            self.drain(gateway, codec);
            if self.finish_iteration() {
                return Ok(());
            }
        }
    }

    /// Sleeps until the next event.
    fn wait(
        &mut self,
        wake_at: Option<Instant>,
        ready: &mut Vec<epoll::Event>,
    ) -> Result<(), RunError> {
        let unread = self.reader.is_listen_readable || self.links.are_readable();
        let unfinished =
            unread || self.more_inputs || self.more_events || self.sender.is_unfinished;
        let timers = [self.common.endpoint.poll_timeout(), self.topics.poll_timeout(), wake_at];
        let next = timers.into_iter().flatten().min();
        let timeout = match next {
            _ if unfinished => Some(Duration::ZERO),
            Some(at) => Some(at.since(self.common.now())),
            None => None,
        };
        self.common.listen.wait(timeout, ready)?;
        for event in ready.iter() {
            match listen::ready_source(event) {
                Ready::Listen => self.reader.is_listen_readable = true,
                Ready::Wake => drop(rustix::io::read(self.waiting.wake(), &mut [0u8; 8])),
                Ready::Link(index, place) => {
                    self.links.on_ready(&mut self.common, (index, place), event.flags);
                }
            }
        }
        Ok(())
    }

    /// Work that is done once per second.
    fn sweep(&mut self, now: Instant, gateway: &dyn Gateway, codec: &Codec) {
        let common = &mut self.common;
        self.topics.sweep(&mut common.context(now));
        self.links.sweep(common);
        self.links.sweep_ports(common, now);
        self.silence.follow(now, common, &self.links.table);
        self.clocks.check(common);
        self.check_budgets(now);
        let common = &mut self.common;
        self.comparison.compare(now, common, &self.topics, &self.links.radios);
        if let Some(beacons) = &mut self.beacons {
            beacons.sweep(common);
        }
        self.publish_diagnostics(gateway, codec);
        self.news.report(now, &mut self.common, &mut self.topics);
        self.recent.sample(now, self.common.exchange(&self.topics));
    }

    fn take_inputs(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        self.more_inputs = true;
        for _ in 0..INPUT_BATCH {
            match self.inputs.try_recv() {
                Ok(input) => self.take_input(gateway, codec, input),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    self.more_inputs = false;
                    return;
                }
            }
        }
    }

    fn take_input(&mut self, gateway: &dyn Gateway, codec: &Codec, input: Input) {
        let now = self.common.now();
        self.waiting.on_input_taken(&input);
        match input {
            // While the node drains its queues, new messages are dropped. Otherwise the queues
            // would never be empty.
            Input::Local(LocalEvent::Message { .. }) if self.drain_until.is_some() => {}
            Input::Local(event) => {
                if let LocalEvent::Message { received, .. } = &event {
                    tracing::trace!(waited = ?received.elapsed(), "message taken");
                }
                self.topics.on_local(&mut self.common.context(now), event);
            }
            Input::Codec(done) => self.take_result(done),
            Input::Path { watch, path } => self.links.take_path(&mut self.common, watch, path),
            Input::Reconfigure(config, question) => {
                question.answer(|| self.reconfigure(gateway, *config));
            }
            Input::NetworkChanged => {
                self.links.refresh_followers(&mut self.common);
                if let Some(beacons) = &mut self.beacons {
                    beacons.send_soon();
                }
            }
            Input::Notice(text) => self.common.notice(now, &text),
            Input::Status(question) => question.answer(|| self.status(gateway, codec)),
            Input::Changed(by, outcome) => {
                let outcome = outcome.as_ref().map(Vec::as_slice).map_err(String::as_str);
                self.common.shared.recorder.record_change(by, outcome);
            }
            Input::Change(change, by, question) => {
                let cx = &mut self.common.context(now);
                question.answer(|| self.topics.change_treatment(cx, change, by));
            }
            Input::TopicChanges(question) => question.answer(|| self.topics.changes()),
            Input::WatchLinks(sender, question) => {
                question.answer(|| self.news.watch(&self.common, &self.topics, sender));
            }
            Input::Shutdown(timeout) => {
                let until = now + timeout;
                self.drain_until = Some(self.drain_until.map_or(until, |it| it.min(until)));
                // Queued behind the messages that are on their way to the codec.
                self.common.context(now).submit_job(Job::Change(Change::Shutdown));
                self.is_encoding = true;
            }
        }
    }

    fn status(&self, gateway: &dyn Gateway, codec: &Codec) -> Status {
        let common = &self.common;
        let refused = [
            (RefusedInput::InletFull, self.waiting.refused.load(Ordering::Relaxed)),
            (RefusedInput::CodecBehind, codec.dropped.load(Ordering::Relaxed)),
            (RefusedInput::OverTime, self.reader.usage.dropped_packets()),
        ];
        let teams = self.teams.reports(common);
        let exchange = common.exchange(&self.topics);
        let (now, reporter) = (common.now(), &common.reporter);
        Status { teams, ..reporter.status(now, exchange, &self.recent, gateway, &refused) }
    }

    /// Publishes this node's state on /diagnostics if anybody listens; called once per second.
    fn publish_diagnostics(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        let Some(mut diagnostics) = self.diagnostics.take() else { return };
        let now = self.common.now();
        let topic = diagnostics.topic().clone();
        self.topics.publish_own_topic(&mut self.common.context(now), &topic);
        if self.topics.is_own_topic_wanted(&topic.name) {
            // Other ROS nodes use this clock. A time before 1970 is replaced by zero.
            let stamp = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            match diagnostics.message(self.status(gateway, codec), stamp) {
                Ok(message) => {
                    self.topics.send_own_message(
                        &mut self.common.context(now),
                        &topic.name,
                        message,
                    );
                }
                Err(error) => self.common.notice(now, &format!("{}: {error}", topic.name)),
            }
        } else {
            diagnostics.forget();
        }
        self.diagnostics = Some(diagnostics);
    }

    fn transmit(&mut self) {
        self.sender.transmit(&mut self.common, &mut self.links);
    }

    /// Executes what the protocol and the topics request, within a time limit.
    fn drain(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        let mut spent = Duration::ZERO;
        self.transmit();
        loop {
            let mut idle = true;
            self.more_events = false;
            while let Some((peer, event)) = self.common.endpoint.poll_event_of() {
                spent += self.handle_event(peer, event);
                idle = false;
                if spent > EVENT_TIME {
                    self.more_events = true;
                    break;
                }
            }
            self.execute_orders(gateway, codec);
            if idle {
                return;
            }
            self.transmit();
            if self.more_events {
                return;
            }
        }
    }

    /// Handles an event of the protocol, and charges its peer for the time. Returns this time.
    fn handle_event(&mut self, peer: Option<PeerId>, event: Event) -> Duration {
        let now = self.common.now();
        self.news.on_event(&event);
        self.silence.on_event(&event);
        if let Event::Candidates { link, addresses, .. } = &event {
            self.links.try_addresses(&mut self.common, *link, addresses);
        }
        self.topics.on_remote(&mut self.common.context(now), event);
        let done = self.common.now();
        if let Some(peer) = peer {
            self.reader.usage.charge(now, done, peer);
        }
        done.since(now)
    }

    fn execute_orders(&mut self, gateway: &dyn Gateway, codec: &Codec) {
        while let Some(order) = self.common.shared.poll_order() {
            match order {
                Order::Gateway(command) => gateway.handle(command),
                Order::Codec(job) => {
                    if let Some(refused) = codec.push(job) {
                        self.take_result(refused);
                    }
                }
            }
        }
    }

    fn take_result(&mut self, done: JobResult) {
        if let JobResult::Changed(Change::Shutdown) = done {
            self.is_encoding = false;
        }
        let now = self.common.now();
        self.topics.on_codec(&mut self.common.context(now), done);
    }

    fn finish_iteration(&mut self) -> bool {
        let Some(until) = self.drain_until else { return false };
        let now = self.common.now();
        if now < until && (self.is_encoding || !self.common.endpoint.is_drained()) {
            return false;
        }
        self.waiting.unsettled.store(self.common.endpoint.unsettled(), Ordering::Relaxed);
        self.common.endpoint.close();
        self.sender.is_unfinished = true;
        while self.sender.is_unfinished {
            self.transmit();
        }
        true
    }
}
