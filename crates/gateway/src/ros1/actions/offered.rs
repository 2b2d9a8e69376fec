// SPDX-License-Identifier: Apache-2.0
//! An actionlib server of this robot, offered to peers as an action of ROS 2. A state machine: calls
//! of ROS 2's services and messages of the server go in, answers and messages come out.
//!
//! A goal is accepted once the server works on it, or has held it for [`PENDING_GRACE`] without
//! rejecting it. Its client is never left waiting: a goal that the server does not list any more is
//! aborted, since ROS 2 has no state for lost goals.

use super::messages::{self, GoalId, GoalState, GoalStatus, Stamp, cancel, goal_id, ros1, ros2};
use super::names::ActionNames;
use super::names::ServicePart;
use super::outputs::{Moment, Outputs};
use crate::types::action::{self, ActionType, Part, Uuid};
use crate::{CallId, Event, Outcome, Source};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum number of remembered goals of one peer. A new goal replaces the oldest ended goal; if no
/// goal has ended, the new goal is rejected.
pub(super) const MAX_GOALS_PER_PEER: usize = 64;
/// Maximum bytes of the kept results of one peer's goals; a single larger result is kept too.
const MAX_RESULT_BYTES_PER_PEER: usize = 16 << 20;
/// Maximum number of calls that wait for one goal's result; a further call ends the first.
const MAX_WAITING: usize = 64;
/// Maximum number of pending cancel requests.
const MAX_CANCELS: usize = 256;
/// Maximum number of goals in one status message to peers.
const MAX_SHOWN: usize = 256;
/// How long a result is kept for its client, as in ROS 2 up to Humble (rcl_action).
const RESULT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How long a goal may be pending at the server before it counts as accepted.
const PENDING_GRACE: Duration = Duration::from_secs(1);
/// How long an ended goal's result, or a goal of a lost connection, is awaited.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the services remain after the server has left, so that answers reach the clients.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// A call of a peer.
pub(super) struct Call {
    pub peer: u32,
    pub part: ServicePart,
    pub call: CallId,
    pub request: Bytes,
    pub time_limit: Duration,
}

#[derive(Debug)]
struct Goal {
    peer: u32,
    /// The last known state in ROS 1; `None` until the server has the goal.
    status: Option<u8>,
    stamp: Stamp,
    /// The call that sent the goal, until that call is answered, and the deadline of the answer.
    unanswered: Option<(CallId, Instant)>,
    /// The goal message, until the server is connected.
    unsent: Option<Bytes>,
    /// The publisher whose status messages list the goal.
    source: Option<Source>,
    /// Time at which the goal changes its state without another message of the server.
    due: Option<Instant>,
    waiting: Vec<CallId>,
    result: Option<Bytes>,
    ended: Option<Instant>,
}

impl Goal {
    fn new(peer: u32) -> Self {
        Self {
            peer,
            status: None,
            stamp: Stamp::ZERO,
            unanswered: None,
            unsent: None,
            source: None,
            due: None,
            waiting: Vec::new(),
            result: None,
            ended: None,
        }
    }

    fn is_canceling(&self) -> bool {
        let canceling = [ros1::PREEMPTING, ros1::RECALLING, ros1::PREEMPTED, ros1::RECALLED];
        self.status.is_some_and(|status| canceling.contains(&status))
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() || self.status.is_some_and(messages::is_terminal)
    }

    fn next_timeout(&self) -> Option<Instant> {
        let answer = self.unanswered.map(|(_, due)| due);
        let forgotten = self.ended.map(|at| at + RESULT_TIMEOUT);
        [answer, self.due, forgotten].into_iter().flatten().min()
    }
}

/// A cancel request, until each of its goals shows whether it is being canceled.
#[derive(Debug)]
struct Cancel {
    due: Instant,
    waiting: BTreeSet<Uuid>,
    canceling: Vec<(Uuid, Stamp)>,
}

