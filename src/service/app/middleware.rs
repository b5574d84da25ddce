//! What stands between a connection and its handlers.

use std::any::type_name;
use std::future::Future;
use std::rc::Rc;

use super::extract::Incoming;
use super::needs::Needs;
use super::prepared::{ErasedRoute, Outcome, Route, Service};
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;

/// The rest of the way to a handler, and the handler itself.
pub trait Next<P: Protocol> {
    /// Goes on with the request.
    ///
    /// # Cancel safety
    /// That of the handler and of the middleware on the way.
    fn run(&self, incoming: &mut Incoming<P>) -> impl Future<Output = Outcome<P::Response>>;
}

/// Sees each request before its handler, and what became of it after.
///
/// It can answer in the handler's place, by not running `next`; change the request before, and the response or the error
/// after; await whatever it likes before and after; and keep what belongs to one request in its local variables. What it
/// keeps in itself is one value for all routes it stands around, on each core. It does not see panics, which go past it to the
/// connection.
///
/// Middleware is put together with the handlers when the application is made, by type: a request passes it by ordinary calls, in
/// one future, without an allocation.
///
/// # Examples
/// ```
/// use std::cell::Cell;
/// use corelet::service::app::{Incoming, Middleware, Next, Outcome};
/// use corelet::service::Protocol;
///
/// #[derive(Default)]
/// struct CountErrors(Cell<u64>);
///
/// impl<P: Protocol> Middleware<P> for CountErrors {
///     async fn handle<N: Next<P>>(&self, incoming: &mut Incoming<P>, next: &N) -> Outcome<P::Response> {
///         let outcome = next.run(incoming).await;
///         if outcome.is_err() {
///             self.0.set(self.0.get() + 1);
///         }
///         outcome
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no middleware of `{P}`",
    label = "does not implement `Middleware<{P}>`",
    note = "implement `Middleware<{P}>` for it, or wrap an asynchronous closure by `before` or `after`"
)]
pub trait Middleware<P: Protocol>: 'static {
    /// Handles `incoming`, usually by running `next`.
    fn handle<N: Next<P>>(
        &self,
        incoming: &mut Incoming<P>,
        next: &N,
    ) -> impl Future<Output = Outcome<P::Response>>;

    /// Says what it needs, once for each route, when the application is prepared.
    fn needs(&self, _needs: &mut Needs<'_>) {}
}

/// No middleware.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

/// A middleware inside of others.
#[derive(Debug)]
pub struct Stack<L, M> {
    pub(super) outer: L,
    /// One for all routes.
    pub(super) inner: Rc<M>,
}

impl<L: Clone, M> Clone for Stack<L, M> {
    fn clone(&self) -> Stack<L, M> {
        Stack { outer: self.outer.clone(), inner: Rc::clone(&self.inner) }
    }
}

/// Middleware that has been put together, outermost first: [`Identity`] and [`Stack`]s on it.
pub trait Layer<P: Protocol>: Clone + sealed::Sealed<P> {}

mod sealed {
    use super::{ErasedRoute, Protocol, Service};

    pub trait Sealed<P: Protocol> {
        /// How many there are.
        fn count(&self) -> u64;

        /// Puts them around `service`.
        #[allow(private_interfaces, private_bounds)]
        fn erase<S: Service<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>>;
    }
}

impl<P: Protocol> sealed::Sealed<P> for Identity {
    fn count(&self) -> u64 {
        0
    }

    #[allow(private_interfaces, private_bounds)]
    fn erase<S: Service<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>> {
        Box::new(Route::new(service))
    }
}

impl<P: Protocol> Layer<P> for Identity {}

impl<P: Protocol, L: Layer<P>, M: Middleware<P>> sealed::Sealed<P> for Stack<L, M> {
    fn count(&self) -> u64 {
        self.outer.count() + 1
    }

    #[allow(private_interfaces, private_bounds)]
    fn erase<S: Service<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>> {
        self.outer.erase(Wrapped { middleware: Rc::clone(&self.inner), inner: service })
    }
}

impl<P: Protocol, L: Layer<P>, M: Middleware<P>> Layer<P> for Stack<L, M> {}

/// A service with a middleware around it.
struct Wrapped<M, S> {
    middleware: Rc<M>,
    inner: S,
}

impl<P: Protocol, M: Middleware<P>, S: Next<P>> Next<P> for Wrapped<M, S> {
    #[inline]
    fn run(&self, incoming: &mut Incoming<P>) -> impl Future<Output = Outcome<P::Response>> {
        self.middleware.handle(incoming, &self.inner)
    }
}

impl<P: Protocol, M: Middleware<P>, S: Service<P>> Service<P> for Wrapped<M, S> {
    fn needs(&self, needs: &mut Needs<'_>) {
        needs.of(type_name::<M>());
        self.middleware.needs(needs);
        self.inner.needs(needs);
    }
}

/// The middleware that [`before`] makes.
#[derive(Clone, Copy, Debug)]
pub struct Before<F>(F);

/// A middleware that looks at the request, may change it, and ends it by an error.
///
/// # Examples
/// ```
/// # use corelet::service::{App, Connection, Protocol, RequestError, Verdict};
/// # use corelet::service::app::{Incoming, before};
/// # use tokio_util::codec::LinesCodec;
/// # struct Lines;
/// # impl Protocol for Lines {
/// #     type Codec = LinesCodec;
/// #     type Request = String;
/// #     type Response = String;
/// #     type Id = char;
/// #     type Session = ();
/// #     fn codec(&self) -> LinesCodec { LinesCodec::new() }
/// #     fn session(&self) {}
/// #     fn id(&self, line: &String) -> Option<char> { line.chars().next() }
/// # }
/// let app = App::new(Lines).wrap(before(async |incoming: &mut Incoming<Lines>| {
///     match incoming.request() {
///         Some(line) if line.len() > 100 => Err(RequestError::failed("too long")),
///         _ => Ok(()),
///     }
/// }));
/// ```
pub fn before<P: Protocol, F>(function: F) -> Before<F>
where
    F: AsyncFn(&mut Incoming<P>) -> Result<(), RequestError> + 'static,
{
    Before(function)
}

impl<P: Protocol, F> Middleware<P> for Before<F>
where
    F: AsyncFn(&mut Incoming<P>) -> Result<(), RequestError> + 'static,
{
    async fn handle<N: Next<P>>(&self, incoming: &mut Incoming<P>, next: &N) -> Outcome<P::Response> {
        (self.0)(incoming).await?;
        next.run(incoming).await
    }
}

/// The middleware that [`after`] makes.
#[derive(Clone, Copy, Debug)]
pub struct After<F>(F);

/// A middleware that looks at what became of a request, and says what is to become of it: another response, or an error.
/// What an extractor has taken from `Incoming` is not there any more.
pub fn after<P: Protocol, F>(function: F) -> After<F>
where
    F: AsyncFn(&Incoming<P>, Outcome<P::Response>) -> Outcome<P::Response> + 'static,
{
    After(function)
}

impl<P: Protocol, F> Middleware<P> for After<F>
where
    F: AsyncFn(&Incoming<P>, Outcome<P::Response>) -> Outcome<P::Response> + 'static,
{
    async fn handle<N: Next<P>>(&self, incoming: &mut Incoming<P>, next: &N) -> Outcome<P::Response> {
        let outcome = next.run(incoming).await;
        (self.0)(incoming, outcome).await
    }
}
