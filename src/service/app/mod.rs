//! The application: routes, middleware and shared data, put together once for each core.

mod extract;
mod handler;
mod middleware;
mod prepared;
mod respond;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

pub use extract::{Data, Extract, Frame, Incoming};
pub use handler::Handler;
pub use middleware::{Identity, Layer, Middleware, Next, Stack};
pub use prepared::{Outcome, Prepared};
pub use respond::{Reply, Respond, Response, Streamed};

use handler::Endpoint;
use prepared::{ErasedRoute, Route};

use super::protocol::Protocol;

/// Routes, middleware and shared data of a protocol's service.
pub struct App<P: Protocol, L = Identity> {
    protocol: P,
    layers: L,
    routes: HashMap<P::Id, Box<dyn ErasedRoute<P>>, FxBuildHasher>,
    fallback: Option<Box<dyn ErasedRoute<P>>>,
    data: HashMap<TypeId, Rc<dyn Any>, FxBuildHasher>,
    transformations: u64,
}

impl<P: Protocol> App<P> {
    /// An application without routes.
    pub fn new(protocol: P) -> App<P> {
        App {
            protocol,
            layers: Identity,
            routes: HashMap::default(),
            fallback: None,
            data: HashMap::default(),
            transformations: 0,
        }
    }
}

impl<P: Protocol, L: Layer<P>> App<P, L> {
    /// Shares `value` with all handlers, which get it by [`Data`].
    pub fn data<T: 'static>(mut self, value: T) -> App<P, L> {
        self.data.insert(TypeId::of::<T>(), Rc::new(value));
        self
    }

    /// Puts `middleware` around the routes that follow, inside of those that were put there before.
    pub fn wrap<M: Middleware<P> + Clone>(self, middleware: M) -> App<P, Stack<L, M>> {
        let App { protocol, layers, routes, fallback, data, transformations } = self;
        let layers = Stack { outer: layers, inner: middleware };
        App { protocol, layers, routes, fallback, data, transformations }
    }

    /// Requests with `id` go to `handler`.
    ///
    /// # Panics
    /// When `id` has a handler already.
    pub fn route<A: 'static>(mut self, id: P::Id, handler: impl Handler<P, A>) -> App<P, L> {
        let name = format!("{id:?}");
        let route = self.prepare_route(handler);
        assert!(self.routes.insert(id, route).is_none(), "there are two handlers for {name}");
        self
    }

    /// Requests with an id that no route has go to `handler`.
    pub fn fallback<A: 'static>(mut self, handler: impl Handler<P, A>) -> App<P, L> {
        self.fallback = Some(self.prepare_route(handler));
        self
    }

    fn prepare_route<A: 'static>(&mut self, handler: impl Handler<P, A>) -> Box<dyn ErasedRoute<P>> {
        self.transformations += self.layers.count();
        self.layers.erase(Endpoint::new(handler))
    }

    /// Puts it together, for all connections of this core.
    pub fn prepare(self) -> Prepared<P> {
        let App { protocol, routes, fallback, data, transformations, .. } = self;
        Prepared::new(protocol, routes, fallback, data, transformations)
    }
}

impl<P: Protocol, L: Layer<P>> From<App<P, L>> for Prepared<P> {
    fn from(app: App<P, L>) -> Prepared<P> {
        app.prepare()
    }
}

fn erase<P: Protocol>(service: impl Next<P> + 'static) -> Box<dyn ErasedRoute<P>> {
    Box::new(Route(Rc::new(service)))
}
