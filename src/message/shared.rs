//! Copy-on-write values, which several requests share.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// A copy-on-write value, which is owned by one request or shared by several.
#[derive(Clone, Debug)]
pub(crate) enum Shared<T> {
    /// The value belongs to one request. Cloning the variant clones the value.
    Owned(T),
    Shared(Arc<T>),
}

// === impl Shared ===

impl<T: Clone + Default> Shared<T> {
    /// Creates a shared value. If `value` is `None`, creates an owned default value.
    pub(super) fn of(value: Option<&Arc<T>>) -> Self {
        value.map_or_else(Self::default, |value| Self::Shared(value.clone()))
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the value for sharing it with other requests. Clones it if it is not shared yet.
    pub(super) fn to_shared(&self) -> Arc<T> {
        match self {
            Self::Owned(value) => Arc::new(value.clone()),
            Self::Shared(value) => value.clone(),
        }
    }

    pub(crate) fn into_owned(self) -> T {
        match self {
            Self::Owned(value) => value,
            Self::Shared(value) => Arc::unwrap_or_clone(value),
        }
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::Owned(T::default())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Owned(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Owned(value) => value,
            Self::Shared(value) => Arc::make_mut(value),
        }
    }
}
