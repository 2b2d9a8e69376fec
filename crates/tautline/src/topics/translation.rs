// SPDX-License-Identifier: Apache-2.0
//! The translation between a peer's topic or service and this robot's ROS.

use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Translation<T> {
    /// None is needed: both use the same ROS.
    None,
    /// Requested, without a result yet.
    Requested,
    Impossible,
    Ready(Arc<T>),
}

impl<T> Translation<T> {
    /// Returns the translator, if messages are translated.
    pub(super) fn translator(&self) -> Option<Arc<T>> {
        match self {
            Self::Ready(translator) => Some(translator.clone()),
            _ => None,
        }
    }

    /// As [`Self::translator`], but borrowed.
    pub(super) fn translator_ref(&self) -> Option<&T> {
        match self {
            Self::Ready(translator) => Some(translator),
            _ => None,
        }
    }

    /// Whether no translation is needed, or the translation is known.
    pub(super) fn is_known(&self) -> bool {
        matches!(self, Self::None | Self::Ready(_))
    }
}

impl<T> From<Option<T>> for Translation<T> {
    /// Without a translator, no translation is needed.
    fn from(translator: Option<T>) -> Self {
        translator.map_or(Self::None, |translator| Self::Ready(Arc::new(translator)))
    }
}
