//! What one connection is made of, and what it does for each source of work.

use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio_util::codec::Decoder;

use super::attention::{Attention, Source};
use super::deadlines::{Deadlines, Wait};
use super::response::{Current, Progress};
use super::{Connection, End, Limits, Phase};
use crate::runtime::local::Local;
use crate::runtime::{Sleep, context};
use crate::service::counters::Counters;
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;
use crate::service::push::PushQueues;
use crate::service::transport::Transport;

/// What the task does when everything that was ready has been attended to.
pub(super) enum Step {
    /// `output` has to go.
    Send,
    End(End),
}

/// A connection's own state.
pub(super) struct Core<P: Protocol> {
    pub(super) connection: Connection<P>,
    pub(super) local: Rc<Local>,
    pub(super) codec: P::Codec,
    pub(super) limits: Limits,
    attention: Attention,
    pub(super) deadlines: Deadlines,
    /// One for all deadlines. It may stand at an earlier time than the next of them, and looks again then.
    pub(super) timer: Option<Sleep>,
    queues: Option<PushQueues<P::Response>>,
    pub(super) current: Current<P::Response>,
    /// Received, and not yet decoded.
    pub(super) input: BytesMut,
    /// There may be a frame in `input`: it has not been decoded since the last bytes came.
    fresh: bool,
    /// Bytes that the codec has taken of a frame that is not complete.
    taken: usize,
    /// Some of a frame has come, and not all.
    mid_frame: bool,
    /// The peer has ended its side.
    pub(super) ended: bool,
    /// Encoded, and not yet sent.
    pub(super) output: BytesMut,
    /// The whole frames at the front of `output`, in bytes.
    pub(super) whole: usize,
    /// The connection ends like this when the output is sent.
    pub(super) closing: Option<End>,
    /// `command_ended` has yet to run for the request.
    pub(super) answering: bool,
    /// `disconnected` has yet to run.
    pub(super) connected: bool,
    /// No source was ready, and the task has done nothing since but to send what was done at once: it need not look again.
    pub(super) exhausted: bool,
}

impl<P: Protocol> Core<P> {
    pub(super) fn new(
        connection: Connection<P>,
        codec: P::Codec,
        limits: Limits,
        input: BytesMut,
    ) -> Core<P> {
        Core {
            connection,
            local: context::current(),
            codec,
            attention: Attention::new(limits.pushes_in_a_row),
            limits,
            deadlines: Deadlines::default(),
            timer: None,
            queues: None,
            current: Current::new(),
            fresh: !input.is_empty(),
            input,
            taken: 0,
            mid_frame: false,
            ended: false,
            output: BytesMut::new(),
            whole: 0,
            closing: None,
            answering: false,
            connected: false,
            exhausted: false,
        }
    }

    /// Serves what is ready, in order of attention, until bytes must move.
    pub(super) fn attend<T: Transport>(&mut self, transport: &mut T, cx: &mut Context<'_>) -> Poll<Step> {
        // Before anything runs that may change the phase, or make the queues: a wake-up takes the waker out.
        self.connection.register(cx);
        let mut exhausted = std::mem::take(&mut self.exhausted);
        loop {
            match self.connection.phase() {
                Phase::Dropping => return Poll::Ready(Step::End(End::ShutDown)),
                Phase::Draining => self.close_queues(),
                Phase::Open if self.has_heard_all() => self.close_queues(),
                Phase::Open => {}
            }
            if self.closing.is_some() || self.output.len() >= self.limits.send_at {
                break;
            }
            if context::is_budget_spent() {
                if self.output.is_empty() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                break;
            }
            if exhausted {
                break;
            }
            if !self.serve_next(transport, cx) {
                // What is ready may have looked as if it were not.
                exhausted = !context::is_budget_spent();
                break;
            }
        }
        if !self.output.is_empty() {
            self.exhausted = exhausted;
            return Poll::Ready(Step::Send);
        }
        if let Some(end) = self.closing.take() {
            return Poll::Ready(Step::End(end));
        }
        let draining = self.connection.phase() != Phase::Open;
        if (draining || self.has_heard_all())
            && self.current.is_idle()
            && self.queues.as_ref().is_none_or(PushQueues::is_empty)
        {
            return Poll::Ready(Step::End(if draining { End::ShutDown } else { End::Closed }));
        }
        self.rest(cx)
    }

