//! The task of one connection.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use super::attention::{Attention, Source};
use super::response::{Current, Progress};
use super::{CodecError, Connection, Limits, Phase};
use crate::runtime::context;
use crate::service::app::Prepared;
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;
use crate::service::push::{PushQueues, PushSettings};
use crate::service::transport::Transport;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The peer ended its side, and everything was answered.
    #[error("the peer has closed the connection")]
    Closed,
    /// It was drained or shut down from this side.
    #[error("the connection was shut down")]
    ShutDown,
    /// A request failed, and the protocol had the connection end for it.
    #[error("a request failed")]
    RequestFailed,
    /// The peer sent bytes that are no frame.
    #[error("the peer sent no valid frame")]
    Decode(#[source] CodecError),
    /// A frame could not be encoded.
    #[error("a frame could not be encoded")]
    Encode(#[source] CodecError),
    /// A frame was longer than it may be.
    #[error("a frame of more than {limit} bytes")]
    FrameTooLong {
        /// The limit.
        limit: usize,
    },
    /// The transport failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// Serves one connection until it ends.
///
/// # Cancel safety
/// Dropping the future ends the connection.
///
/// # Panics
/// When not polled on a core.
pub async fn serve<P: Protocol, T: Transport>(
    transport: T,
    app: &Prepared<P>,
    limits: &Limits,
    pushes: &PushSettings<P::Response>,
) -> End {
    let connection = Connection::new(app, pushes.clone());
    serve_connection(transport, connection, limits.clone()).await
}

pub(crate) async fn serve_connection<P: Protocol, T: Transport>(
    mut transport: T,
    connection: Connection<P>,
    limits: Limits,
) -> End {
    let app = connection.app().clone();
    let mut core = Core {
        codec: app.protocol().codec(),
        attention: Attention::new(limits.pushes_in_a_row),
        connection,
        limits,
        queues: None,
        current: Current::new(),
        input: BytesMut::new(),
        ended: false,
        output: BytesMut::new(),
        closing: None,
    };
    app.protocol().connected(&core.connection);
    let end = core.run(&mut transport).await;
    app.protocol().disconnected(&core.connection, &end);
    transport.close().await;
    end
}

/// What the task does when it has attended to everything that was ready.
enum Step<R> {
    /// `output` has to go.
    Send,
    Received(io::Result<Option<R>>),
    End(End),
}

struct Core<P: Protocol> {
    connection: Connection<P>,
    codec: P::Codec,
    limits: Limits,
    attention: Attention,
    queues: Option<PushQueues<P::Response>>,
    current: Current<P::Response>,
    /// Received, and not yet decoded.
    input: BytesMut,
    /// The peer has ended its side.
    ended: bool,
    /// Encoded, and not yet sent.
    output: BytesMut,
    /// The connection ends like this when the output is sent.
    closing: Option<End>,
}

impl<P: Protocol> Core<P> {
    async fn run<T: Transport>(&mut self, transport: &mut T) -> End {
        loop {
            let step = {
                let mut receive = pin!(transport.receive());
                poll_fn(|cx| self.attend(cx, receive.as_mut())).await
            };
            match step {
                Step::Send => {
                    let (result, mut output) = transport.send(std::mem::take(&mut self.output)).await;
                    output.clear();
                    self.output = output;
                    if let Err(error) = result {
                        return End::Io(error);
                    }
                }
                Step::Received(Ok(Some(bytes))) => self.input.extend_from_slice(&bytes),
                Step::Received(Ok(None)) => self.ended = true,
                Step::Received(Err(error)) => return End::Io(error),
                Step::End(end) => return end,
            }
        }
    }

    /// Serves what is ready, in order of attention, until bytes must move.
    fn attend<R: Deref<Target = [u8]>>(
        &mut self,
        cx: &mut Context<'_>,
        receive: Pin<&mut impl Future<Output = io::Result<Option<R>>>>,
    ) -> Poll<Step<R>> {
        loop {
            if self.connection.phase() == Phase::Dropping {
                return Poll::Ready(Step::End(End::ShutDown));
            }
            if self.output.len() >= self.limits.send_at || self.closing.is_some() {
                break;
            }
            if context::is_budget_spent() {
                if self.output.is_empty() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                break;
            }
            if !self.serve_next(cx) {
                break;
            }
        }
        if !self.output.is_empty() {
            return Poll::Ready(Step::Send);
        }
        if let Some(end) = self.closing.take() {
            return Poll::Ready(Step::End(end));
        }
        if self.current.is_idle() && self.queues.as_ref().is_none_or(PushQueues::is_empty) {
            if self.connection.phase() == Phase::Draining {
                return Poll::Ready(Step::End(End::ShutDown));
            }
            if self.ended {
                return Poll::Ready(Step::End(End::Closed));
            }
        }
        self.connection.register(cx);
        if !self.ended && self.input.len() < self.limits.max_frame {
            return receive.poll(cx).map(Step::Received);
        }
        Poll::Pending
    }

    /// Serves one source; false when none is ready.
    fn serve_next(&mut self, cx: &mut Context<'_>) -> bool {
        for source in self.attention.order() {
            let served = match source {
                Source::Push => self.serve_push(cx),
                Source::Response => self.serve_response(cx),
                Source::Inbound => self.serve_inbound(),
            };
            if served {
                self.attention.served(source);
                return true;
            }
        }
        false
    }

    fn serve_push(&mut self, cx: &mut Context<'_>) -> bool {
        if self.queues.is_none() {
            self.queues = self.connection.take_queues();
        }
        let Some(queues) = &mut self.queues else { return false };
        let Poll::Ready(Some((_, frame))) = queues.poll_next(cx) else { return false };
        self.encode(frame);
        true
    }

    fn serve_response(&mut self, cx: &mut Context<'_>) -> bool {
        if self.current.is_idle() {
            return false;
        }
        let Poll::Ready(progress) = self.current.poll(cx) else { return false };
        match progress {
            Progress::Frame(mut frame) => {
                if let Some(correlation) = self.current.correlation {
                    self.protocol(|protocol, _| protocol.correlate(&mut frame, correlation));
                }
                self.encode(frame);
            }
            Progress::Done { streamed } => {
                let end = if streamed { self.protocol(|protocol, _| protocol.stream_end()) } else { None };
                if let Some(end) = end {
                    self.encode(end);
                }
                self.protocol(|protocol, connection| protocol.command_ended(connection));
            }
            Progress::Failed(error) => self.fail(error),
        }
        true
    }

    fn serve_inbound(&mut self) -> bool {
        if !self.current.is_idle() || self.connection.phase() != Phase::Open {
            return false;
        }
        let decoded = match self.ended {
            false if self.input.is_empty() => return false,
            false => self.codec.decode(&mut self.input),
            true => self.codec.decode_eof(&mut self.input),
        };
        match decoded {
            Ok(Some(request)) => self.begin(request),
            Ok(None) if self.input.len() >= self.limits.max_frame => {
                self.closing = Some(End::FrameTooLong { limit: self.limits.max_frame });
            }
            Ok(None) => return false,
            Err(error) => self.closing = Some(End::Decode(error.into())),
        }
        true
    }

    fn begin(&mut self, request: P::Request) {
        context::spend_budget();
        let app = self.connection.app().clone();
        self.current.correlation = app.protocol().correlation(&request);
        if let Err(error) = app.start(request, &self.connection, &mut self.current.slot) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: RequestError) {
        let verdict = self.protocol(|protocol, connection| protocol.failed(&error, connection));
        if let Some(mut reply) = verdict.reply {
            if let Some(correlation) = self.current.correlation {
                self.protocol(|protocol, _| protocol.correlate(&mut reply, correlation));
            }
            self.encode(reply);
        }
        self.protocol(|protocol, connection| protocol.command_ended(connection));
        if verdict.close {
            self.closing = Some(End::RequestFailed);
        }
    }

    fn encode(&mut self, mut frame: P::Response) {
        self.protocol(|protocol, connection| protocol.before_send(&mut frame, connection));
        if let Err(error) = self.codec.encode(frame, &mut self.output) {
            self.closing = Some(End::Encode(error.into()));
        }
    }

    #[inline]
    fn protocol<R>(&self, ask: impl FnOnce(&P, &Connection<P>) -> R) -> R {
        ask(self.connection.app().protocol(), &self.connection)
    }
}
