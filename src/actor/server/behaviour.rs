//! What a server does.

use std::future::Future;

use super::Context;
use crate::actor::{Down, Reply};

/// The callbacks of a server: Erlang's `gen_server` behaviour.
///
/// One callback runs at a time, to its end, and has the state to itself. While it awaits, other actors of the core run,
/// and what is sent to the server waits in its mailbox. So a callback that awaits the answer of a server which in turn
/// awaits this one waits for ever; [`call_timeout`](super::ServerRef::call_timeout) puts a bound to that, and a [`Reply`]
/// that is kept and used later avoids it.
///
/// A panic in a callback ends the server with [`ExitReason::Panicked`](crate::actor::ExitReason::Panicked), and
/// [`actor::exit`](crate::actor::exit) ends it with a reason of its own.
///
/// See the [module](super) for an example.
pub trait Server: Sized + 'static {
    /// What is asked.
    type Call: Send + 'static;
    /// What is answered.
    type Reply: Send + 'static;
    /// What is told, without an answer; [`Infallible`](std::convert::Infallible) where there is no such thing.
    type Cast: Send + 'static;
    /// What comes by the receivers that the server was [built with](super::Builder::with_info);
    /// [`Infallible`](std::convert::Infallible) where there are none.
    type Info: 'static;

    /// Runs first, in the server's own task. Whoever started the server does not wait for it.
    fn init(&mut self, ctx: &Context<Self>) -> impl Future<Output = ()> {
        let _ = ctx;
        async {}
    }

    /// Answers a call, by [`reply.send`](Reply::send). The slip may also be kept and used after this returns, or be given to
    /// another actor; dropped, it fails the call.
    fn handle_call(
        &mut self,
        call: Self::Call,
        reply: Reply<Self::Reply>,
        ctx: &Context<Self>,
    ) -> impl Future<Output = ()>;

    /// Takes a message that asks for no answer.
    fn handle_cast(&mut self, cast: Self::Cast, ctx: &Context<Self>) -> impl Future<Output = ()>;

    /// Takes a message from one of the receivers that the server was [built with](super::Builder::with_info).
    fn handle_info(&mut self, info: Self::Info, ctx: &Context<Self>) -> impl Future<Output = ()> {
        let _ = (info, ctx);
        async {}
    }

    /// Hears of the end of an actor that the server [watches](Context::watcher).
    fn handle_down(&mut self, down: Down, ctx: &Context<Self>) -> impl Future<Output = ()> {
        let _ = (down, ctx);
        async {}
    }

    /// Runs last, when the server ends in good order: it was [shut down](super::ServerRef::shutdown), has
    /// [stopped itself](Context::stop), or nobody refers to it any more. Nothing reaches the server then: its mailbox is
    /// closed, and the calls that lay in it have failed.
    ///
    /// Not called when the server panics, or is stopped by [`request_stop`](crate::actor::request_stop), by a link or with
    /// its core: what must happen at any end belongs into a `Drop`.
    fn terminate(&mut self, ctx: &Context<Self>) -> impl Future<Output = ()> {
        let _ = ctx;
        async {}
    }
}
