//! A core's access to the simulated world: takes requests as the ring does, and carries them out when they are due.
//!
//! Rules:
//! 1. The world never sees a pointer; the memory that a request names is touched here, by its own core, and only at
//!    the moment of its completion, so that a checker of memory sees a buffer that went too early.
//! 2. No completion is filed while the world is locked: filing one may drop a descriptor, which locks the world.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use socket2::SockAddr;

use super::SimDescriptor;
use super::world::{Condition, OperationId, SharedWorld, World, lock};
use crate::runtime::driver::DriverStats;
use crate::runtime::driver::buffers::BufferPool;
use crate::runtime::driver::op::{Completion, OpKey, Ops, Request};

enum Staged {
    Request { key: OpKey, number: RawFd, request: Request },
    Cancel(OpKey),
}

struct InFlight {
    id: OperationId,
    request: Request,
    /// What a send that goes on until all is sent has sent so far.
    sent: usize,
}

/// What carrying out an operation came to: a result as the kernel gives it, or nothing yet.
type Attempt = Poll<Completion>;

pub(crate) struct SimPort {
    world: SharedWorld,
    core: usize,
    buffers: Rc<BufferPool>,
    staged: Vec<Staged>,
    in_flight: BTreeMap<u64, InFlight>,
    completed: Vec<(OpKey, Completion)>,
    pushed: u64,
    consumed: u64,
}

impl SimPort {
    /// The port of the core at position `core`, which owns `buffers`.
    pub(crate) fn new(world: &SharedWorld, core: usize, buffers: Rc<BufferPool>) -> SimPort {
        SimPort {
            world: Arc::clone(world),
            core,
            buffers,
            staged: Vec::new(),
            in_flight: BTreeMap::new(),
            completed: Vec::new(),
            pushed: 0,
            consumed: 0,
        }
    }

    /// Stages one request.
    ///
    /// # Safety
    /// What the request points at stays valid until its terminal completion.
    pub(crate) unsafe fn push(&mut self, key: OpKey, number: RawFd, request: Request) {
        self.pushed += 1;
        self.staged.push(Staged::Request { key, number, request });
    }

    pub(crate) fn push_cancel(&mut self, key: OpKey) {
        self.pushed += 1;
        self.staged.push(Staged::Cancel(key));
    }

    /// The world takes what is staged.
    pub(crate) fn submit(&mut self, stats: &mut DriverStats) {
        if self.staged.is_empty() {
            return;
        }
        // A ring would have entered the kernel once.
        stats.enters += 1;
        stats.submitted += self.staged.len() as u64;
        self.consumed = self.pushed;
        let shared = Arc::clone(&self.world);
        let world = &mut *lock(&shared);
        for staged in std::mem::take(&mut self.staged) {
            match staged {
                Staged::Cancel(key) => {
                    if let Some(target) = self.in_flight.get(&key.user_data()) {
                        world.cancel(target.id);
                    }
                }
                Staged::Request { key, number, request: Request::SendPosted { from, len } } => {
                    // SAFETY: valid for reads until the operation is over, by `push`, and it is yet to be decided.
                    let bytes = unsafe { std::slice::from_raw_parts(from, len as usize) };
                    if let Some(result) = send_posted(world, self.core, number, bytes) {
                        self.completed
                            .push((key, Completion { result, buffer: None, more: false, rest: false }));
                    }
                }
                Staged::Request { key, number, request } => {
                    let (condition, name) = describe(request);
                    let id = world.start(self.core, key, number, condition, name);
                    self.in_flight.insert(key.user_data(), InFlight { id, request, sent: 0 });
                }
            }
        }
    }

    /// Carries out what is due and files the completions.
    pub(crate) fn reap(&mut self, ops: &mut Ops, stats: &mut DriverStats) {
        self.run_due();
        stats.completions += self.completed.len() as u64;
        for (key, completion) in self.completed.drain(..) {
            ops.complete(key, completion);
        }
    }