#[derive(Debug)]
pub(super) struct OfferedAction {
    names: ActionNames,
    robot: String,
    types: ActionType,
    goals: BTreeMap<Uuid, Goal>,
    cancels: BTreeMap<CallId, Cancel>,
    /// The goals in the server's last status message.
    listed: Vec<(GoalStatus, Source)>,
    /// Whether the server reads goals.
    connected: bool,
    feedback_wanted: bool,
    status_wanted: bool,
    /// The last status message to peers.
    last_status_message: Bytes,
    seq: u32,
    /// When the services end, once the server has left.
    ends_at: Option<Instant>,
}

impl OfferedAction {
    pub fn new(names: ActionNames, robot: &str, types: ActionType) -> Self {
        Self {
            names,
            robot: robot.into(),
            types,
            goals: BTreeMap::new(),
            cancels: BTreeMap::new(),
            listed: Vec::new(),
            connected: false,
            feedback_wanted: false,
            status_wanted: false,
            last_status_message: messages::states_message(&[]),
            seq: 0,
            ends_at: None,
        }
    }

    pub fn start(&self, out: &mut Outputs) {
        out.advertise(self.types.ros1_topic(Part::Goal, self.names.goal()));
        out.advertise(action::ros1_cancel(self.names.cancel()));
        for topic in [self.names.status(), self.names.feedback(), self.names.result()] {
            out.subscribe(topic);
        }
        let services = [
            self.types.ros2_service(Part::Goal, self.names.send_goal()),
            action::ros2_cancel(self.names.cancel_goal()),
            self.types.ros2_service(Part::Result, self.names.get_result()),
        ];
        services.into_iter().for_each(|service| out.event(Event::ServiceOffered(service)));
        out.event(Event::Offered(self.types.ros2_feedback(self.names.ros2_feedback())));
        out.event(Event::Offered(action::ros2_status(self.names.ros2_status())));
    }

    /// Stops the action: the server has left, or may no longer be offered. Its goals are lost.
    pub fn stop(&mut self, at: Moment, out: &mut Outputs) {
        let was_busy = self.goals.values().any(|goal| goal.ended.is_none());
        for uuid in self.goals.keys().copied().collect::<Vec<_>>() {
            self.end_lost_goal(at, uuid, out);
        }
        self.settle_cancels(at, out);
        self.ends_at = Some(if was_busy { at.now + SHUTDOWN_GRACE } else { at.now });
    }

