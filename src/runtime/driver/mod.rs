//! The I/O of one core: operations in, completions out. A closed enum of two backends, the ring and the simulation;
//! behind it nothing knows which of them runs.
//!
//! Never: run a waker, a user's drop or any other user code; what must run is handed out as [`op::Aftermath`].

pub(crate) mod buffers;
mod closing;
mod config;
pub(crate) mod descriptor;
mod entering;
mod entrance;
pub(crate) mod op;
pub(crate) mod owned;
mod posted;
mod probe;
mod ring;
pub(crate) mod sim;
pub(crate) mod socket;

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use socket2::SockAddr;

use super::error::StartError;
use super::watch::Watch;
use buffers::{BufferPool, PooledBuf};
pub(crate) use config::RingConfig;
pub use config::{DriverStats, EnterCall, EnterHook};
use descriptor::Descriptor;
use op::{Aftermath, Completion, OpKey, Ops, Request};
use posted::Posts;
pub(crate) use posted::{POST_CAPACITY, PostKey, Posting};
pub use probe::Features;
use ring::Ring;
use sim::SimPort;

pub(crate) enum Backend {
    Ring(Box<Ring>),
    Sim(SimPort),
}

impl Backend {
    /// # Safety
    /// What the request points at stays valid until its terminal completion, and `fd` stays open until then.
    #[allow(unsafe_code)]
    unsafe fn push(&mut self, key: OpKey, fd: RawFd, request: Request) {
        match self {
            // SAFETY: the caller's promise is the same.
            Backend::Ring(ring) => unsafe { ring.push(key, fd, request) },
            // SAFETY: likewise.
            Backend::Sim(port) => unsafe { port.push(key, fd, request) },
        }
    }

    fn push_cancel(&mut self, key: OpKey) {
        match self {
            Backend::Ring(ring) => ring.push_cancel(key),
            Backend::Sim(port) => port.push_cancel(key),
        }
    }

    fn pushed(&self) -> u64 {
        match self {
            Backend::Ring(ring) => ring.pushed(),
            Backend::Sim(port) => port.pushed(),
        }
    }

    fn consumed(&mut self) -> u64 {
        match self {
            Backend::Ring(ring) => ring.consumed(),
            Backend::Sim(port) => port.consumed(),
        }
    }
}

pub(crate) struct Driver {
    ops: Ops,
    posts: Posts,
    backend: Backend,
    /// Requests that are in no hurry, to be pushed behind everything else.
    patient: Vec<(OpKey, RawFd, Request)>,
    buffers: Option<Rc<BufferPool>>,
    stats: DriverStats,
    features: Features,
    closed: bool,
}

impl Driver {
    /// A driver over a ring of the calling thread, woken by the eventfd `bell`.
    pub(crate) fn ring(config: &RingConfig, bell: RawFd) -> Result<Driver, StartError> {
        let ring = Ring::new(config, bell)?;
        let pool = BufferPool::new(config.receive_buffers, config.receive_buffer_size, true)
            .map_err(StartError::from_ring)?;
        let mut features = ring.features();
        if let Some(address) = pool.ring_address() {
            features.provided_buffers = match ring.register_buffers(address, pool.count()) {
                Ok(()) => true,
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
                Err(error) => return Err(StartError::from_ring(error)),
            };
        }
        let buffers = features.provided_buffers.then_some(pool);
        Ok(Driver::new(Backend::Ring(Box::new(ring)), buffers, features))
    }

    /// A driver over a port of a simulated world.
    pub(crate) fn simulated(port: SimPort, buffers: Rc<BufferPool>) -> Driver {
        let features = Features {
            provided_buffers: true,
            multishot_accept: true,
            multishot_receive: true,
            ..Features::default()
        };
        Driver::new(Backend::Sim(port), Some(buffers), features)
    }

    fn new(backend: Backend, buffers: Option<Rc<BufferPool>>, features: Features) -> Driver {
        Driver {
            ops: Ops::new(buffers.clone()),
            posts: Posts::default(),
            patient: Vec::new(),
            backend,
            buffers,
            stats: DriverStats::default(),
            features,
            closed: false,
        }
    }