    /// Ends every operation, for a core that ends.
    pub(crate) fn close(&mut self, ops: &mut Ops) {
        let mut ended = lock(&self.world).close_core(self.core);
        ended.extend(self.staged.drain(..).filter_map(|staged| match staged {
            Staged::Request { key, .. } => Some(key),
            Staged::Cancel(_) => None,
        }));
        self.consumed = self.pushed;
        self.in_flight.clear();
        for (key, completion) in self.completed.drain(..) {
            ops.complete(key, completion);
        }
        for key in ended {
            ops.complete(
                key,
                Completion { result: -libc::ECANCELED, buffer: None, more: false, rest: false },
            );
        }
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    pub(crate) fn consumed(&mut self) -> u64 {
        self.consumed
    }

    pub(crate) fn has_news(&mut self) -> bool {
        !self.completed.is_empty() || lock(&self.world).has_due(self.core)
    }

    /// A number drawn from the seed of the run.
    pub(crate) fn draw(&self) -> u64 {
        lock(&self.world).draw()
    }

    pub(crate) fn now(&self) -> Instant {
        lock(&self.world).now()
    }

    /// The owner of a descriptor that an accept gave.
    pub(crate) fn descriptor(&self, result: i32) -> SimDescriptor {
        SimDescriptor::new(&self.world, result)
    }

    /// A stream that is not connected.
    pub(crate) fn open_stream(&self) -> SimDescriptor {
        let number = lock(&self.world).network(|network, _| network.open());
        SimDescriptor::new(&self.world, number)
    }

    pub(crate) fn listen(&self, address: &SockAddr) -> io::Result<SimDescriptor> {
        let listening = lock(&self.world).network(|network, _| network.listen(self.core, address));
        listening.map(|number| SimDescriptor::new(&self.world, number)).map_err(io::Error::from_raw_os_error)
    }

    pub(crate) fn local_address(&self, number: RawFd) -> io::Result<SockAddr> {
        lock(&self.world).address(number, false).map_err(io::Error::from_raw_os_error)
    }

    pub(crate) fn peer_address(&self, number: RawFd) -> io::Result<SockAddr> {
        lock(&self.world).address(number, true).map_err(io::Error::from_raw_os_error)
    }

    fn run_due(&mut self) {
        let shared = Arc::clone(&self.world);
        let world = &mut *lock(&shared);
        while let Some((id, key)) = world.take_due(self.core) {
            let Some(flight) = self.in_flight.get_mut(&key.user_data()) else { continue };
            let attempt = if world.cancel_wins(id) {
                Poll::Pending
            } else {
                // SAFETY: the operation is in flight, so what it points at is valid, by `push`.
                unsafe { carry_out(world, &self.buffers, flight) }
            };
            let completion = match attempt {
                Poll::Ready(completion) => completion,
                // What was sent before the cancel counts, as in the kernel.
                Poll::Pending if world.is_cancelled(id) => match flight.sent {
                    0 => ended(-libc::ECANCELED),
                    sent => ended(sent as i32),
                },
                Poll::Pending => {
                    world.put_back(id);
                    continue;
                }
            };
            world.complete(self.core, id, completion.result, completion.more);
            if !completion.more {
                self.in_flight.remove(&key.user_data());
            }
            self.completed.push((key, completion));
        }
    }
}

/// What an operation waits for, and what the trace calls it.
fn describe(request: Request) -> (Condition, &'static str) {
    match request {
        Request::Accept { .. } => (Condition::Accept, "accept"),
        Request::Connect { .. } => (Condition::Connect, "connect"),
        Request::Receive { len: 0, .. } => (Condition::None, "receive"),
        Request::Receive { .. } => (Condition::Receive, "receive"),
        Request::ReceivePooled { .. } => (Condition::Receive, "receive_pooled"),
        Request::Send { len: 0, .. } => (Condition::None, "send"),
        Request::Send { .. } => (Condition::Send, "send"),
        Request::SendPosted { .. } => (Condition::Send, "send_posted"),
        Request::SendVectored { .. } => (Condition::Send, "send_vectored"),
        Request::Shutdown { .. } => (Condition::None, "shutdown"),
        Request::Poll { events } => (Condition::Poll(events), "poll"),
    }
}

/// A send that is decided at once: no completion when everything was sent. It fails to send everything more often than
/// the kernel does.
fn send_posted(world: &mut World, core: usize, number: RawFd, bytes: &[u8]) -> Option<i32> {
    let operation = world.number_operation(core, "send_posted");
    let blocked = world.has_sender(number) || world.chance(32);
    let sent = if blocked { Poll::Pending } else { world.send(number, bytes, 16) };
    let result = match sent {
        Poll::Ready(Ok(count)) => count as i32,
        Poll::Ready(Err(errno)) => -errno,
        Poll::Pending => -libc::EAGAIN,
    };
    world.complete(core, (number, operation), result, false);
    (result != bytes.len() as i32).then_some(result)
}

/// Does what the request asks for, now that it may be possible.
///
/// # Safety
/// What the request points at is valid.
unsafe fn carry_out(world: &mut World, buffers: &BufferPool, flight: &mut InFlight) -> Attempt {
    let number = flight.id.0;
    match flight.request {
        Request::Accept { multishot } => {
            let accepted = world.accept(number);
            // A multishot operation may end with any result, even a good one.
            let more = multishot && matches!(accepted, Poll::Ready(Ok(_))) && !world.chance(16);
            accepted.map(|accepted| Completion { more, ..ended(accepted.unwrap_or_else(|errno| -errno)) })
        }
        Request::Connect { address } => {
            // SAFETY: the caller's promise.
            let connected = world.connect(number, unsafe { &*address });
            connected.map(|connected| ended(connected.map_or_else(|errno| -errno, |()| 0)))
        }
        Request::Receive { len: 0, .. } => Poll::Ready(ended(0)),
        Request::Receive { into, len } => world.peek(number, len as usize).map(|received| match received {
            Ok(bytes) => {
                debug_assert!(bytes.len() <= len as usize);
                // SAFETY: `into` is valid for `len` writes, by the caller's promise, and nobody else uses that memory
                // while the operation is in flight; no more than `len` bytes were asked for.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) };
                world.network(|network, _| network.consume(number, bytes.len()));
                ended(bytes.len() as i32)
            }
            Err(errno) => ended(-errno),
        }),
        Request::ReceivePooled { multishot, .. } => {
            let received = world.peek(number, buffers.buffer_size());
            received.map(|received| match received {
                Ok(bytes) if bytes.is_empty() => ended(0),
                Ok(bytes) => match buffers.take(&bytes) {
                    Some(buffer) => {
                        world.network(|network, _| network.consume(number, bytes.len()));
                        let more = multishot && !world.chance(16);
                        Completion { result: bytes.len() as i32, buffer: Some(buffer), more, rest: false }
                    }
                    None => ended(-libc::ENOBUFS),
                },
                Err(errno) => ended(-errno),
            })
        }
        // A cancelled one may be here before its turn.
        Request::Send { len: 1.., .. } | Request::SendVectored { .. } if !world.is_next_sender(flight.id) => {
            Poll::Pending
        }
        Request::Send { from, len, all } => {
            // SAFETY: by the caller's promise valid for `len` reads, of which `sent`, at most `len`, are skipped.
            let bytes =
                unsafe { std::slice::from_raw_parts(from.add(flight.sent), len as usize - flight.sent) };
            match world.send(number, bytes, 4) {
                Poll::Ready(Ok(count)) => {
                    flight.sent += count;
                    let goes_on = all && flight.sent < len as usize;
                    if goes_on { Poll::Pending } else { Poll::Ready(ended(flight.sent as i32)) }
                }
                // The error stays with the socket, so the next call meets it.
                Poll::Ready(Err(_)) if flight.sent > 0 => Poll::Ready(ended(flight.sent as i32)),
                Poll::Ready(Err(errno)) => Poll::Ready(ended(-errno)),
                Poll::Pending => Poll::Pending,
            }
        }
        Request::SendVectored { message } => {
            // SAFETY: the caller's promise.
            let bytes = unsafe { gather(message) };
            let sent = world.send(number, &bytes, 4);
            sent.map(|sent| ended(sent.map_or_else(|errno| -errno, |count| count as i32)))
        }
        Request::Shutdown { how } => {
            let done = world.network(|network, _| network.shutdown(number, how));
            Poll::Ready(ended(done.map_or_else(|errno| -errno, |()| 0)))
        }
        Request::Poll { events } => match world.events(number, events) {
            0 => Poll::Pending,
            events => Poll::Ready(ended(events as i32)),
        },
        Request::SendPosted { .. } => unreachable!("decided when it was submitted"),
    }
}

/// The bytes of a message, in one piece.
///
/// # Safety
/// The message, its slices and what they point at are valid.
unsafe fn gather(message: *const libc::msghdr) -> Vec<u8> {
    let mut bytes = Vec::new();
    // SAFETY: the caller's promise.
    let message = unsafe { &*message };
    for index in 0..message.msg_iovlen {
        // SAFETY: there are `msg_iovlen` slices.
        let slice = unsafe { &*message.msg_iov.add(index) };
        if slice.iov_len > 0 {
            // SAFETY: a slice that is not empty points at `iov_len` initialised bytes.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(slice.iov_base.cast::<u8>(), slice.iov_len)
            });
        }
    }
    bytes
}

fn ended(result: i32) -> Completion {
    Completion { result, buffer: None, more: false, rest: false }
}
