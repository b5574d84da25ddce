//! How an application is made.

use std::any::type_name;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use super::data::DataMap;
use super::handler::{Endpoint, Handler};
use super::middleware::{Identity, Layer, Middleware, Stack};
use super::needs::Needs;
use super::prepared::{ErasedRoute, Parts, Prepared};
use crate::service::connection::buffers::Buffers;
use crate::service::counters::Counters;
use crate::service::error::{BoxError, PrepareError};
use crate::service::protocol::Protocol;

/// Routes, middleware and shared data of a protocol's service. `L` is the middleware so far.
///
/// Each core has one of its own, made by what was given to [`Server::new`](crate::service::Server::new).
pub struct App<P: Protocol, L = Identity> {
    layers: L,
    draft: Draft<P>,
}

/// All of an application but the middleware around the next route.
struct Draft<P: Protocol> {
    protocol: P,
    /// In the order in which they were registered.
    routes: Vec<Registered<P>>,
    data: DataMap,
    transformations: u64,
    /// What is wrong with it, first of all.
    problem: Option<PrepareError>,
}

struct Registered<P: Protocol> {
    /// None for the fallback.
    id: Option<P::Id>,
    handler: &'static str,
    route: Box<dyn ErasedRoute<P>>,
}

impl<P: Protocol> App<P> {
    /// An application without routes.
    pub fn new(protocol: P) -> App<P> {
        let (routes, data) = (Vec::new(), DataMap::default());
        App { layers: Identity, draft: Draft { protocol, routes, data, transformations: 0, problem: None } }
    }
}

impl<P: Protocol, L: Layer<P>> App<P, L> {
    /// Shares `value` with all handlers, which get it by [`Data`](super::Data). There is one value of each type. What cores
    /// are to share is given to each of them, in an `Arc` for example.
    pub fn data<T: 'static>(mut self, value: T) -> App<P, L> {
        if !self.draft.data.insert(value) {
            self.draft.problem.get_or_insert(PrepareError::DuplicateData { data: type_name::<T>() });
        }
        self
    }

    /// Puts `middleware` around the routes that follow, inside of what was put there before.
    pub fn wrap<M: Middleware<P>>(self, middleware: M) -> App<P, Stack<L, M>> {
        let App { layers, draft } = self;
        App { layers: Stack { outer: layers, inner: Rc::new(middleware) }, draft }
    }

    /// Adds what `routes` adds; middleware that is put there stands around the routes of the group only.
    ///
    /// # Examples
    /// ```
    /// # use corelet::service::{App, Protocol, RequestError};
    /// # use corelet::service::app::{Incoming, before};
    /// # use tokio_util::codec::LinesCodec;
    /// # struct Lines;
    /// # impl Protocol for Lines {
    /// #     type Codec = LinesCodec;
    /// #     type Request = String;
    /// #     type Response = String;
    /// #     type Id = char;
    /// #     type Session = std::cell::Cell<bool>;
    /// #     fn codec(&self) -> LinesCodec { LinesCodec::new() }
    /// #     fn session(&self) -> std::cell::Cell<bool> { false.into() }
    /// #     fn id(&self, line: &String) -> Option<char> { line.chars().next() }
    /// # }
    /// let app = App::new(Lines)
    ///     .group(|admin| {
    ///         let known = before(async |incoming: &mut Incoming<Lines>| {
    ///             let is_known = incoming.connection().session().get();
    ///             is_known.then_some(()).ok_or(RequestError::failed("log in first"))
    ///         });
    ///         admin.wrap(known).route('x', async || "gone".to_owned())
    ///     })
    ///     .route('p', async || "pong".to_owned());
    /// assert_eq!(app.prepare().unwrap().routes(), 2);
    /// ```
    pub fn group<Inner: Layer<P>>(self, routes: impl FnOnce(App<P, L>) -> App<P, Inner>) -> App<P, L> {
        let layers = self.layers.clone();
        App { layers, draft: routes(self).draft }
    }

    /// Requests with `id` go to `handler`. That no two handlers have one id is seen to by [`prepare`](App::prepare).
    pub fn route<A: 'static>(self, id: P::Id, handler: impl Handler<P, A>) -> App<P, L> {
        self.register(Some(id), handler)
    }

    /// Requests with an id that no route has go to `handler`.
    pub fn fallback<A: 'static>(self, handler: impl Handler<P, A>) -> App<P, L> {
        self.register(None, handler)
    }

    fn register<H: Handler<P, A>, A: 'static>(mut self, id: Option<P::Id>, handler: H) -> App<P, L> {
        self.draft.transformations += self.layers.count();
        let route = self.layers.erase(Endpoint::new(handler));
        self.draft.routes.push(Registered { id, handler: type_name::<H>(), route });
        self
    }

    /// Puts it together, for all connections of this core.
    ///
    /// # Errors
    /// [`PrepareError`], for the first thing that cannot work: two handlers for one id, data that is missing or there twice, a
    /// handler that takes the request twice.
    pub fn prepare(self) -> Result<Prepared<P>, PrepareError> {
        let Draft { protocol, routes: registered, data, transformations, problem } = self.draft;
        if let Some(problem) = problem {
            return Err(problem);
        }
        let (mut ids, mut fallback) = (HashMap::default(), None);
        let (mut routes, mut names, mut handlers) = (Vec::new(), Vec::new(), Vec::new());
        for Registered { id, handler, route } in registered {
            let place = routes.len();
            let name = id.as_ref().map_or("fallback".to_owned(), |id| format!("{id:?}"));
            let before = match id.map(|id| ids.entry(id)) {
                Some(Entry::Occupied(entry)) => Some(*entry.get()),
                Some(Entry::Vacant(entry)) => {
                    entry.insert(place);
                    None
                }
                None => fallback.replace(place),
            };
            if let Some(before) = before {
                return Err(PrepareError::DuplicateRoute {
                    route: name,
                    first: handlers[before],
                    second: handler,
                });
            }
            let mut needs = Needs::new(&data, &name);
            route.needs(&mut needs);
            needs.finish()?;
            routes.push(route);
            names.push(name);
            handlers.push(handler);
        }
        count(transformations);
        Ok(Prepared::new(Parts {
            protocol,
            ids,
            routes,
            names,
            fallback,
            data,
            transformations,
            counters: Counters::default(),
            buffers: Buffers::default(),
        }))
    }
}

