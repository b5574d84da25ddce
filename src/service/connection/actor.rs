//! The task of one connection, from its set-up to its end.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;

use super::attend::{Core, Step};
use super::deadlines::Wait;
use super::response::text_of;
use super::{Connection, End, EndReason, Limits, Phase};
use crate::runtime::executor::contain;
use crate::service::app::Prepared;
use crate::service::protocol::Protocol;
use crate::service::push::PushSettings;
use crate::service::transport::Transport;

/// How long a peer may go on sending what nobody will answer, so that it gets the answers that it has been sent: a socket that
/// is closed with something unread takes back what it has not delivered.
const LINGER: Duration = Duration::from_secs(1);
/// And how many bytes it may send, so that a flood does not keep the core busy.
const LINGER_BYTES: usize = 8 * 1024 * 1024;

/// Serves one connection until it ends, with [`End`] as the outcome. [`Server`](crate::service::Server) does this for what
/// it accepts; this is for transports of other kinds, and for tests.
///
/// # Cancel safety
/// Dropping the future ends the connection with [`End::Stopped`]: the hooks run, and nothing more is sent.
///
/// # Panics
/// When not called on a core. What the protocol's codec and hooks panic with ends the connection only.
pub fn serve<P: Protocol, T: Transport>(
    transport: T,
    app: &Prepared<P>,
    limits: &Limits,
    pushes: &PushSettings<P::Response>,
) -> impl Future<Output = End> + use<P, T> {
    let connection = Connection::new(app, pushes.clone());
    serve_connection(transport, connection, *limits, BytesMut::new())
}

/// Serves a connection by which `received` has come already.
pub(crate) fn serve_connection<P: Protocol, T: Transport>(
    transport: T,
    connection: Connection<P>,
    limits: Limits,
    received: BytesMut,
) -> impl Future<Output = End> + use<P, T> {
    let app = connection.app().clone();
    let codec = catch_unwind(AssertUnwindSafe(|| app.protocol().codec())).map_err(text_of);
    // Not moved once it runs: each move would have a place of its own in the task.
    let mut serving = codec.map(|codec| Serving {
        core: Core::new(connection, codec, limits, received),
        transport: Aborting(transport),
    });
    async move {
        app.counters().opened.add(1);
        let end = match &mut serving {
            Ok(Serving { core, transport }) => {
                let transport = &mut transport.0;
                core.connect(transport.peer_addr());
                let end = core.run(transport).await;
                let end = core.close(transport, end).await;
                core.disconnect(&end);
                end
            }
            Err(message) => End::Panicked { message: std::mem::take(message) },
        };
        app.counters().closed[end.reason() as usize].add(1);
        end
    }
}

/// The task's own. The connection is torn down before its transport goes.
struct Serving<P: Protocol, T: Transport> {
    core: Core<P>,
    transport: Aborting<T>,
}

/// Gives up what a transport has not sent when it is dropped. What had to be sent is flushed before.
struct Aborting<T: Transport>(T);

impl<T: Transport> Drop for Aborting<T> {
    fn drop(&mut self) {
        contain("a transport", || self.0.abort());
    }
}

impl<P: Protocol> Core<P> {
    fn connect(&mut self, peer: Option<SocketAddr>) {
        self.connected = true;
        self.connection.0.peer.set(peer);
        let hook = || {
            self.connection.session();
            self.protocol(|protocol, connection| protocol.connected(connection));
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
            self.broken(text_of(panic));
        }
    }

    /// Attends to everything until the connection ends.
    async fn run<T: Transport>(&mut self, transport: &mut T) -> End {
        loop {
            let step = poll_fn(|cx| {
                let attended = catch_unwind(AssertUnwindSafe(|| self.attend(transport, cx)));
                attended.unwrap_or_else(|panic| {
                    self.broken(text_of(panic));
                    self.attend(transport, cx)
                })
            });
            match step.await {
                Step::Send => {
                    if let Err(end) = self.send(transport).await {
                        return end;
                    }
                }
                Step::End(end) => return end,
            }
        }
    }

