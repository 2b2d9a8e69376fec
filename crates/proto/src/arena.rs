// SPDX-License-Identifier: Apache-2.0
//! Lists with an id type of their own: the id of a peer cannot index links.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A type of ids. An id is an index into an [`Arena`].
pub(crate) trait Id: Copy {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

/// Implements [`Id`] for a type around a `u32`.
macro_rules! id {
    ($($name:ident),+) => {$(
        impl crate::arena::Id for $name {
            fn from_index(index: usize) -> Self {
                Self(index as u32)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}
pub(crate) use id;

/// A list whose items are replaced but never removed, so that ids stay valid.
#[derive(Debug)]
pub(crate) struct Arena<I, T> {
    items: Vec<T>,
    ids: PhantomData<I>,
}

impl<I: Id, T> Arena<I, T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), ids: PhantomData }
    }

    /// Appends an item.
    pub(crate) fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from_index(self.items.len() - 1)
    }

    /// The ids of all items, without borrowing the list.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// The items by ascending id.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// The items by ascending id.
    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// The first item for which `is_sought` holds.
    pub(crate) fn position(&self, is_sought: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(is_sought).map(I::from_index)
    }
}

impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}
