//! The task of a server: what it waits for, in which order, and how it ends.

use std::future::{Future, poll_fn};
use std::task::{self, Poll};

use super::request::{Kind, Request};
use super::{Context, Server};
use crate::actor::channel::Receiver;
use crate::actor::infos::Infos;

/// What a server is woken for. Small, since the server's future keeps it while a callback runs.
enum Event<S: Server> {
    /// The context has it.
    Down,
    Info(S::Info),
    Request(Request<S>),
    /// It was asked to end, or nobody refers to it any more.
    End,
}

/// Calls `begun` after the server's init.
#[allow(clippy::manual_async_fn)] // Whose future would hold its arguments twice.
pub(super) fn serve<S: Server>(
    mut server: S,
    mut infos: Infos<S::Info>,
    mut inbox: Receiver<Request<S>>,
    begun: impl FnOnce(),
) -> impl Future<Output = ()> {
    async move {
        let ctx = Context::of_this_task();
        server.init(&ctx).await;
        begun();
        while !ctx.stops() {
            match poll_fn(|cx| poll_event(&ctx, &mut infos, &mut inbox, cx)).await {
                Event::Request(Request(Kind::Call(call, reply))) => {
                    server.handle_call(call, reply, &ctx).await;
                }
                Event::Request(Request(Kind::Cast(cast))) => server.handle_cast(cast, &ctx).await,
                Event::Info(info) => server.handle_info(info, &ctx).await,
                Event::Down => {
                    if let Some(down) = ctx.take_down() {
                        server.handle_down(down, &ctx).await;
                    }
                }
                Event::End => break,
            }
        }
        // Closed first, so that callers do not wait for the goodbye.
        drop(inbox);
        drop(infos);
        server.terminate(&ctx).await;
    }
}

/// Downs come first, so that a message is never handled on behalf of somebody whose end is known; the end next, since what
/// is queued can be endless.
#[inline]
fn poll_event<S: Server>(
    ctx: &Context<S>,
    infos: &mut Infos<S::Info>,
    inbox: &mut Receiver<Request<S>>,
    cx: &mut task::Context<'_>,
) -> Poll<Event<S>> {
    if ctx.poll_down(cx).is_ready() {
        return Poll::Ready(Event::Down);
    }
    if ctx.is_asked_to_end() {
        return Poll::Ready(Event::End);
    }
    if let Poll::Ready(info) = infos.poll(cx) {
        return Poll::Ready(Event::Info(info));
    }
    inbox.poll_recv(cx).map(|received| received.map_or(Event::End, Event::Request))
}
