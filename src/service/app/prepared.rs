//! An application in the shape in which all connections of a core share it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

use super::extract::Incoming;
use super::middleware::Next;
use super::respond::Response;
use crate::service::connection::Connection;
use crate::service::connection::buffers::Buffers;
use crate::service::connection::slot::FutureSlot;
use crate::service::counters::{Counters, Counts};
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;

/// What a request comes to.
pub type Outcome<F> = Result<Response<F>, RequestError>;

/// A route, whatever its handler's type is.
pub(super) trait ErasedRoute<P: Protocol> {
    /// Puts the future that answers `incoming` into `slot`.
    fn start(&self, incoming: Incoming<P>, slot: &mut FutureSlot<Outcome<P::Response>>);
}

/// A handler with its middleware around it.
pub(super) struct Route<S>(pub(super) Rc<S>);

impl<P: Protocol, S: Next<P> + 'static> ErasedRoute<P> for Route<S> {
    fn start(&self, incoming: Incoming<P>, slot: &mut FutureSlot<Outcome<P::Response>>) {
        let service = Rc::clone(&self.0);
        slot.set(async move { service.run(incoming).await });
    }
}

struct Inner<P: Protocol> {
    protocol: P,
    routes: HashMap<P::Id, Box<dyn ErasedRoute<P>>, FxBuildHasher>,
    fallback: Option<Box<dyn ErasedRoute<P>>>,
    data: HashMap<TypeId, Rc<dyn Any>, FxBuildHasher>,
    transformations: u64,
    counters: Counters,
    buffers: Buffers,
}

/// An [`App`](super::App) put together. Cheap to clone; stays on its core.
pub struct Prepared<P: Protocol>(Rc<Inner<P>>);

impl<P: Protocol> Clone for Prepared<P> {
    fn clone(&self) -> Prepared<P> {
        Prepared(Rc::clone(&self.0))
    }
}

impl<P: Protocol> Prepared<P> {
    pub(super) fn new(
        protocol: P,
        routes: HashMap<P::Id, Box<dyn ErasedRoute<P>>, FxBuildHasher>,
        fallback: Option<Box<dyn ErasedRoute<P>>>,
        data: HashMap<TypeId, Rc<dyn Any>, FxBuildHasher>,
        transformations: u64,
    ) -> Prepared<P> {
        let (counters, buffers) = (Counters::default(), Buffers::default());
        Prepared(Rc::new(Inner { protocol, routes, fallback, data, transformations, counters, buffers }))
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.0.protocol
    }

    /// How often a handler was wrapped into a middleware to make this.
    pub fn transformations(&self) -> u64 {
        self.0.transformations
    }

    /// What its connections on this core have done so far.
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    #[inline]
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.0.buffers
    }

    pub(super) fn data<T: 'static>(&self) -> Option<Rc<T>> {
        Rc::clone(self.0.data.get(&TypeId::of::<T>())?).downcast().ok()
    }

    /// Begins to answer `request` in `slot`.
    pub(crate) fn start(
        &self,
        request: P::Request,
        connection: &Connection<P>,
        slot: &mut FutureSlot<Outcome<P::Response>>,
    ) -> Result<(), RequestError> {
        let id = self.0.protocol.id(&request).ok_or(RequestError::NoRoute)?;
        let route = self.0.routes.get(&id).or(self.0.fallback.as_ref());
        let route = route.ok_or_else(|| RequestError::UnknownRoute { id: format!("{id:?}") })?;
        route.start(Incoming::new(request, connection.clone()), slot);
        Ok(())
    }
}
