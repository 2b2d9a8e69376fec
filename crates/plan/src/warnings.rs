// SPDX-License-Identifier: Apache-2.0
//! Warnings about the file of one node.

use crate::inputs;
use tautline::config::{Checked, Warning};

/// Adds a warning for each radio that cannot carry the expected topics.
#[must_use]
pub fn with_warnings(mut checked: Checked) -> Checked {
    for (interface, at) in checked.places_of_channels.clone() {
        if let Some(text) = inputs::warning(&checked.config, &interface) {
            checked.warn(Warning { at, key: format!("radios.{interface}.channel"), text });
        }
    }
    checked
}