    /// Starts an operation. It never fails here: what is wrong comes as its completion.
    ///
    /// # Safety
    /// What `request` points at, unless it is in `keep`, must stay valid until the operation's terminal completion
    /// was collected, or be handed over by [`abandon`](Driver::abandon).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn start(
        &mut self,
        descriptor: &Descriptor,
        request: Request,
        keep: Option<Box<dyn Any>>,
    ) -> OpKey {
        let key = self.ops.insert(request, Some(descriptor.clone()), keep);
        if self.closed {
            let completion = Completion { result: -libc::ECANCELED, buffer: None, more: false, rest: false };
            self.ops.complete(key, completion);
            return key;
        }
        // SAFETY: the caller's promise; the cell holds the descriptor until the terminal completion.
        unsafe { self.backend.push(key, descriptor.number(), request) };
        key
    }

    /// Starts a receive that nobody waits for yet. It is pushed behind what is sent in the same turn, so that arming
    /// a connection for later delays no request now.
    #[inline]
    pub(crate) fn start_patiently(&mut self, descriptor: &Descriptor, request: Request) -> OpKey {
        debug_assert!(matches!(request, Request::ReceivePooled { .. } | Request::Poll { .. }));
        if self.closed {
            return self.start_plain(descriptor, request);
        }
        let key = self.ops.insert(request, Some(descriptor.clone()), None);
        self.patient.push((key, descriptor.number(), request));
        key
    }

    #[allow(unsafe_code)]
    fn push_patient(&mut self) {
        for (key, fd, request) in self.patient.drain(..) {
            // SAFETY: these requests point at nothing, and the cell holds the descriptor until the terminal completion.
            unsafe { self.backend.push(key, fd, request) };
        }
    }

    /// Pushes everything that has been left for the next kernel entry.
    fn push_staged(&mut self) {
        self.posts.flush(&mut self.ops, &mut self.backend);
        self.push_patient();
    }

    /// Starts an operation that points at nothing.
    #[allow(unsafe_code)]
    pub(crate) fn start_plain(&mut self, descriptor: &Descriptor, request: Request) -> OpKey {
        let points_nowhere = matches!(
            request,
            Request::Accept { .. }
                | Request::ReceivePooled { .. }
                | Request::Shutdown { .. }
                | Request::Poll { .. }
        );
        assert!(points_nowhere, "{request:?} points at memory");
        // SAFETY: just checked: there is nothing to keep valid.
        unsafe { self.start(descriptor, request, None) }
    }

    /// Waits for `events` (poll bits) on a descriptor that somebody else keeps open while they wait. A simulation knows no
    /// such descriptors: there it fails.
    #[allow(unsafe_code)]
    pub(crate) fn start_poll(&mut self, fd: BorrowedFd<'_>, events: u32) -> OpKey {
        let request = Request::Poll { events };
        let key = self.ops.insert(request, None, None);
        let refused = match &self.backend {
            _ if self.closed => libc::ECANCELED,
            Backend::Sim(_) => libc::EOPNOTSUPP,
            Backend::Ring(_) => {
                // SAFETY: a poll points at nothing, and takes nothing from its descriptor. It is open now; should it be
                // closed and its number given away before the kernel has the entry, then its waiter has gone, and the
                // cancel right behind ends a look at another file that nobody hears of.
                unsafe { self.backend.push(key, fd.as_raw_fd(), request) };
                return key;
            }
        };
        self.ops.complete(key, Completion { result: -refused, buffer: None, more: false, rest: false });
        key
    }

    #[allow(unsafe_code)]
    pub(crate) fn start_connect(&mut self, descriptor: &Descriptor, address: SockAddr) -> OpKey {
        let address = Box::new(address);
        let request = Request::Connect { address: &raw const *address };
        // SAFETY: the boxed address lives in the operation's cell until the terminal completion.
        unsafe { self.start(descriptor, request, Some(address)) }
    }

    pub(crate) fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        self.ops.poll(key, waker)
    }

    pub(crate) fn has_completion(&self, key: OpKey) -> bool {
        self.ops.has_completion(key)
    }

    pub(crate) fn watch(&mut self, key: OpKey, watch: Watch) {
        self.ops.watch(key, watch);
    }

    /// Asks for the operation's end; its completion is still to be collected.
    pub(crate) fn cancel(&mut self, key: OpKey) {
        if !self.closed && self.ops.in_flight(key) {
            self.push_cancel(key);
        }
    }

    fn push_cancel(&mut self, key: OpKey) {
        // What is to be cancelled may be among them, and a cancel must come behind it.
        self.push_patient();
        self.backend.push_cancel(key);
    }

    /// The operation's owner goes: it is cancelled, and `keep` lives until its end.
    pub(crate) fn abandon(&mut self, key: OpKey, keep: Option<Box<dyn Any>>) {
        if self.ops.abandon(key, keep) && !self.closed {
            self.push_cancel(key);
        }
        self.close_orphans();
    }

    pub(crate) fn post(&mut self, earlier: Option<PostKey>, to: &Descriptor, bytes: &[u8]) -> Posting {
        if self.closed {
            return Posting::Failed(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        self.posts.post(earlier, to, bytes)
    }

    pub(crate) fn poll_posted(&mut self, key: PostKey, waker: &Waker) -> Poll<io::Result<()>> {
        self.posts.poll(key, waker, &mut self.ops.aftermath)
    }

    pub(crate) fn posted_trouble(&mut self, key: PostKey) -> Option<io::Error> {
        self.posts.trouble(key)
    }

    #[cfg(feature = "framed")]
    pub(crate) fn posted_is_unsent(&mut self, key: PostKey) -> bool {
        self.posts.is_unsent(key)
    }

    pub(crate) fn posted_is_pending(&mut self, key: PostKey) -> bool {
        self.posts.is_pending(key)
    }

    pub(crate) fn disown_posted(&mut self, key: PostKey) {
        self.posts.disown(key, &mut self.ops.aftermath);
    }

    pub(crate) fn discard_posted(&mut self, key: PostKey) {
        if let Some((op, buffer)) = self.posts.discard(key, &mut self.ops.aftermath) {
            self.abandon(op, Some(Box::new(buffer)));
        }
    }

    /// The buffer that a completion named.
    pub(crate) fn claim(&self, completion: Completion) -> Option<PooledBuf> {
        let (buffer, pool) = (completion.buffer?, self.buffers.as_ref()?);
        Some(PooledBuf::claim(Rc::clone(pool), buffer, usize::try_from(completion.result).unwrap_or(0)))
    }

    /// Makes a descriptor out of an accept's result.
    #[allow(unsafe_code)]
    pub(crate) fn adopt(&self, result: i32) -> Descriptor {
        use std::os::fd::{FromRawFd, OwnedFd};
        match &self.backend {
            Backend::Ring(_) => {
                // SAFETY: the kernel made this descriptor for the operation whose completion is adopted, once.
                Descriptor::kernel(unsafe { OwnedFd::from_raw_fd(result) })
            }
            Backend::Sim(port) => Descriptor::simulated(port.descriptor(result)),
        }
    }

    /// Files what has arrived.
    pub(crate) fn reap(&mut self) -> io::Result<()> {
        match &mut self.backend {
            Backend::Ring(ring) => {
                ring.reap(&mut self.ops, &mut self.stats)?;
                if ring.overflowing() {
                    return Ok(());
                }
            }
            Backend::Sim(port) => port.reap(&mut self.ops, &mut self.stats),
        }
        while let Some(key) = self.ops.overfull.pop() {
            self.cancel(key);
        }
        self.posts.settle(&mut self.ops, &mut self.backend);
        self.close_orphans();
        Ok(())
    }

    fn close_orphans(&mut self) {
        while let Some(result) = self.ops.orphans.pop() {
            drop(self.adopt(result));
        }
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.backend {
            Backend::Ring(_) => Instant::now(),
            Backend::Sim(port) => port.now(),
        }
    }

    /// Whether time and sockets are played.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.backend, Backend::Sim(_))
    }

    /// What a random generator on this core starts from: chance, or the seed of a simulated run.
    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn seed(&self) -> u64 {
        match &self.backend {
            Backend::Ring(_) => fastrand::u64(..),
            Backend::Sim(port) => port.draw(),
        }
    }

    pub(crate) fn register_eventfd(&mut self, eventfd: RawFd) -> io::Result<()> {
        match &mut self.backend {
            Backend::Ring(ring) => ring.register_eventfd(eventfd),
            Backend::Sim(_) => Ok(()),
        }
    }

    /// Whether a registered eventfd is signalled; see [`Ring::signal_eventfd`].
    pub(crate) fn signal_eventfd(&mut self, on: bool) {
        match &mut self.backend {
            Backend::Ring(ring) => ring.signal_eventfd(on),
            Backend::Sim(_) => {}
        }
    }

    /// Swaps what must run outside the driver's borrow with an empty `into`; false when there is nothing.
    #[inline]
    pub(crate) fn take_aftermath(&mut self, into: &mut Aftermath) -> bool {
        if self.ops.aftermath.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.ops.aftermath, into);
        true
    }

    /// The kernel refused a multishot operation: only single ones from now on.
    pub(crate) fn give_up_multishot(&mut self) {
        (self.features.multishot_accept, self.features.multishot_receive) = (false, false);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    pub(crate) fn stats(&self) -> DriverStats {
        DriverStats {
            in_flight: self.ops.len(),
            buffers_out: self.buffers.as_ref().map_or(0, |pool| pool.out()),
            ..self.stats
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shut_down();
    }
}
