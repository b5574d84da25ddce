//! Asynchronous functions as handlers.

use std::any::type_name;
use std::future::Future;
use std::marker::PhantomData;

use super::extract::{Extract, Incoming};
use super::middleware::Next;
use super::needs::Needs;
use super::prepared::{Outcome, Service};
use super::respond::Respond;
use crate::service::protocol::Protocol;

/// An asynchronous function of up to eight arguments, each of which an extractor makes, whose result is a response.
///
/// `A` is what the compiler finds out: the arguments, and in which way the result is a response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of `{P}`",
    label = "not a handler",
    note = "a handler is an asynchronous function or closure of at most eight arguments, such as `async |Frame(request): Frame<_>| ...`",
    note = "each argument implements `Extract<{P}>`, and what it gives, `Respond<{P}>`: `()`, a response frame, `Reply`, `Frames`, `Streamed`, or an `Option` or `Result` of one of those"
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

macro_rules! function {
    ($($argument:ident),*) => {
        impl<P, M, F, R, $($argument),*> Handler<P, (M, ($($argument,)*))> for F
        where
            P: Protocol,
            F: AsyncFn($($argument),*) -> R + 'static,
            R: Respond<P, M>,
            $($argument: Extract<P>,)*
        {
            #[allow(non_snake_case, unused_variables)]
            async fn handle(&self, incoming: &mut Incoming<P>) -> Outcome<P::Response> {
                // The arguments are gone from here before the handler is awaited: only its own future keeps them.
                let answer = {
                    $(let $argument = $argument::extract(incoming)?;)*
                    self($($argument),*)
                };
                answer.await.respond()
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
