//! One pipelined socket as its sessions see it.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use super::matching::{Identify, Matching};
use super::state::{Arrived, Limits, State};
use super::waits::{Reply, Room};
use crate::pool::sharing::error::{PipelineError, SocketFailure};
use crate::pool::sharing::members::Members;
use crate::pool::sharing::sockets::Socket;
use crate::runtime::local::Local;
use crate::runtime::watch::WatchList;
use crate::runtime::{RawPid, context};

/// What a pipelined socket is limited to.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool::sharing) struct Settings {
    pub(in crate::pool::sharing) sessions: usize,
    pub(in crate::pool::sharing) max_outstanding: usize,
    pub(in crate::pool::sharing) max_unsent_bytes: usize,
    pub(in crate::pool::sharing) reply_timeout: Option<Duration>,
}

/// The codec, and the bytes that it has made of requests since the last write.
struct Coder<K> {
    codec: Option<K>,
    to_send: BytesMut,
}

pub(super) struct Pipe<K: Decoder, M> {
    members: Members,
    local: Rc<Local>,
    coder: RefCell<Coder<K>>,
    pub(super) state: RefCell<State<K::Item, M>>,
    pub(super) reply_timeout: Option<Duration>,
    /// When the first request of the next write was made.
    batch_since: Cell<Option<Instant>>,
    task: Cell<Option<RawPid>>,
    /// By which the task is told that the lower pool would have the socket back.
    pub(super) watch: Rc<WatchList>,
    /// Why it has failed.
    failure: RefCell<Option<Arc<SocketFailure<K::Error>>>>,
    /// The last session has gone.
    retired: Cell<bool>,
    /// The task has given the socket back.
    ended: Cell<bool>,
    /// Who waits for that.
    end_waiter: RefCell<Option<Waker>>,
}

pub(super) type CallError<K> = PipelineError<<K as Decoder>::Error>;
type Failure<K> = SocketFailure<<K as Decoder>::Error>;

