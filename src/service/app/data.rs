//! What all handlers of an application share.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

use super::extract::{Extract, Incoming};
use super::needs::Needs;
use crate::runtime::executor::contain;
use crate::service::error::Rejection;
use crate::service::protocol::Protocol;

/// One value of each type.
#[derive(Default)]
pub(super) struct DataMap(HashMap<TypeId, Rc<dyn Any>, FxBuildHasher>);

impl DataMap {
    /// False when there was one of its type, which stays.
    pub(super) fn insert<T: 'static>(&mut self, value: T) -> bool {
        let is_new = !self.has::<T>();
        if is_new {
            self.0.insert(TypeId::of::<T>(), Rc::new(value));
        }
        is_new
    }

    pub(super) fn has<T: 'static>(&self) -> bool {
        self.0.contains_key(&TypeId::of::<T>())
    }

    pub(super) fn get<T: 'static>(&self) -> Option<Data<T>> {
        Rc::clone(self.0.get(&TypeId::of::<T>())?).downcast().ok().map(Data)
    }
}

impl fmt::Debug for DataMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataMap").finish_non_exhaustive()
    }
}

impl Drop for DataMap {
    /// One value's panic keeps none of the others from being dropped.
    fn drop(&mut self) {
        for (_, value) in self.0.drain() {
            contain("an application's data", || drop(value));
        }
    }
}

/// What was shared by [`App::data`](super::App::data): one value for all connections of a core. Cheap to clone; stays on
/// its core.
///
/// That a handler's data is there is seen to when the application is prepared.
pub struct Data<T>(Rc<T>);

impl<T> Clone for Data<T> {
    fn clone(&self) -> Data<T> {
        Data(Rc::clone(&self.0))
    }
}

impl<T> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Data").field(&self.0).finish()
    }
}

impl<P: Protocol, T: 'static> Extract<P> for Data<T> {
    fn extract(incoming: &mut Incoming<P>) -> Result<Data<T>, Rejection> {
        incoming.data().ok_or(Rejection::new(std::any::type_name::<Data<T>>()))
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.data::<T>();
    }
}
