// SPDX-License-Identifier: Apache-2.0
//! The check of peers' calls and responses: one that cannot be of its type would end a local server
//! or client.

use super::super::remote::{Unchecked, doubt};
use super::super::{ChannelKey, Topics};
use crate::topics::Context;
use tautline_gateway::Outcome;
use tautline_proto::PeerId;

/// Why calls of peers to a service of this robot are not checked.
const NOT_INSTALLED: &str = "passed as they are: not installed here";

impl Topics {
    /// Returns why a peer's call is not passed to the local server, if it is malformed.
    pub(super) fn malformed_call(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        service: &str,
        request: &[u8],
    ) -> Option<String> {
        let now = cx.now;
        let local = self.services.local.get_mut(service)?;
        let error = local.checker.as_ref()?.request.check(request).err()?;
        let type_name = &local.service.type_name;
        let reason = format!("{service}: the request does not match {type_name}: {error}");
        let is_due = local.told.is_due(now);
        self.count_malformed(cx, peer, &reason, is_due);
        Some(reason)
    }

    /// Returns the outcome of a call to a peer; a response that is malformed is an error.
    pub(super) fn checked_outcome(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        outcome: Outcome,
    ) -> Outcome {
        let now = cx.now;
        let response = outcome?;
        let Some(remote) = self.services.remote.get_mut(&key) else { return Ok(response) };
        let Some(checker) = remote.check.checker() else { return Ok(response) };
        let Err(error) = checker.response.check(&response) else { return Ok(response) };
        let (name, type_name) = (&remote.service.name, &remote.service.type_name);
        let reason = format!("{name}: the response does not match {type_name}: {error}");
        let is_due = remote.told.is_due(now);
        self.count_malformed(cx, key.peer, &reason, is_due);
        Err(reason)
    }

    fn count_malformed(&mut self, cx: &mut Context<'_>, peer: PeerId, reason: &str, is_due: bool) {
        self.calls_malformed += 1;
        if is_due {
            let text = format!("'{}' sent a malformed message: {reason}", cx.peers.name(peer));
            cx.peer_notice(peer, &text);
        }
    }

    /// Returns the services whose calls or responses no shared definition checks.
    pub(in crate::topics) fn unchecked_services(&self) -> impl Iterator<Item = Unchecked<'_>> {
        let local = self.services.local.values();
        let calls = local.filter(|it| it.checker.is_none() && !it.answers.is_empty());
        let calls = calls.map(|it| Unchecked {
            peer: None,
            name: &it.service.name,
            type_name: &it.service.type_name,
            doubt: NOT_INSTALLED,
        });
        let responses = self.services.remote.iter().filter(|(_, it)| it.can_be_served());
        let responses = responses.filter_map(|(key, it)| {
            let (peer, service) = (Some(key.peer), &it.service);
            let (name, type_name) = (service.name.as_str(), service.type_name.as_str());
            Some(Unchecked { peer, name, type_name, doubt: doubt(&it.check)? })
        });
        calls.chain(responses)
    }
}