impl<K, M> Pipe<K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    pub(super) fn new(local: &Rc<Local>, codec: Option<K>, settings: &Settings) -> Rc<Pipe<K, M>> {
        let Settings { sessions, max_outstanding, max_unsent_bytes, reply_timeout } = *settings;
        let limits = Limits { outstanding: max_outstanding, unsent_bytes: max_unsent_bytes };
        Rc::new(Pipe {
            members: Members::new(sessions),
            local: Rc::clone(local),
            coder: RefCell::new(Coder { codec, to_send: BytesMut::new() }),
            state: RefCell::new(State::new(limits)),
            reply_timeout,
            batch_since: Cell::new(None),
            task: Cell::new(None),
            watch: WatchList::new(),
            failure: RefCell::new(None),
            retired: Cell::new(false),
            ended: Cell::new(false),
            end_waiter: RefCell::new(None),
        })
    }

    pub(super) fn set_task(&self, task: RawPid) {
        self.task.set(Some(task));
        self.watch.set_task(task);
    }

    pub(super) fn local(&self) -> &Rc<Local> {
        &self.local
    }

    fn wake_task(&self) {
        if let Some(task) = self.task.get() {
            context::wake(task.into());
        }
    }

    /// Sends `request` with whatever else is sent in this turn, and waits for its reply.
    pub(super) async fn call<Request>(&self, request: Request) -> Result<K::Item, CallError<K>>
    where
        K: Encoder<Request, Error = <K as Decoder>::Error>,
        M: Identify<Request, K::Item>,
    {
        let free = self.state.borrow().may_begin();
        if !free {
            self.room().await?;
        }
        Reply::to(self, self.begin(request)?).await
    }

    /// Waits for room.
    async fn room(&self) -> Result<(), CallError<K>> {
        if self.state.borrow().is_over() {
            return Err(self.lost(false));
        }
        if Room::on(self).await { Ok(()) } else { Err(self.lost(false)) }
    }

    /// Encodes `request` behind those that wait to be sent.
    fn begin<Request>(&self, request: Request) -> Result<u32, CallError<K>>
    where
        K: Encoder<Request, Error = <K as Decoder>::Error>,
        M: Identify<Request, K::Item>,
    {
        let id = M::id_of(&request);
        if self.state.borrow().expects(&id) {
            self.admit();
            return Err(PipelineError::DuplicateId);
        }
        let stop = StopOnUnwind(self);
        let mut coder = self.coder.borrow_mut();
        let Coder { codec, to_send } = &mut *coder;
        let Some(codec) = codec else {
            drop(coder);
            mem::forget(stop);
            return Err(self.lost(false));
        };
        let before = to_send.len();
        let encoded = codec.encode(request, to_send);
        if encoded.is_err() {
            to_send.truncate(before);
        }
        let len = to_send.len() - before;
        drop(coder);
        mem::forget(stop);
        if let Err(error) = encoded {
            self.admit();
            return Err(PipelineError::Encode(error));
        }
        if before == 0 {
            if self.reply_timeout.is_some() {
                self.batch_since.set(Some(self.local.now()));
            }
            self.wake_task();
        }
        Ok(self.state.borrow_mut().begin(id, len, self.batch_since.get()))
    }

    /// Lets those begin for whom there is room.
    pub(super) fn admit(&self) {
        while let Some(waker) = self.next_admitted() {
            waker.wake();
        }
    }

    fn next_admitted(&self) -> Option<Waker> {
        self.state.borrow_mut().admit()
    }

    pub(super) fn lost(&self, sent: bool) -> CallError<K> {
        let cause = self.failure.borrow().clone();
        PipelineError::Lost { sent, cause: cause.unwrap_or_else(|| Arc::new(SocketFailure::Stopped)) }
    }

    /// What is to be written now; `spare` takes its place.
    pub(super) fn take_batch(&self, spare: &mut BytesMut) -> Option<BytesMut> {
        let mut coder = self.coder.borrow_mut();
        if coder.to_send.is_empty() {
            return None;
        }
        self.state.borrow_mut().hand_over();
        Some(mem::replace(&mut coder.to_send, mem::take(spare)))
    }

    /// The batch is with the kernel.
    pub(super) fn wrote(&self) {
        self.state.borrow_mut().wrote();
        self.admit();
    }

    /// The next frame in `received`; at the end of the stream, the last one.
    pub(super) fn decode(&self, received: &mut BytesMut, ended: bool) -> Result<Option<K::Item>, Failure<K>> {
        let mut coder = self.coder.borrow_mut();
        let Some(codec) = &mut coder.codec else { return Ok(None) };
        let decoded = if ended { codec.decode_eof(received) } else { codec.decode(received) };
        decoded.map_err(SocketFailure::Decode)
    }

    /// Gives a reply to whom it belongs.
    pub(super) fn deliver(&self, reply: K::Item) -> Result<(), Failure<K>> {
        let arrived = self.state.borrow_mut().arrive(reply);
        match arrived {
            Arrived::Expected(waker) => {
                if let Some(waker) = waker {
                    waker.wake();
                }
                Ok(())
            }
            Arrived::Unwanted(reply) => {
                drop(reply);
                Ok(())
            }
            Arrived::Unsolicited(_) => Err(SocketFailure::Unsolicited),
        }
    }

    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.state.borrow().oldest_since()
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.borrow().is_over()
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// The lower pool would have the socket back: its sessions are not leased again.
    pub(super) fn wind_up(&self) {
        self.members.wind_up();
    }

    pub(super) fn is_drained(&self) -> bool {
        self.state.borrow().is_drained()
    }

    /// The socket is not used again: everybody on it is told, and who is idle evicted.
    pub(super) fn fail(&self, cause: Failure<K>) {
        if self.is_over() {
            return;
        }
        *self.failure.borrow_mut() = Some(Arc::new(cause));
        self.state.borrow_mut().fail();
        self.members.close();
        while let Some(waker) = self.next_lost() {
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.wake_task();
    }

    fn next_lost(&self) -> Option<Option<Waker>> {
        self.state.borrow_mut().next_lost()
    }

    pub(super) fn take_codec(&self) -> Option<K> {
        self.coder.borrow_mut().codec.take()
    }

    /// The task is over, and the socket back in its pool.
    pub(super) fn end(&self) {
        self.ended.set(true);
        let waiter = self.end_waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Ready when the socket is back in its pool. For the one who was last.
    pub(super) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.get() {
            return Poll::Ready(());
        }
        let earlier = self.end_waiter.replace(Some(cx.waker().clone()));
        drop(earlier);
        Poll::Pending
    }
}

impl<K, M> Socket for Pipe<K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn members(&self) -> &Members {
        &self.members
    }

    fn retire(self: &Rc<Self>) {
        self.members.close();
        self.retired.set(true);
        self.wake_task();
    }
}

/// A codec that panics leaves its part of the stream unknown.
struct StopOnUnwind<'a, K, M>(&'a Pipe<K, M>)
where
    K: Decoder + 'static,
    M: Matching<K::Item>;

impl<K, M> Drop for StopOnUnwind<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn drop(&mut self) {
        self.0.fail(SocketFailure::Stopped);
    }
}
