//! What stands between a connection and its handlers.

use std::future::Future;

use super::erase;
use super::extract::Incoming;
use super::prepared::{ErasedRoute, Outcome};
use crate::service::protocol::Protocol;

/// The rest of the way to a handler, and the handler itself.
pub trait Next<P: Protocol> {
    /// Goes on with the request.
    fn run(&self, incoming: Incoming<P>) -> impl Future<Output = Outcome<P::Response>>;
}

/// Sees each request before its handler, and the outcome after it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no middleware of `{P}`",
    label = "does not implement `Middleware<{P}>`"
)]
pub trait Middleware<P: Protocol>: 'static {
    /// Handles `incoming`, usually by running `next`.
    fn handle<N: Next<P>>(
        &self,
        incoming: Incoming<P>,
        next: &N,
    ) -> impl Future<Output = Outcome<P::Response>>;
}

/// No middleware.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

/// A middleware inside of others.
#[derive(Clone, Copy, Debug)]
pub struct Stack<L, M> {
    pub(super) outer: L,
    pub(super) inner: M,
}

/// Middleware that has been put together, outermost first.
pub trait Layer<P: Protocol>: sealed::Sealed<P> {}

mod sealed {
    use super::{ErasedRoute, Next, Protocol};

    pub trait Sealed<P: Protocol> {
        /// How many there are.
        fn count(&self) -> u64;

        /// Puts them around `service`.
        #[allow(private_interfaces)]
        fn erase<S: Next<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>>;
    }
}

impl<P: Protocol> sealed::Sealed<P> for Identity {
    fn count(&self) -> u64 {
        0
    }

    #[allow(private_interfaces)]
    fn erase<S: Next<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>> {
        erase(service)
    }
}

impl<P: Protocol> Layer<P> for Identity {}

impl<P: Protocol, L: Layer<P>, M: Middleware<P> + Clone> sealed::Sealed<P> for Stack<L, M> {
    fn count(&self) -> u64 {
        self.outer.count() + 1
    }

    #[allow(private_interfaces)]
    fn erase<S: Next<P> + 'static>(&self, service: S) -> Box<dyn ErasedRoute<P>> {
        self.outer.erase(Wrapped { middleware: self.inner.clone(), inner: service })
    }
}

impl<P: Protocol, L: Layer<P>, M: Middleware<P> + Clone> Layer<P> for Stack<L, M> {}

/// A service with a middleware around it.
struct Wrapped<M, S> {
    middleware: M,
    inner: S,
}

impl<P: Protocol, M: Middleware<P>, S: Next<P>> Next<P> for Wrapped<M, S> {
    fn run(&self, incoming: Incoming<P>) -> impl Future<Output = Outcome<P::Response>> {
        self.middleware.handle(incoming, &self.inner)
    }
}
