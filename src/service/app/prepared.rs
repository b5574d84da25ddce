//! An application in the shape in which all connections of a core share it.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

use super::data::{Data, DataMap};
use super::extract::Incoming;
use super::middleware::Next;
use super::needs::Needs;
use super::respond::Response;
use crate::runtime::executor::contain;
use crate::service::connection::Connection;
use crate::service::connection::buffers::Buffers;
use crate::service::connection::slot::FutureSlot;
use crate::service::counters::{Counters, Counts};
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;

/// What a request comes to.
pub type Outcome<F> = Result<Response<F>, RequestError>;

/// A handler, with or without middleware around it.
pub(super) trait Service<P: Protocol>: Next<P> {
    /// Says what is needed, from the outside in.
    fn needs(&self, needs: &mut Needs<'_>);
}

/// A route, whatever its handler's type is.
pub(super) trait ErasedRoute<P: Protocol> {
    /// Puts the future that answers `incoming` into `slot`.
    fn start(&self, incoming: Incoming<P>, slot: &mut FutureSlot<Outcome<P::Response>>);

    /// As in [`Service`].
    fn needs(&self, needs: &mut Needs<'_>);
}

/// A handler with its middleware around it.
pub(super) struct Route<S>(Rc<S>);

impl<S> Route<S> {
    pub(super) fn new(service: S) -> Route<S> {
        Route(Rc::new(service))
    }
}

impl<P: Protocol, S: Service<P> + 'static> ErasedRoute<P> for Route<S> {
    fn start(&self, mut incoming: Incoming<P>, slot: &mut FutureSlot<Outcome<P::Response>>) {
        let service = Rc::clone(&self.0);
        slot.set(|| async move { service.run(&mut incoming).await });
    }

    fn needs(&self, needs: &mut Needs<'_>) {
        self.0.needs(needs);
    }
}

/// The parts of an application that its connections share.
pub(super) struct Parts<P: Protocol> {
    pub(super) protocol: P,
    /// Where the route of an id is in `routes`.
    pub(super) ids: HashMap<P::Id, usize, FxBuildHasher>,
    pub(super) routes: Vec<Box<dyn ErasedRoute<P>>>,
    /// What the routes are called, each at the place of its route.
    pub(super) names: Vec<String>,
    pub(super) fallback: Option<usize>,
    pub(super) data: DataMap,
    pub(super) transformations: u64,
    pub(super) counters: Counters,
    pub(super) buffers: Buffers,
}

impl<P: Protocol> Drop for Parts<P> {
    /// One handler's panic keeps none of the others from being dropped.
    fn drop(&mut self) {
        for route in self.routes.drain(..) {
            contain("a handler", || drop(route));
        }
    }
}

/// An [`App`](super::App) put together. Cheap to clone; stays on its core.
pub struct Prepared<P: Protocol>(Rc<Parts<P>>);

impl<P: Protocol> Clone for Prepared<P> {
    fn clone(&self) -> Prepared<P> {
        Prepared(Rc::clone(&self.0))
    }
}

impl<P: Protocol> fmt::Debug for Prepared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("routes", &self.0.names).finish_non_exhaustive()
    }
}

/// What [`Prepared::start`] has come to.
pub(crate) struct Started {
    /// The place of its route, for [`route_name`](Prepared::route_name); of none when there is none.
    pub(crate) route: usize,
    /// What the answers to the request are to be marked with.
    pub(crate) correlation: Option<u64>,
    /// Whether the slot has the request's future.
    pub(crate) result: Result<(), RequestError>,
}

impl<P: Protocol> Prepared<P> {
    pub(super) fn new(parts: Parts<P>) -> Prepared<P> {
        Prepared(Rc::new(parts))
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.0.protocol
    }

    /// How many routes there are, the fallback included.
    pub fn routes(&self) -> usize {
        self.0.routes.len()
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

    #[inline]
    pub(super) fn data<T: 'static>(&self) -> Option<Data<T>> {
        self.0.data.get()
    }

    pub(crate) fn route_name(&self, route: usize) -> &str {
        self.0.names.get(route).map_or("", String::as_str)
    }

    /// Begins to answer `request` in `slot`. A panic of what the protocol says of the request is the request's error.
    #[inline]
    pub(crate) fn start(
        &self,
        request: P::Request,
        connection: &Connection<P>,
        slot: &mut FutureSlot<Outcome<P::Response>>,
    ) -> Started {
        let (mut correlation, mut route) = (None, usize::MAX);
        let started = catch_unwind(AssertUnwindSafe(|| {
            correlation = self.0.protocol.correlation(&request);
            let id = self.0.protocol.id(&request).ok_or(RequestError::NoRoute)?;
            let Some(place) = self.0.ids.get(&id).copied().or(self.0.fallback) else {
                return Err(RequestError::UnknownRoute { id: show(&id) });
            };
            route = place;
            let Some(service) = self.0.routes.get(place) else { return Err(RequestError::NoRoute) };
            service.start(Incoming::new(request, correlation, place, connection.clone()), slot);
            Ok(())
        }));
        let result = started.unwrap_or_else(|payload| Err(RequestError::from_panic(payload)));
        Started { route, correlation, result }
    }
}

/// `id` as `Debug` shows it, if it is not long.
fn show(id: &impl fmt::Debug) -> String {
    struct Short(String);

    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            const LONGEST: usize = 80;
            for letter in text.chars() {
                if self.0.len() >= LONGEST {
                    return Err(fmt::Error);
                }
                self.0.push(letter);
            }
            Ok(())
        }
    }

    let mut short = Short(String::new());
    if fmt::Write::write_fmt(&mut short, format_args!("{id:?}")).is_err() {
        short.0.push('…');
    }
    short.0
}
