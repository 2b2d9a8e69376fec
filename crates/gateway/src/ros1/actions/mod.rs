// SPDX-License-Identifier: Apache-2.0
//! Actions: this gateway presents them to the node in the form of ROS 2, three services and two
//! topics, and to this robot as actionlib's five topics.
//!
//! ```text
//!  actionlib server ◀─ goal, cancel ── [OfferedAction] ◀─ Call ─────────── node: a peer calls
//!                   ── status, result ▶          ── Answered ──────▶
//!  actionlib client ── goal, cancel ─▶ [ServedAction]  ── Called ────────▶ node: calls a peer
//!                   ◀─ status, result ─          ◀─ Answer, Publish ─
//! ```
//! [`Actions`] stands between the gateway and the node: it takes the commands and events of actions
//! and passes all others. All its callers run on the gateway's thread. [`OfferedAction`] and [`ServedAction`]
//! are state machines without I/O (docs/decisions/0057-actions-have-the-form-of-ros-2.md).

mod messages;
mod names;
mod offered;
mod outputs;
mod peers;
mod served;
#[cfg(test)]
mod tests;

use super::order::Order;
use crate::lock::lock;
use crate::shared::Shared;
use crate::threads::End;
use crate::types::Dialect;
use crate::types::action::{ActionType, Part, Parts, STATUS_ARRAY};
use crate::types::installed::InstalledTypes;
use crate::{Command, Event, Events, ResourceName, Selector, Service, Source, Topic};
use names::ActionNames;
use offered::{Call, OfferedAction};
use outputs::{FIRST_CALL, Moment, Output, Outputs};
use served::ServedAction;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::mpsc::WeakUnboundedSender;

/// Maximum number of actions offered, and of actions served.
const MAX_ACTIONS: usize = 256;
/// Why a peer's action is refused.
const LOCAL_SERVER: &str = "a server of this robot has this name";

/// The services and topics of an action that a peer offers.
#[derive(Debug, Default)]
struct PeerOffer {
    services: BTreeMap<String, Service>,
    topics: BTreeMap<String, Topic>,
}

/// The topics of an action that local nodes publish: those of a server, and the goals of clients.
#[derive(Debug, Default)]
struct LocalTopics(BTreeMap<String, Topic>);

impl LocalTopics {
    fn has_server(&self, names: &ActionNames) -> bool {
        self.0.get(&names.status()).is_some_and(|topic| topic.type_name == STATUS_ARRAY)
    }
}

#[derive(Default)]
struct State {
    /// The topics of local nodes, by action.
    local_topics: BTreeMap<String, LocalTopics>,
    offered: BTreeMap<String, OfferedAction>,
    /// The services and topics of peers' actions, by action.
    peer_offers: BTreeMap<String, PeerOffer>,
    served: BTreeMap<String, ServedAction>,
    /// Topics that the node reads as well.
    node_subscriptions: BTreeSet<String>,
    /// Topics read for actions.
    own_subscriptions: BTreeSet<String>,
    out: Outputs,
}

/// The actions of one gateway.
pub(super) struct Actions {
    state: Mutex<State>,
    /// Names of actions that peers serve, for [`Actions::selector`].
    served: Arc<Mutex<BTreeSet<String>>>,
    events: Arc<dyn Events>,
    selector: Selector,
    orders: WeakUnboundedSender<Order>,
    shared: Arc<Shared>,
    installed: InstalledTypes,
    robot: String,
    changed: Notify,
}