    /// Nothing is ready: notes what is waited for.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if context::is_budget_spent() {
            // What is ready may have looked as if it were not.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.give_back_buffers();
        let wait = if self.current.is_handled() {
            Some(Wait::Request)
        } else if !self.current.is_idle() || self.ended || self.connection.is_ending() {
            None
        } else {
            Some(if self.mid_frame { Wait::Frame } else { Wait::Idle })
        };
        match wait {
            Some(wait) => self.deadlines.wait(wait, &self.limits, || self.local.now()),
            None => self.deadlines.clear(),
        }
        match self.poll_deadlines(cx) {
            Some(Wait::Request) => {
                self.current.clear();
                let after = Wait::Request.limit(&self.limits).unwrap_or_default();
                self.fail(RequestError::TimedOut { after });
                // There is something to do again.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(wait) => Poll::Ready(Step::End(self.timed_out(wait))),
            None => Poll::Pending,
        }
    }

    pub(super) fn timed_out(&self, wait: Wait) -> End {
        let after = wait.limit(&self.limits).unwrap_or_default();
        match wait {
            Wait::Frame => End::FrameTimeout { after },
            Wait::Write => End::WriteTimeout { after },
            Wait::Idle | Wait::Request => End::IdleTimeout { after },
        }
    }

    /// A wait that has taken too long. Otherwise the task is woken when one may have.
    #[inline]
    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Option<Wait> {
        loop {
            let next = self.deadlines.next();
            let Some(timer) = &mut self.timer else {
                self.timer = Some(Sleep::on(&self.local, next?));
                continue;
            };
            if next.is_some_and(|next| next < timer.deadline()) {
                self.timer = None;
            } else if std::pin::Pin::new(timer).poll(cx).is_pending() {
                return None;
            } else {
                self.timer = None;
                if let Some(due) = self.deadlines.due(self.local.now()) {
                    self.deadlines.over(due);
                    return Some(due);
                }
            }
        }
    }

    /// Nothing will come from the peer any more that is not answered yet, but for the request under way.
    fn has_heard_all(&self) -> bool {
        self.ended && !self.fresh && self.current.is_idle()
    }

    /// Serves one source; false when none is ready.
    fn serve_next<T: Transport>(&mut self, transport: &mut T, cx: &mut Context<'_>) -> bool {
        for source in self.attention.order() {
            let served = match source {
                Source::Push => self.serve_push(cx),
                Source::Response => self.serve_response(cx),
                Source::Inbound => self.serve_inbound(transport, cx),
            };
            if served {
                self.attention.served(source);
                return true;
            }
        }
        false
    }

    #[inline]
    fn serve_push(&mut self, cx: &mut Context<'_>) -> bool {
        if self.queues.is_none() {
            self.queues = self.connection.take_queues();
        }
        let Some(queues) = &mut self.queues else { return false };
        let Poll::Ready(Some((_, frame))) = queues.poll_next(cx) else { return false };
        self.counters().pushes.add(1);
        self.encode(frame);
        true
    }

    #[inline]
    fn serve_response(&mut self, cx: &mut Context<'_>) -> bool {
        if self.current.is_idle() {
            return false;
        }
        let Poll::Ready(progress) = self.current.poll(cx) else { return false };
        // A stream that is always ready must let others run.
        context::spend_budget();
        self.deadlines.over(Wait::Request);
        match progress {
            Progress::Frame(frame) => self.respond(frame),
            Progress::Only(frame) => {
                self.respond(frame);
                self.end_command();
            }
            Progress::Done { streamed } => {
                let end = if streamed { self.protocol(|protocol, _| protocol.stream_end()) } else { None };
                if let Some(end) = end {
                    self.respond(end);
                }
                self.end_command();
            }
            Progress::Failed(error) => {
                let error = error.at(self.connection.app().route_name(self.current.route));
                self.fail(error);
            }
        }
        true
    }

    /// A frame that has been received whole, or bytes that may make one.
    #[inline]
    fn serve_inbound<T: Transport>(&mut self, transport: &mut T, cx: &mut Context<'_>) -> bool {
        let may_begin = self.current.is_idle() && self.connection.phase() == Phase::Open;
        if may_begin && self.fresh && self.decode() {
            return true;
        }
        if self.ended || self.input.len() >= self.limits.max_frame {
            return false;
        }
        let Poll::Ready(received) = transport.poll_receive(cx) else { return false };
        self.received(received);
        true
    }

