// SPDX-License-Identifier: Apache-2.0
//! Definitions of types, which ROS 2 does not transmit: those that are installed.

use crate::types::installed::{Cache, InstalledTypes};
use crate::types::{Dialect, action};
use std::sync::Arc;

/// The definitions that were needed so far.
pub struct Definitions(Cache);

impl Definitions {
    pub fn new(installed: InstalledTypes) -> Self {
        Self(Cache::new(installed))
    }

    /// The definition of a type of a topic or service. Empty if it is not installed: the type still passes
    /// between robots with ROS 2.
    pub fn get(&mut self, type_name: &str) -> Arc<str> {
        let read = |installed: &InstalledTypes| match type_name.split('/').nth(1) {
            Some("action") => action::installed_part(type_name, installed),
            Some("srv") => installed.service(type_name, Dialect::Ros2),
            _ => installed.definition(type_name, Dialect::Ros2),
        };
        self.0.get(type_name, read, |error| {
            tracing::info!("robots with ROS 1 need their own definition of {type_name}: {error}");
        })
    }
}