impl Actions {
    pub fn new(
        robot: &str,
        installed: InstalledTypes,
        selector: Selector,
        events: Arc<dyn Events>,
        orders: WeakUnboundedSender<Order>,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            served: Arc::default(),
            events,
            selector,
            orders,
            shared,
            installed,
            robot: robot.into(),
            changed: Notify::new(),
        })
    }

    /// The selector of the gateway: what the node selects, and the topics of actions.
    pub fn selector(&self) -> Selector {
        let (selector, served) = (self.selector.clone(), self.served.clone());
        Arc::new(move |named| {
            if selector(named) {
                return true;
            }
            let ResourceName::Topic(topic) = named else { return false };
            ActionNames::from_ros1_topic(topic).is_some_and(|(names, _)| {
                selector(ResourceName::Service(&names.send_goal()))
                    || lock(&served).contains(&names.action)
            })
        })
    }

    /// Takes a command of the node if it is about an action; returns other commands for the gateway.
    pub fn command(&self, command: Command) -> Option<Command> {
        let mut state = lock(&self.state);
        let at = Moment::now();
        let rest = self.take_command(&mut state, at, command);
        self.flush(&mut state);
        rest
    }

    /// The time at which [`Actions::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let offered = state.offered.values().filter_map(OfferedAction::next_timeout);
        offered.chain(state.served.values().filter_map(ServedAction::next_timeout)).min()
    }

    /// Waits until [`Actions::next_timeout`] may be earlier.
    pub async fn timeout_changed(&self) {
        self.changed.notified().await;
    }

    pub fn handle_timeout(&self) {
        let mut state = lock(&self.state);
        let (at, all) = (Moment::now(), &mut *state);
        all.offered.values_mut().for_each(|action| action.handle_timeout(at, &mut all.out));
        all.served.values_mut().for_each(|action| action.handle_timeout(at, &mut all.out));
        self.end_all(all, at);
        self.flush(all);
    }

    /// Ends the topics and services of actions whose servers stopped a while ago.
    fn end_all(&self, state: &mut State, at: Moment) {
        for (_, action) in state.offered.extract_if(.., |_, action| action.has_ended(at)) {
            action.end(&mut state.out);
        }
        for (name, action) in state.served.extract_if(.., |_, action| action.has_ended(at)) {
            action.end(&mut state.out);
            lock(&self.served).remove(&name);
        }
    }

    /// Hands the outputs to the gateway and the node, in order.
    fn flush(&self, state: &mut State) {
        if state.out.pending.is_empty() {
            return;
        }
        for output in std::mem::take(&mut state.out.pending) {
            match output {
                Output::Event(event) => self.events.emit(event),
                Output::Command(command) => {
                    if Self::has_effect(state, &command) {
                        self.order(command);
                    }
                }
            }
        }
        self.changed.notify_one();
    }

    /// Whether the gateway has to execute a command of an action: the node may read the same topic.
    fn has_effect(state: &mut State, command: &Command) -> bool {
        match command {
            Command::Subscribe { topic } => {
                state.own_subscriptions.insert(topic.clone());
                !state.node_subscriptions.contains(topic)
            }
            Command::Unsubscribe { topic } => {
                state.own_subscriptions.remove(topic);
                !state.node_subscriptions.contains(topic)
            }
            _ => true,
        }
    }

    fn order(&self, command: Command) {
        // The gateway may be stopping.
        let Some(orders) = self.orders.upgrade() else { return };
        let bytes = match &command {
            Command::Publish { topic, payload, .. } => {
                if !self.shared.admit(topic, payload.len()) {
                    return;
                }
                Some(payload.len())
            }
            _ => None,
        };
        if orders.send(Order::ExecuteForAction(command)).is_err()
            && let Some(bytes) = bytes
        {
            self.shared.backlog.release(bytes);
        }
    }

    fn take_command(&self, state: &mut State, at: Moment, command: Command) -> Option<Command> {
        match command {
            Command::Serve { service } if ActionNames::from_service(&service.name).is_some() => {
                self.on_service_offered(state, at, service);
            }
            Command::Unserve { service } if ActionNames::from_service(&service).is_some() => {
                self.on_part_withdrawn(state, at, &service);
            }
            Command::Advertise { topic } if ActionNames::from_ros2_topic(&topic).is_some() => {
                self.on_topic_advertised(state, at, topic);
            }
            Command::Unadvertise { topic } if ActionNames::from_ros2_name(&topic).is_some() => {
                self.on_part_withdrawn(state, at, &topic);
            }
            Command::Publish { topic, payload, .. }
                if ActionNames::from_ros2_name(&topic).is_some() =>
            {
                self.on_server_message(state, at, &topic, &payload);
            }
            Command::Answer { service, call, outcome } if call >= FIRST_CALL => {
                if let Ok(response) = &outcome {
                    self.shared.backlog.release(response.len());
                }
                let (names, _) = ActionNames::from_service(&service)?;
                let action = state.served.get_mut(&names.action)?;
                action.on_answer(at, call, &outcome, &mut state.out);
            }
            Command::Call { service, call, request, time_limit, peer }
                if ActionNames::from_service(&service).is_some() =>
            {
                self.shared.backlog.release(request.len());
                let (names, part) = ActionNames::from_service(&service)?;
                match state.offered.get_mut(&names.action) {
                    Some(action) => {
                        let call = Call { peer, part, call, request, time_limit };
                        action.on_call(at, call, &mut state.out);
                    }
                    None => {
                        let outcome = Err(format!("no server of {} is known", names.action));
                        state.out.event(Event::Answered { service, call, outcome });
                    }
                }
            }
            Command::Subscribe { topic } if ActionNames::from_ros2_name(&topic).is_some() => {
                self.on_topic_wanted(state, &topic, true);
            }
            Command::Unsubscribe { topic } if ActionNames::from_ros2_name(&topic).is_some() => {
                self.on_topic_wanted(state, &topic, false);
            }
            Command::Subscribe { topic } => {
                state.node_subscriptions.insert(topic.clone());
                return (!state.own_subscriptions.contains(&topic))
                    .then_some(Command::Subscribe { topic });
            }
            Command::Unsubscribe { topic } => {
                state.node_subscriptions.remove(&topic);
                let is_read = state.own_subscriptions.contains(&topic);
                return (!is_read).then_some(Command::Unsubscribe { topic });
            }
            Command::Reselect => {
                self.reselect(state, at);
                return Some(Command::Reselect);
            }
            other => return Some(other),
        }
        None
    }

    /// Handles the status or feedback of a server of ROS 2.
    fn on_server_message(&self, state: &mut State, at: Moment, topic: &str, payload: &[u8]) {
        self.shared.backlog.release(payload.len());
        let Some(names) = ActionNames::from_ros2_name(topic) else { return };
        let Some(action) = state.served.get_mut(&names.action) else { return };
        match topic == names.ros2_status() {
            true => action.on_status(at, payload, &mut state.out),
            false => action.on_feedback(at, payload, &mut state.out),
        }
    }

    fn on_topic_wanted(&self, state: &mut State, topic: &str, wanted: bool) {
        let Some(names) = ActionNames::from_ros2_name(topic) else { return };
        if let Some(action) = state.offered.get_mut(&names.action) {
            action.on_wanted(topic, wanted, &mut state.out);
        }
    }

    /// Takes the part of a gateway's event that is about actions; `true`: the node gets it as well.
    fn take_event(&self, state: &mut State, at: Moment, event: &Event) -> bool {
        match event {
            Event::Offered(topic) => {
                self.on_local_topic(state, at, topic);
                (self.selector)(ResourceName::Topic(&topic.name))
            }
            Event::Withdrawn { topic } => {
                self.on_local_topic_gone(state, at, topic);
                // The node ignores the withdrawal of a topic that it does not know.
                true
            }
            Event::Message { topic, source, payload, .. } => {
                self.on_message(state, at, topic, *source, payload);
                state.node_subscriptions.contains(topic) || !state.own_subscriptions.contains(topic)
            }
            Event::SourceGone { topic, source } => {
                if let Some((names, _)) = ActionNames::from_ros1_topic(topic)
                    && *topic == names.status()
                    && let Some(action) = state.offered.get_mut(&names.action)
                {
                    action.on_source_gone(at, *source);
                    self.changed.notify_one();
                }
                state.node_subscriptions.contains(topic) || !state.own_subscriptions.contains(topic)
            }
            Event::Wanted { topic, wanted } => {
                let Some((names, _)) = ActionNames::from_ros1_topic(topic) else { return true };
                if let Some(action) = state.offered.get_mut(&names.action) {
                    if *topic == names.goal() {
                        action.on_connected(at, *wanted, &mut state.out);
                    }
                    let own = [names.goal(), names.cancel()];
                    return !own.contains(topic);
                }
                !state.served.contains_key(&names.action)
            }
            _ => true,
        }
    }

    fn on_message(
        &self,
        state: &mut State,
        at: Moment,
        topic: &str,
        source: Source,
        payload: &[u8],
    ) {
        if !state.own_subscriptions.contains(topic) {
            return;
        }
        let Some((names, _)) = ActionNames::from_ros1_topic(topic) else { return };
        let out = &mut state.out;
        if let Some(action) = state.offered.get_mut(&names.action) {
            match topic {
                _ if *topic == names.status() => action.on_status(at, source, payload, out),
                _ if *topic == names.result() => action.on_result(at, source, payload, out),
                _ if *topic == names.feedback() => action.on_feedback(at, source, payload, out),
                _ => {}
            }
            // Its timers may have changed without an output.
            self.changed.notify_one();
        } else if let Some(action) = state.served.get_mut(&names.action) {
            match topic {
                _ if *topic == names.goal() => action.on_goal(at, payload, out),
                _ if *topic == names.cancel() => action.on_cancel(at, payload, out),
                _ => {}
            }
        }
    }

    /// Handles a topic that a local node publishes, which may be a topic of an action.
    fn on_local_topic(&self, state: &mut State, at: Moment, topic: &Topic) {
        let Some((names, end)) = ActionNames::from_ros1_topic(&topic.name) else { return };
        let is_new = !state.local_topics.contains_key(&names.action);
        if end == "cancel" || is_new && state.local_topics.len() >= MAX_ACTIONS {
            return;
        }
        let seen = state.local_topics.entry(names.action.clone()).or_default();
        let before = seen.0.insert(topic.name.clone(), topic.clone());
        let has_server = seen.has_server(&names);
        if state.served.get(&names.action).is_some_and(|it| !it.is_stopping()) && has_server {
            self.stop_serving(state, at, &names.action);
            let reason = format!("{} is not served: {LOCAL_SERVER}", names.action);
            self.refuse(state, names.action.clone(), reason);
        }
        let is_other = before.is_some_and(|before| before.type_hash != topic.type_hash);
        if is_other && topic.name != names.goal() {
            self.stop_offering(state, at, &names.action);
        }
        self.offer(state, names);
    }

    fn stop_offering(&self, state: &mut State, at: Moment, action: &str) {
        if let Some(action) = state.offered.get_mut(action).filter(|it| !it.is_stopping()) {
            action.stop(at, &mut state.out);
        }
        self.end_all(state, at);
    }

    /// The node's selector has changed.
    fn reselect(&self, state: &mut State, at: Moment) {
        let may_leave = |action: &String| self.may_leave(&ActionNames { action: action.clone() });
        let denied: Vec<_> = state.offered.keys().filter(|it| !may_leave(it)).cloned().collect();
        for action in denied {
            self.stop_offering(state, at, &action);
        }
        for action in state.local_topics.keys().cloned().collect::<Vec<_>>() {
            self.offer(state, ActionNames { action });
        }
    }

    fn may_leave(&self, names: &ActionNames) -> bool {
        (self.selector)(ResourceName::Service(&names.send_goal()))
    }

    /// Offers an action whose server has all its topics.
    fn offer(&self, state: &mut State, names: ActionNames) {
        let is_offered = |action: &OfferedAction| !action.is_stopping();
        if state.offered.get(&names.action).is_some_and(is_offered) || !self.may_leave(&names) {
            return;
        }
        let Some(LocalTopics(topics)) = state.local_topics.get(&names.action) else { return };
        let status = topics.get(&names.status());
        let (Some(result), Some(_)) = (topics.get(&names.result()), topics.get(&names.feedback()))
        else {
            return;
        };
        let name = result.type_name.strip_suffix("ActionResult");
        let (Some(name), true) = (name, status.is_some_and(|it| it.type_name == STATUS_ARRAY))
        else {
            return;
        };
        let mut parts = Parts::default();
        for (topic, part) in [
            (names.goal(), Part::Goal),
            (names.result(), Part::Result),
            (names.feedback(), Part::Feedback),
        ] {
            if let Some(topic) = topics.get(&topic) {
                parts.add(part, &topic.type_name, &topic.definition, Dialect::Ros1);
            }
        }
        let parts = parts.or_else_from(Parts::from_installed(name, Dialect::Ros1, &self.installed));
        match ActionType::new(name, parts, Parts::default()) {
            Ok(types) => {
                self.shared.troubles.clear(&names.action, "action");
                if let Some(before) = state.offered.remove(&names.action) {
                    before.end(&mut state.out);
                }
                let action = OfferedAction::new(names.clone(), &self.robot, types);
                action.start(&mut state.out);
                state.offered.insert(names.action, action);
            }
            Err(reason) => {
                let action = &names.action;
                let reason = format!(
                    "the action {action} ({name}) is not offered: {reason} below the folders of \
                     ros1: definitions"
                );
                self.refuse(state, names.action, reason);
            }
        }
    }

    fn on_local_topic_gone(&self, state: &mut State, at: Moment, topic: &str) {
        let Some((names, _)) = ActionNames::from_ros1_topic(topic) else { return };
        let Some(LocalTopics(topics)) = state.local_topics.get_mut(&names.action) else { return };
        topics.remove(topic);
        let has_server =
            state.local_topics.get(&names.action).is_some_and(|it| it.has_server(&names));
        if state.local_topics.get(&names.action).is_some_and(|it| it.0.is_empty()) {
            state.local_topics.remove(&names.action);
        }
        if topic != names.goal() {
            self.shared.troubles.clear(&names.action, "action");
            self.stop_offering(state, at, &names.action);
        }
        if topic == names.status() && !has_server && !state.served.contains_key(&names.action) {
            // A peer's server may have been refused because a local server had its name.
            self.serve(state, at, names);
        }
    }
}

impl Events for Actions {
    fn emit(&self, event: Event) {
        let mut state = lock(&self.state);
        if let Event::Message { topic, .. } = &event
            && !state.own_subscriptions.contains(topic)
        {
            return self.events.emit(event);
        }
        let passes = self.take_event(&mut state, Moment::now(), &event);
        if passes {
            self.events.emit(event);
        }
        self.flush(&mut state);
    }

    fn ended(&self, thread: &str, how: End) {
        self.events.ended(thread, how);
    }
}