    fn received(&mut self, received: io::Result<Option<impl Deref<Target = [u8]>>>) {
        self.deadlines.over(Wait::Idle);
        self.fresh = true;
        match received {
            Ok(Some(bytes)) => {
                self.counters().bytes_in.add(bytes.len() as u64);
                if self.input.capacity() == 0 {
                    self.input = self.buffer();
                }
                self.input.extend_from_slice(&bytes);
                self.keep_to_budget();
            }
            Ok(None) => self.ended = true,
            Err(error) => {
                // Nobody is there to get it.
                self.output.clear();
                self.closing = Some(End::Io(error));
            }
        }
    }

    /// Decodes a frame, if there is a whole one.
    fn decode(&mut self) -> bool {
        let before = self.input.len();
        let decoded = match self.ended {
            false => self.codec.decode(&mut self.input),
            true => self.codec.decode_eof(&mut self.input),
        };
        self.taken += before.saturating_sub(self.input.len());
        let limit = self.limits.max_frame;
        let too_long = self.taken > limit;
        match decoded {
            Ok(Some(_)) | Ok(None) if too_long => self.reject(End::FrameTooLong { limit }),
            Ok(Some(request)) => {
                (self.taken, self.mid_frame) = (0, false);
                self.deadlines.over(Wait::Frame);
                self.fresh = self.ended || !self.input.is_empty();
                self.begin(request);
            }
            Ok(None) if self.taken + self.input.len() >= limit => self.reject(End::FrameTooLong { limit }),
            Ok(None) => {
                self.fresh = false;
                self.mid_frame |= before > 0;
                self.keep_to_budget();
                return false;
            }
            Err(error) => self.reject(End::Decode(error.into())),
        }
        true
    }

    /// The peer has broken the protocol: that is the end, behind a last word if the protocol has one.
    #[cold]
    fn reject(&mut self, end: End) {
        let word = self.protocol(|protocol, connection| protocol.malformed(&end, connection));
        self.closing = Some(end);
        if let Some(word) = word {
            self.encode(word);
        }
    }

    #[inline]
    fn begin(&mut self, request: P::Request) {
        context::spend_budget();
        let app = self.connection.app();
        app.counters().requests.add(1);
        self.answering = true;
        // What the protocol says of the request is the user's; its panic is an error of the request.
        let started = app.start(request, &self.connection, &mut self.current.slot);
        self.current.correlation = started.correlation;
        self.current.route = started.route;
        if let Err(error) = started.result {
            self.current.clear();
            self.fail(error);
        }
    }

    fn fail(&mut self, error: RequestError) {
        let counters = self.counters();
        let counter = match &error {
            RequestError::NoRoute | RequestError::UnknownRoute { .. } => &counters.unrouted,
            RequestError::Rejected { .. } => &counters.rejected,
            RequestError::TimedOut { .. } => &counters.timed_out,
            RequestError::Panicked { .. } => &counters.panicked,
            RequestError::Failed { .. } => &counters.failed,
        };
        counter.add(1);
        let verdict = self.protocol(|protocol, connection| protocol.failed(&error, connection));
        if let Some(reply) = verdict.reply {
            self.respond(reply);
        }
        self.end_command();
        if verdict.close && self.closing.is_none() {
            self.closing = Some(End::RequestFailed);
        }
    }

    /// Encodes a frame that answers the current request.
    #[inline]
    fn respond(&mut self, mut frame: P::Response) {
        if let Some(correlation) = self.current.correlation {
            self.protocol(|protocol, _| protocol.correlate(&mut frame, correlation));
        }
        self.encode(frame);
    }

    pub(super) fn end_command(&mut self) {
        self.answering = false;
        self.protocol(|protocol, connection| protocol.command_ended(connection));
    }

    /// Has handles refuse further pushes.
    pub(super) fn close_queues(&mut self) {
        if self.queues.is_none() {
            self.queues = self.connection.take_queues();
        }
        if let Some(queues) = &mut self.queues {
            queues.close();
        }
    }

    /// The queues, closed, with what is left in them.
    pub(super) fn take_queues(&mut self) -> Option<PushQueues<P::Response>> {
        self.close_queues();
        self.queues.take()
    }

    #[inline]
    pub(super) fn counters(&self) -> &Counters {
        self.connection.app().counters()
    }

    #[inline]
    pub(super) fn protocol<R>(&self, ask: impl FnOnce(&P, &Connection<P>) -> R) -> R {
        ask(self.connection.app().protocol(), &self.connection)
    }
}