    pub fn is_stopping(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Whether the services have to end.
    pub fn has_ended(&self, at: Moment) -> bool {
        self.ends_at.is_some_and(|ends| ends <= at.now)
    }

    pub fn end(self, out: &mut Outputs) {
        for topic in [self.names.goal(), self.names.cancel()] {
            out.unadvertise(topic);
        }
        for topic in [self.names.status(), self.names.feedback(), self.names.result()] {
            out.unsubscribe(topic);
        }
        for service in self.names.services() {
            out.event(Event::ServiceWithdrawn { service });
        }
        for topic in self.names.ros2_topics() {
            out.event(Event::Withdrawn { topic });
        }
    }

    /// The server's subscription to goals has begun (`connected`) or ended.
    pub fn on_connected(&mut self, at: Moment, connected: bool, out: &mut Outputs) {
        self.connected = connected;
        for goal in self.goals.values_mut().filter(|_| connected) {
            if let Some(message) = goal.unsent.take() {
                out.publish(self.names.goal(), message);
            }
        }
        self.settle_cancels(at, out);
    }

    /// Peers have begun (`wanted`) or ceased to read the feedback or status topic.
    pub fn on_wanted(&mut self, topic: &str, wanted: bool, out: &mut Outputs) {
        if topic == self.names.ros2_feedback() {
            self.feedback_wanted = wanted;
        } else {
            self.status_wanted = wanted;
            self.send_status(out);
        }
    }

    fn send_status(&self, out: &mut Outputs) {
        if self.status_wanted {
            out.message(self.names.ros2_status(), self.last_status_message.clone());
        }
    }

    pub fn on_call(&mut self, at: Moment, call: Call, out: &mut Outputs) {
        let done = match call.part {
            ServicePart::SendGoal => self.send_goal(at, &call, out),
            ServicePart::CancelGoal => self.cancel_goal(at, &call, out),
            ServicePart::GetResult => self.get_result(at, &call, out),
        };
        if let Some(outcome) = done.unwrap_or_else(|reason| Some(Err(reason))) {
            self.answer(call.part, call.call, outcome, out);
        }
    }

    fn answer(&self, part: ServicePart, call: CallId, outcome: Outcome, out: &mut Outputs) {
        let service = match part {
            ServicePart::SendGoal => self.names.send_goal(),
            ServicePart::CancelGoal => self.names.cancel_goal(),
            ServicePart::GetResult => self.names.get_result(),
        };
        out.event(Event::Answered { service, call, outcome });
    }

    /// Like `cancel_goal` and `get_result`, returns the outcome of the call if it is known immediately.
    fn send_goal(
        &mut self,
        at: Moment,
        call: &Call,
        out: &mut Outputs,
    ) -> Result<Option<Outcome>, String> {
        let (uuid, goal) = self.types.to_ros1(Part::Goal, &call.request)?;
        let rejected = Ok(Some(Ok(messages::goal_response(false, Stamp::ZERO))));
        if self.is_stopping() || self.goals.contains_key(&uuid) || !self.make_room(call.peer) {
            return rejected;
        }
        self.seq = self.seq.wrapping_add(1);
        // Without a time, the server uses its own clock, which may be simulated.
        let id = GoalId { stamp: Stamp::ZERO, id: goal_id(uuid) };
        let message = messages::goal_message(self.seq, at.stamp, &id, &goal);
        let mut new = Goal::new(call.peer);
        new.unanswered = Some((call.call, at.now + response_patience(call.time_limit)));
        match self.connected {
            true => out.publish(self.names.goal(), message),
            false => new.unsent = Some(message),
        }
        self.goals.insert(uuid, new);
        Ok(None)
    }

    /// Whether the peer may have another goal; forgets its oldest ended one if needed.
    fn make_room(&mut self, peer: u32) -> bool {
        let own = || self.goals.iter().filter(|(_, goal)| goal.peer == peer);
        if own().count() < MAX_GOALS_PER_PEER {
            return true;
        }
        let oldest = own().filter_map(|(uuid, goal)| Some((goal.ended?, *uuid))).min();
        oldest.is_some_and(|(_, uuid)| self.goals.remove(&uuid).is_some())
    }

    fn get_result(
        &mut self,
        _at: Moment,
        call: &Call,
        out: &mut Outputs,
    ) -> Result<Option<Outcome>, String> {
        let uuid = messages::read_result_request(&call.request).map_err(|it| it.to_string())?;
        self.adopt(uuid, call.peer);
        let Some(goal) = self.goals.get_mut(&uuid) else {
            return Ok(Some(self.default_result(ros2::UNKNOWN)));
        };
        if let Some(result) = &goal.result {
            return Ok(Some(Ok(result.clone())));
        }
        goal.waiting.push(call.call);
        if goal.waiting.len() > MAX_WAITING {
            let first = goal.waiting.remove(0);
            let reason = format!("more than {MAX_WAITING} calls wait for this result");
            self.answer(ServicePart::GetResult, first, Err(reason), out);
        }
        Ok(None)
    }

    fn default_result(&self, status: u8) -> Outcome {
        self.types.result_to_ros2(status, self.types.default_result()).map(Bytes::from)
    }

    /// Remembers a goal that the server has, though it was sent before this daemon started.
    fn adopt(&mut self, uuid: Uuid, peer: u32) {
        if self.goals.contains_key(&uuid) {
            return;
        }
        let robot = &self.robot;
        let found = self.listed.iter().find(|(status, _)| {
            let is_live = !messages::is_terminal(status.status);
            is_live && messages::goal_id_to_uuid(robot, &status.goal.id) == uuid
        });
        let Some((status, source)) = found.cloned() else { return };
        if self.make_room(peer) {
            let (stamp, status) = (status.goal.stamp, Some(status.status));
            let goal = Goal { stamp, status, source: Some(source), ..Goal::new(peer) };
            self.goals.insert(uuid, goal);
        }
    }

    fn cancel_goal(
        &mut self,
        at: Moment,
        call: &Call,
        out: &mut Outputs,
    ) -> Result<Option<Outcome>, String> {
        let (uuid, stamp) =
            messages::read_cancel_request(&call.request).map_err(|it| it.to_string())?;
        let is_one = uuid != Uuid::default();
        self.adopt(uuid, call.peer);
        if is_one && stamp == Stamp::ZERO {
            let code = match self.goals.get(&uuid) {
                None => Some(cancel::UNKNOWN_GOAL),
                Some(goal) => goal.is_over().then_some(cancel::GOAL_TERMINATED),
            };
            if let Some(code) = code {
                return Ok(Some(Ok(messages::cancel_response(code, &[]))));
            }
        }
        if self.cancels.len() >= MAX_CANCELS {
            return Err(format!("{MAX_CANCELS} cancel requests are under way already"));
        }
        let id = if is_one { self.id_at_server(uuid) } else { String::new() };
        out.publish(self.names.cancel(), messages::cancel_message(&GoalId { stamp, id }));
        let everything = !is_one && stamp == Stamp::ZERO;
        let goals = self.goals.iter().filter(|(other, goal)| {
            let before = stamp != Stamp::ZERO && goal.status.is_some() && goal.stamp <= stamp;
            !goal.is_over() && (everything || **other == uuid || before)
        });
        let waiting = goals.map(|(uuid, _)| *uuid).collect();
        let due = at.now + response_patience(call.time_limit);
        self.cancels.insert(call.call, Cancel { due, waiting, canceling: Vec::new() });
        self.settle_cancels(at, out);
        Ok(None)
    }

    /// The goal's id at the server, which a client there may have chosen.
    fn id_at_server(&self, uuid: Uuid) -> String {
        let mut listed = self.listed.iter().map(|(status, _)| &status.goal.id);
        let found = listed.find(|id| messages::goal_id_to_uuid(&self.robot, id) == uuid);
        found.cloned().unwrap_or_else(|| goal_id(uuid))
    }

    /// Answers the cancel requests whose goals have all shown whether they are being canceled.
    fn settle_cancels(&mut self, at: Moment, out: &mut Outputs) {
        let goals = &self.goals;
        for request in self.cancels.values_mut() {
            let settled = request.waiting.extract_if(.., |uuid| {
                goals.get(uuid).is_none_or(|goal| goal.is_canceling() || goal.is_over())
            });
            let canceling = settled.filter_map(|uuid| {
                let goal = goals.get(&uuid).filter(|goal| goal.is_canceling())?;
                Some((uuid, goal.stamp))
            });
            request.canceling.extend(canceling);
        }
        let done: Vec<_> = self
            .cancels
            .extract_if(.., |_, request| request.waiting.is_empty() || request.due <= at.now)
            .collect();
        for (call, request) in done {
            let code = match (request.canceling.is_empty(), request.waiting.is_empty()) {
                (false, _) => cancel::ACCEPTED,
                (true, false) => cancel::REJECTED,
                (true, true) => cancel::GOAL_TERMINATED,
            };
            let response = messages::cancel_response(code, &request.canceling);
            self.answer(ServicePart::CancelGoal, call, Ok(response), out);
        }
    }

    /// Handles a status message of the server.
    pub fn on_status(&mut self, at: Moment, source: Source, message: &[u8], out: &mut Outputs) {
        let Ok(statuses) = messages::read_statuses(message) else { return };
        self.listed.retain(|(_, other)| *other != source);
        let mut known = BTreeSet::new();
        for status in &statuses {
            let uuid = messages::goal_id_to_uuid(&self.robot, &status.goal.id);
            known.insert(uuid);
            self.update_goal_status(at, uuid, status, source, out);
        }
        self.listed.extend(statuses.into_iter().map(|status| (status, source)));
        self.listed.truncate(messages::MAX_LISTED);
        let gone = self.goals.iter().filter(|(uuid, goal)| {
            !known.contains(*uuid) && goal.source == Some(source) && !goal.is_over()
        });
        for uuid in gone.map(|(uuid, _)| *uuid).collect::<Vec<_>>() {
            self.end_lost_goal(at, uuid, out);
        }
        self.settle_cancels(at, out);
        self.send_changed_status(out);
    }

    fn send_changed_status(&mut self, out: &mut Outputs) {
        let listed = self.listed.iter().filter(|(it, _)| it.status != ros1::REJECTED);
        let states = listed.take(MAX_SHOWN).map(|(it, _)| GoalState {
            uuid: messages::goal_id_to_uuid(&self.robot, &it.goal.id),
            stamp: it.goal.stamp,
            status: messages::to_ros2(it.status),
        });
        let message = messages::states_message(&states.collect::<Vec<_>>());
        if message != self.last_status_message {
            self.last_status_message = message;
            self.send_status(out);
        }
    }

    /// Handles the state of a goal that the server reports.
    fn update_goal_status(
        &mut self,
        at: Moment,
        uuid: Uuid,
        status: &GoalStatus,
        source: Source,
        out: &mut Outputs,
    ) {
        let Some(goal) = self.goals.get_mut(&uuid).filter(|goal| goal.ended.is_none()) else {
            return;
        };
        goal.stamp = status.goal.stamp;
        goal.source = Some(source);
        let is_new = goal.status != Some(status.status);
        goal.status = Some(status.status);
        match status.status {
            ros1::REJECTED if goal.unanswered.is_some() => return self.accept(uuid, false, out),
            ros1::PENDING => {
                let grace = at.now + PENDING_GRACE;
                goal.due = goal.unanswered.is_some().then(|| goal.due.unwrap_or(grace));
                return;
            }
            terminal if messages::is_terminal(terminal) => {
                let wait = at.now + REPORT_TIMEOUT;
                goal.due = if is_new { Some(wait) } else { goal.due.or(Some(wait)) };
            }
            _ => goal.due = None,
        }
        self.accept(uuid, true, out);
    }

    /// Answers the call that sent the goal. A rejected goal is forgotten.
    fn accept(&mut self, uuid: Uuid, accepted: bool, out: &mut Outputs) {
        let Some(goal) = self.goals.get_mut(&uuid) else { return };
        let (unanswered, stamp) = (goal.unanswered.take(), goal.stamp);
        if !accepted {
            self.goals.remove(&uuid);
        }
        if let Some((call, _)) = unanswered {
            let response = messages::goal_response(accepted, stamp);
            self.answer(ServicePart::SendGoal, call, Ok(response), out);
        }
    }

    /// Ends a goal that the server no longer has and for which it sent no result.
    fn end_lost_goal(&mut self, at: Moment, uuid: Uuid, out: &mut Outputs) {
        let Some(goal) = self.goals.get(&uuid).filter(|goal| goal.ended.is_none()) else {
            return;
        };
        if goal.unanswered.is_some() {
            return self.accept(uuid, false, out);
        }
        // The outcome is unknown if the goal has ended.
        let status = if goal.is_over() { ros2::UNKNOWN } else { ros2::ABORTED };
        tracing::warn!(action = self.names.action, goal = goal_id(uuid), "goal lost by its server");
        let outcome = self.default_result(status);
        self.end_goal(at, uuid, outcome, out);
    }

    fn end_goal(&mut self, at: Moment, uuid: Uuid, outcome: Outcome, out: &mut Outputs) {
        let Some(goal) = self.goals.get_mut(&uuid) else { return };
        goal.ended = Some(at.now);
        goal.due = None;
        goal.result = outcome.as_ref().ok().cloned();
        let peer = goal.peer;
        for call in std::mem::take(&mut goal.waiting) {
            self.answer(ServicePart::GetResult, call, outcome.clone(), out);
        }
        self.limit_results(peer, uuid);
    }

    /// Forgets the oldest ended goals of a peer, except `newest`, until its results are within the limit.
    fn limit_results(&mut self, peer: u32, newest: Uuid) {
        let len = |goal: &Goal| goal.result.as_ref().map_or(0, Bytes::len);
        loop {
            let own = || self.goals.iter().filter(|(_, goal)| goal.peer == peer);
            if own().map(|(_, goal)| len(goal)).sum::<usize>() <= MAX_RESULT_BYTES_PER_PEER {
                return;
            }
            let ended = own().filter_map(|(uuid, goal)| Some((goal.ended?, *uuid)));
            let Some((_, oldest)) = ended.filter(|(_, uuid)| *uuid != newest).min() else { return };
            self.goals.remove(&oldest);
        }
    }

    /// Handles a result of the server.
    pub fn on_result(&mut self, at: Moment, source: Source, message: &[u8], out: &mut Outputs) {
        let Ok((status, result)) = messages::read_report(message) else { return };
        let uuid = messages::goal_id_to_uuid(&self.robot, &status.goal.id);
        self.update_goal_status(at, uuid, &status, source, out);
        if self.goals.get(&uuid).is_some_and(|goal| goal.ended.is_none()) {
            let response = self.types.result_to_ros2(messages::to_ros2(status.status), result);
            let outcome = response.map(Bytes::from).or_else(|error| {
                tracing::warn!(action = self.names.action, error, "result not translated");
                self.default_result(ros2::UNKNOWN)
            });
            self.end_goal(at, uuid, outcome, out);
        }
        self.settle_cancels(at, out);
    }

    /// Handles feedback of the server.
    pub fn on_feedback(&mut self, at: Moment, source: Source, message: &[u8], out: &mut Outputs) {
        let Ok((status, feedback)) = messages::read_report(message) else { return };
        let uuid = messages::goal_id_to_uuid(&self.robot, &status.goal.id);
        self.update_goal_status(at, uuid, &status, source, out);
        self.settle_cancels(at, out);
        if !self.feedback_wanted {
            return;
        }
        match self.types.to_ros2(Part::Feedback, uuid, feedback) {
            Ok(message) => out.message(self.names.ros2_feedback(), message.into()),
            Err(error) => {
                tracing::debug!(action = self.names.action, error, "feedback not translated");
            }
        }
    }

    /// Handles the end of a connection to a publisher of status messages. Another may follow.
    pub fn on_source_gone(&mut self, at: Moment, source: Source) {
        self.listed.retain(|(_, other)| *other != source);
        for goal in self.goals.values_mut().filter(|goal| goal.source == Some(source)) {
            if goal.ended.is_none() {
                (goal.source, goal.due) = (None, Some(at.now + REPORT_TIMEOUT));
            }
        }
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let goals = self.goals.values().filter_map(Goal::next_timeout);
        goals.chain(self.cancels.values().map(|request| request.due)).chain(self.ends_at).min()
    }

    pub fn handle_timeout(&mut self, at: Moment, out: &mut Outputs) {
        self.goals.retain(|_, goal| goal.ended.is_none_or(|ended| at.now < ended + RESULT_TIMEOUT));
        let is_due = |goal: &Goal| goal.next_timeout().is_some_and(|due| due <= at.now);
        let due = self.goals.iter().filter(|(_, goal)| is_due(goal));
        for uuid in due.map(|(uuid, _)| *uuid).collect::<Vec<_>>() {
            let Some(goal) = self.goals.get_mut(&uuid) else { continue };
            match goal.unanswered {
                // Pending for long enough without a rejection.
                Some((_, due)) if at.now < due && goal.source.is_some() => {
                    goal.due = None;
                    self.accept(uuid, true, out);
                }
                Some((_, due)) if at.now >= due => self.give_up(uuid, out),
                _ => self.end_lost_goal(at, uuid, out),
            }
        }
        self.settle_cancels(at, out);
    }

    /// Rejects a goal that the server has not shown in time. If the server gets the goal later, the
    /// goal is recalled.
    fn give_up(&mut self, uuid: Uuid, out: &mut Outputs) {
        let Some(goal) = self.goals.get(&uuid) else { return };
        let is_pending = goal.status.is_some();
        if goal.unsent.is_none() && !is_pending {
            let id = GoalId { stamp: Stamp::ZERO, id: goal_id(uuid) };
            out.publish(self.names.cancel(), messages::cancel_message(&id));
        }
        self.accept(uuid, is_pending, out);
    }
}

/// The time limit for a response: part of the caller's limit, so that the response arrives in time.
fn response_patience(time_limit: Duration) -> Duration {
    time_limit.mul_f64(0.75).min(Duration::from_secs(3600))
}
