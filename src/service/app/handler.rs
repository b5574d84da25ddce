//! Asynchronous functions as handlers.

use std::future::Future;
use std::marker::PhantomData;

use super::extract::{Extract, Incoming};
use super::middleware::Next;
use super::prepared::Outcome;
use super::respond::Respond;
use crate::service::protocol::Protocol;

/// An asynchronous function whose arguments are extractors and whose result is a response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler of `{P}`",
    label = "not a handler",
    note = "a handler is an asynchronous function; each argument implements `Extract<{P}>`, and what it gives, `Respond<{P}>`"
)]
pub trait Handler<P: Protocol, A>: 'static {
    /// Answers `incoming`.
    fn handle(&self, incoming: Incoming<P>) -> impl Future<Output = Outcome<P::Response>>;
}

macro_rules! function {
    ($($argument:ident),*) => {
        impl<P, F, Fut, $($argument),*> Handler<P, ($($argument,)*)> for F
        where
            P: Protocol,
            F: Fn($($argument),*) -> Fut + 'static,
            Fut: Future<Output: Respond<P>>,
            $($argument: Extract<P>,)*
        {
            #[allow(non_snake_case, unused_mut, unused_variables)]
            async fn handle(&self, mut incoming: Incoming<P>) -> Outcome<P::Response> {
                $(let $argument = $argument::extract(&mut incoming)?;)*
                drop(incoming);
                self($($argument),*).await.respond()
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
    fn run(&self, incoming: Incoming<P>) -> impl Future<Output = Outcome<P::Response>> {
        self.handler.handle(incoming)
    }
}