/// What an application can be made from: an [`App`], one that is [`Prepared`], or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no application of `{P}`",
    label = "not an application",
    note = "give an `App`, a `Prepared`, or a `Result` of either"
)]
pub trait IntoPrepared<P: Protocol> {
    /// Puts it together.
    ///
    /// # Errors
    /// Those of [`App::prepare`], and the error that is in the place of an application.
    fn into_prepared(self) -> Result<Prepared<P>, PrepareError>;
}

impl<P: Protocol, L: Layer<P>> IntoPrepared<P> for App<P, L> {
    fn into_prepared(self) -> Result<Prepared<P>, PrepareError> {
        self.prepare()
    }
}

impl<P: Protocol> IntoPrepared<P> for Prepared<P> {
    fn into_prepared(self) -> Result<Prepared<P>, PrepareError> {
        Ok(self)
    }
}

impl<P: Protocol, A: IntoPrepared<P>, E: Into<BoxError>> IntoPrepared<P> for Result<A, E> {
    fn into_prepared(self) -> Result<Prepared<P>, PrepareError> {
        let app = self.map_err(|error| {
            let error: BoxError = error.into();
            error.downcast().map_or_else(PrepareError::Factory, |error| *error)
        });
        app?.into_prepared()
    }
}

thread_local! {
    static PREPARATIONS: Cell<Preparations> = const { Cell::new(Preparations { applications: 0, transformations: 0 }) };
}

/// What has been put together on a core since it began. Serving connections changes neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preparations {
    /// Applications that were prepared.
    pub applications: u64,
    /// How often a handler was wrapped into a middleware for them.
    pub transformations: u64,
}

/// What has been put together on this core, or this thread, so far.
pub fn preparations() -> Preparations {
    PREPARATIONS.get()
}

fn count(transformations: u64) {
    let mut made = PREPARATIONS.get();
    made.applications += 1;
    made.transformations += transformations;
    PREPARATIONS.set(made);
}
