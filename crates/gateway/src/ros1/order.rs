// SPDX-License-Identifier: Apache-2.0
//! What the gateway's thread gets from other threads.

use crate::{Command, Event};

pub(super) enum Order {
    Execute(Command),
    /// A command for an action.
    ExecuteForAction(Command),
    /// An event in place of a command that the backlog did not admit.
    Emit(Event),
    Stop,
}
