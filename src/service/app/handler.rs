//! Asynchronous functions as handlers.

use std::any::type_name;
use std::future::Future;
use std::marker::PhantomData;

use super::extract::{Extract, Incoming};
use super::middleware::Next;
use super::needs::Needs;
use super::prepared::{Outcome, Service};
use super::respond::Respond;
use crate::service::error::Rejection;
use crate::service::protocol::Protocol;

/// An asynchronous function of up to eight arguments, each of which an extractor makes, whose result is a response.
///
/// `A` is what the compiler finds out: the arguments, and in which way the result is a response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of `{P}`",
    label = "not a handler",
    note = "a handler is an asynchronous function or closure of at most eight arguments, such as `async |Frame(request): Frame<_>| ...`"
)]
pub trait Handler<P: Protocol, A>: 'static {
    /// Answers `incoming`.
    ///
    /// # Cancel safety
    /// Whether it may be dropped half-way is the handler's matter: it is when the connection ends before the answer.
    fn handle(&self, incoming: &mut Incoming<P>) -> impl Future<Output = Outcome<P::Response>>;

    /// Says what it needs, when the application is prepared.
    fn needs(_needs: &mut Needs<'_>) {}
}

/// One implementation for all of them, so that the compiler says which argument or answer is wrong.
impl<P, F, A, M> Handler<P, (M, A)> for F
where
    P: Protocol,
    F: Callable<A>,
    A: Arguments<P>,
    F::Output: Respond<P, M>,
{
    #[inline]
    async fn handle(&self, incoming: &mut Incoming<P>) -> Outcome<P::Response> {
        // The arguments are gone from here before the handler is awaited: only its own future keeps them.
        let answer = self.call(A::extract(incoming)?);
        answer.await.respond()
    }

    fn needs(needs: &mut Needs<'_>) {
        A::needs(needs);
    }
}

/// An asynchronous function or closure with the arguments `A`, of which there are at most eight.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no asynchronous function of at most eight arguments",
    label = "cannot be a handler",
    note = "a handler is an `async fn`, or a closure such as `async |Frame(request): Frame<_>| ...`; what it captures is its own"
)]
pub trait Callable<A>: 'static {
    /// What it gives in the end.
    type Output;

    /// Calls it.
    fn call(&self, arguments: A) -> impl Future<Output = Self::Output>;
}

/// The arguments of a handler, as a tuple.
#[diagnostic::on_unimplemented(message = "`{Self}` cannot be the arguments of a handler of `{P}`")]
pub trait Arguments<P: Protocol>: Sized {
    /// Makes them, from left to right.
    ///
    /// # Errors
    /// The [`Rejection`] of the first that cannot be made.
    fn extract(incoming: &mut Incoming<P>) -> Result<Self, Rejection>;

    /// Says what they need.
    fn needs(needs: &mut Needs<'_>);
}

macro_rules! function {
    ($($argument:ident),*) => {
        impl<F, R, $($argument),*> Callable<($($argument,)*)> for F
        where
            F: AsyncFn($($argument),*) -> R + 'static,
        {
            type Output = R;

            #[inline]
            #[allow(non_snake_case)]
            fn call(&self, ($($argument,)*): ($($argument,)*)) -> impl Future<Output = R> {
                self($($argument),*)
            }
        }

        impl<P: Protocol, $($argument: Extract<P>),*> Arguments<P> for ($($argument,)*) {
            #[inline]
            #[allow(unused_variables)]
            fn extract(incoming: &mut Incoming<P>) -> Result<Self, Rejection> {
                Ok(($($argument::extract(incoming)?,)*))
            }

            #[allow(unused_variables)]
            fn needs(needs: &mut Needs<'_>) {
                $($argument::needs(needs);)*
            }
        }
    };
}

function!();
function!(A1);
function!(A1, A2);
function!(A1, A2, A3);
function!(A1, A2, A3, A4);
function!(A1, A2, A3, A4, A5);
function!(A1, A2, A3, A4, A5, A6);
function!(A1, A2, A3, A4, A5, A6, A7);
function!(A1, A2, A3, A4, A5, A6, A7, A8);

/// A handler at the end of its middleware.
pub(super) struct Endpoint<H, A> {
    handler: H,
    arguments: PhantomData<fn(A)>,
}

impl<H, A> Endpoint<H, A> {
    pub(super) fn new(handler: H) -> Endpoint<H, A> {
        Endpoint { handler, arguments: PhantomData }
    }
}

impl<P: Protocol, H: Handler<P, A>, A> Next<P> for Endpoint<H, A> {
    #[inline]
    fn run(&self, incoming: &mut Incoming<P>) -> impl Future<Output = Outcome<P::Response>> {
        self.handler.handle(incoming)
    }
}

impl<P: Protocol, H: Handler<P, A>, A> Service<P> for Endpoint<H, A> {
    fn needs(&self, needs: &mut Needs<'_>) {
        needs.of(type_name::<H>());
        H::needs(needs);
    }
}
