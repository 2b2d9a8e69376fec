// SPDX-License-Identifier: Apache-2.0
//! Serves the actions of peers whose services and topics are all known, unless a server of this robot
//! has the name of the action.

use super::served::ServedAction;
use super::{ActionNames, Actions, LOCAL_SERVER, MAX_ACTIONS, Moment, PeerOffer, State};
use crate::lock::lock;
use crate::types::Dialect;
use crate::types::action::{ActionType, Part, Parts, action_of_type};
use crate::types::trust::trusted_service;
use crate::{Event, Service, Topic};

impl Actions {
    /// Records a service that a peer offers and that belongs to an action.
    pub(super) fn on_service_offered(&self, state: &mut State, at: Moment, mut service: Service) {
        let Some((names, _)) = ActionNames::from_service(&service.name) else { return };
        // The peer's text counts only if it has the offered hash; installed types take precedence.
        service.definition = trusted_service(&service, &self.installed).unwrap_or_else(|reason| {
            tracing::warn!(service = service.name, %reason, "a peer's definition is not used");
            "".into()
        });
        let is_new = !state.peer_offers.contains_key(&names.action);
        if is_new && state.peer_offers.len() >= MAX_ACTIONS {
            let reason = format!("{MAX_ACTIONS} actions of peers are served already");
            return state.out.event(Event::Refused { topic: names.action, reason });
        }
        let found = state.peer_offers.entry(names.action.clone()).or_default();
        if found.services.insert(service.name.clone(), service.clone()) != Some(service) {
            self.serve(state, at, names);
        }
    }

    pub(super) fn on_topic_advertised(&self, state: &mut State, at: Moment, topic: Topic) {
        let Some(names) = ActionNames::from_ros2_name(&topic.name) else { return };
        let is_new = !state.peer_offers.contains_key(&names.action);
        if is_new && state.peer_offers.len() >= MAX_ACTIONS {
            return;
        }
        let found = state.peer_offers.entry(names.action.clone()).or_default();
        if found.topics.insert(topic.name.clone(), topic.clone()).as_ref() == Some(&topic) {
            return;
        }
        match state.served.get(&names.action).filter(|action| !action.is_stopping()) {
            // Advertised again: the node needs to know again whether the topic is wanted.
            Some(action) => action.emit_wanted(true, &mut state.out),
            None => self.serve(state, at, names),
        }
    }

    /// Serves an action if all its parts are known.
    pub(super) fn serve(&self, state: &mut State, at: Moment, names: ActionNames) {
        let Some(found) = state.peer_offers.get(&names.action) else { return };
        let all = names.services().into_iter().chain(names.ros2_topics());
        let is_known =
            |name: &String| found.services.contains_key(name) || found.topics.contains_key(name);
        if !all.into_iter().all(|name| is_known(&name)) {
            return;
        }
        let types = self.types_of_peer(&names, found);
        self.stop_serving(state, at, &names.action);
        self.end_now(state, &names.action);
        let refused = match types {
            _ if state
                .local_topics
                .get(&names.action)
                .is_some_and(|seen| seen.has_server(&names)) =>
            {
                Err(LOCAL_SERVER.to_owned())
            }
            types => types,
        };
        match refused {
            Ok(types) => {
                let action = ServedAction::new(at, names.clone(), &self.robot, types);
                lock(&self.served).insert(names.action.clone());
                action.start(&mut state.out);
                state.served.insert(names.action, action);
            }
            Err(reason) => {
                let reason = format!("the action {} is not served: {reason}", names.action);
                self.refuse(state, names.action, reason);
            }
        }
    }

    /// Reports a refusal in status and log.
    pub(super) fn refuse(&self, state: &mut State, topic: String, reason: String) {
        if self.shared.troubles.set(&topic, "action", reason.clone()) {
            state.out.event(Event::Refused { topic, reason });
        }
    }

    fn types_of_peer(&self, names: &ActionNames, found: &PeerOffer) -> Result<ActionType, String> {
        let goal = found.services.get(&names.send_goal());
        let type_name = goal.map(|service| service.type_name.as_str()).unwrap_or_default();
        let Some((name, _)) = action_of_type(type_name) else {
            return Err(format!("'{type_name}' is no type of a goal of ROS 2"));
        };
        let mut theirs = Parts::default();
        for (service, part) in [(names.send_goal(), Part::Goal), (names.get_result(), Part::Result)]
        {
            if let Some(service) = found.services.get(&service) {
                theirs.add(part, &service.type_name, &service.definition, Dialect::Ros2);
            }
        }
        if let Some(topic) = found.topics.get(&names.ros2_feedback()) {
            theirs.add(Part::Feedback, &topic.type_name, &topic.definition, Dialect::Ros2);
        }
        let own = Parts::from_installed(&name, Dialect::Ros1, &self.installed);
        ActionType::new(&name, own, theirs)
    }

    /// Records that a peer has withdrawn a service or topic of an action.
    pub(super) fn on_part_withdrawn(&self, state: &mut State, at: Moment, name: &str) {
        let names = ActionNames::from_service(name)
            .map(|(names, _)| names)
            .or(ActionNames::from_ros2_name(name));
        let Some(names) = names else { return };
        if let Some(found) = state.peer_offers.get_mut(&names.action) {
            found.services.remove(name);
            found.topics.remove(name);
            if found.services.is_empty() && found.topics.is_empty() {
                state.peer_offers.remove(&names.action);
            }
        }
        self.shared.troubles.clear(&names.action, "action");
        self.stop_serving(state, at, &names.action);
    }

    pub(super) fn stop_serving(&self, state: &mut State, at: Moment, action: &str) {
        if let Some(action) = state.served.get_mut(action).filter(|it| !it.is_stopping()) {
            action.stop(at, &mut state.out);
        }
        self.end_all(state, at);
    }

    fn end_now(&self, state: &mut State, action: &str) {
        if let Some(action) = state.served.remove(action) {
            action.end(&mut state.out);
        }
    }
}