    /// Sends the output.
    async fn send<T: Transport>(&mut self, transport: &mut T) -> Result<(), End> {
        let output = std::mem::take(&mut self.output);
        let count = output.len() as u64;
        let (result, mut output) = self.attend_to(Wait::Write, pin!(transport.send(output))).await?;
        result?;
        self.counters().bytes_out.add(count);
        output.clear();
        self.output = output;
        Ok(())
    }

    /// Waits for a step of the transport's, and for a shutdown and the deadline meanwhile: whatever is stuck holds up neither.
    async fn attend_to<R>(
        &mut self,
        wait: Wait,
        mut step: Pin<&mut impl Future<Output = R>>,
    ) -> Result<R, End> {
        let mut waited = false;
        let done = poll_fn(|cx| {
            if let Poll::Ready(done) = step.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            match self.connection.phase() {
                Phase::Open => {}
                Phase::Draining => self.close_queues(),
                Phase::Dropping => return Poll::Ready(Err(End::ShutDown)),
            }
            self.connection.register(cx);
            if !waited {
                self.exhausted = false;
                // Nothing is received meanwhile, so the peer cannot be late with anything else.
                self.deadlines.clear();
                waited = true;
            }
            self.deadlines.wait(wait, &self.limits, || self.local.now());
            match self.poll_deadlines(cx) {
                Some(wait) => Poll::Ready(Err(self.timed_out(wait))),
                None => Poll::Pending,
            }
        });
        let done = done.await;
        if waited {
            self.deadlines.clear();
        }
        done
    }

    /// Takes no more pushes, gives up the request, and sees off what has been sent.
    async fn close<T: Transport>(&mut self, transport: &mut T, end: End) -> End {
        self.wind_up();
        match &end {
            End::Io(_) | End::WriteTimeout { .. } | End::Stopped => return end,
            _ if self.connection.phase() == Phase::Dropping => return end,
            _ => {}
        }
        // Who was too late has had its time.
        let unread = !self.ended && !self.input.is_empty() && !end.is_timeout();
        self.input = BytesMut::new();
        let finished = self.attend_to(Wait::Write, pin!(transport.finish(unread))).await;
        match finished {
            Err(late @ End::WriteTimeout { .. }) => return late,
            Ok(Ok(())) if unread => self.linger(transport).await,
            _ => {}
        }
        end
    }

    /// Receives what nobody will answer, for a while.
    async fn linger<T: Transport>(&mut self, transport: &mut T) {
        self.limits.write_timeout = Some(self.limits.write_timeout.map_or(LINGER, |limit| limit.min(LINGER)));
        let mut left = LINGER_BYTES;
        let rest = poll_fn(|cx| {
            loop {
                match transport.poll_receive(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(Some(bytes))) if bytes.len() < left => left -= bytes.len(),
                    Poll::Ready(_) => return Poll::Ready(()),
                }
            }
        });
        // Whatever it comes to.
        let _ = self.attend_to(Wait::Write, pin!(rest)).await;
    }

    /// Ends what has begun: nothing more will go out.
    fn wind_up(&mut self) {
        if let Some(queues) = self.take_queues() {
            self.counters().pushes_dropped.add(queues.len() as u64);
            contain("pushed frames", || drop(queues));
        }
        self.current.clear();
        if self.answering {
            self.counters().cancelled.add(1);
            contain_hook(|| self.end_command());
        }
    }

    /// The last thing that happens to a connection. What its handler had has been dropped before.
    fn disconnect(&mut self, end: &End) {
        if !std::mem::take(&mut self.connected) {
            return;
        }
        self.wind_up();
        self.connection.shut_down();
        self.output.clear();
        self.input.clear();
        self.give_back_buffers();
        contain_hook(|| self.protocol(|protocol, connection| protocol.disconnected(connection, end)));
    }
}

impl<P: Protocol> Drop for Core<P> {
    fn drop(&mut self) {
        if self.connected {
            self.disconnect(&End::Stopped);
            self.counters().closed[EndReason::Stopped as usize].add(1);
        }
    }
}

/// Runs a hook behind which nothing is left to end.
fn contain_hook(hook: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(hook)) {
        tracing::error!(panic = text_of(panic), "a hook panicked at the end of its connection; contained");
    }
}
