//! The table of operations in flight: who waits for which completion, and what must stay in memory until then.
//!
//! Rules:
//! 1. A cell is released only on its operation's terminal completion, whatever has become of its future.
//! 2. A cell holds all that the kernel may still touch: the descriptor, and memory handed over by a dropped future.
//! 3. `user_data` carries the cell's generation, so a late completion or a cancel meets its own operation only.
//! 4. Neither wakers nor drops of user values run in here; both are handed out, to run when nothing is borrowed.

use std::any::Any;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

use slab::Slab;
use socket2::SockAddr;

use super::buffers::BufferPool;
use super::descriptor::Descriptor;
use crate::runtime::watch::Watch;

/// As many completions of one operation may wait to be collected before it is ended: who does not accept or receive must
/// not draw in connections and buffers without bound.
const UNCOLLECTED_LIMIT: usize = 64;

/// What is asked of the kernel. Pointers must stay valid until the terminal completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// One connection, or with `multishot` one after another; the result is its descriptor.
    Accept {
        multishot: bool,
    },
    Connect {
        address: *const SockAddr,
    },
    Receive {
        into: *mut u8,
        len: u32,
    },
    /// Receives into a buffer of the core's pool. `wait_first` says that nothing is expected to be there yet.
    ReceivePooled {
        multishot: bool,
        wait_first: bool,
    },
    /// With `all`, short sends go on inside the kernel.
    Send {
        from: *const u8,
        len: u32,
        all: bool,
    },
    /// A send that never waits in the kernel: it is over when the entry has been consumed, and posts a completion
    /// only when not everything was sent.
    SendPosted {
        from: *const u8,
        len: u32,
    },
    SendVectored {
        message: *const libc::msghdr,
    },
    Shutdown {
        how: i32,
    },
    /// Becomes ready once when one of the `events` (poll bits) is there.
    Poll {
        events: u32,
    },
}

impl Request {
    /// Whether a positive result is a new descriptor.
    fn yields_descriptor(self) -> bool {
        matches!(self, Request::Accept { .. })
    }
}

/// One completion: the result as the kernel gives it (a count or a negated errno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) result: i32,
    /// The pool buffer that carries the data.
    pub(crate) buffer: Option<u16>,
    /// Further completions of the same operation follow.
    pub(crate) more: bool,
    /// The socket held more bytes than this receive took, as far as the kernel says so.
    pub(crate) rest: bool,
}

impl Completion {
    pub(crate) fn into_result(self) -> std::io::Result<usize> {
        usize::try_from(self.result).map_err(|_| std::io::Error::from_raw_os_error(-self.result))
    }
}

/// Names one operation. A stale key is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpKey {
    index: u32,
    generation: u32,
}

impl OpKey {
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_user_data(user_data: u64) -> OpKey {
        OpKey { index: user_data as u32, generation: (user_data >> 32) as u32 }
    }
}

/// Who is told when a completion arrives.
#[derive(Debug)]
enum Waiter {
    Nobody,
    Task(Waker),
    Watch(Watch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    InFlight,
    /// The terminal completion is in `completions`.
    Ended,
    /// The future is gone; the cell waits for its terminal completion to be released.
    Abandoned,
}

struct Cell {
    generation: u32,
    phase: Phase,
    /// The single completion of most operations; the queue is for those with several.
    completion: Option<Completion>,
    further: VecDeque<Completion>,
    waiter: Waiter,
    yields_descriptor: bool,
    keep: Option<Box<dyn Any>>,
    /// Held open until the terminal completion.
    _descriptor: Option<Descriptor>,
}

impl Cell {
    fn next(&mut self) -> Option<Completion> {
        let next = self.completion.take()?;
        self.completion = self.further.pop_front();
        Some(next)
    }
}

/// What came out of the table and must run or drop while nothing is borrowed.
#[derive(Default)]
pub(crate) struct Aftermath {
    pub(crate) wakes: Vec<Waker>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) garbage: Vec<Box<dyn Any>>,
}

impl Aftermath {
    /// Somebody waits no more.
    fn discard(&mut self, waiter: Waiter) {
        if let Waiter::Task(waker) = waiter {
            self.discard_wakers([waker]);
        }
    }

    /// The drop of a waker may be user code.
    pub(crate) fn discard_wakers(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.garbage.extend(wakers.into_iter().map(|waker| Box::new(waker) as Box<dyn Any>));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.watches.is_empty() && self.garbage.is_empty()
    }
}

pub(crate) struct Ops {
    cells: Slab<Cell>,
    generation: u32,
    pub(crate) aftermath: Aftermath,
    /// Descriptors that arrived for nobody, to be closed at once. They are not part of the aftermath, which a shut
    /// down core collects no more.
    pub(crate) orphans: Vec<i32>,
    /// Operations that bring more than is collected, to be cancelled.
    pub(crate) overfull: Vec<OpKey>,
    buffers: Option<Rc<BufferPool>>,
}

impl Ops {
    pub(crate) fn new(buffers: Option<Rc<BufferPool>>) -> Ops {
        Ops {
            cells: Slab::new(),
            generation: 0,
            aftermath: Aftermath::default(),
            orphans: Vec::new(),
            overfull: Vec::new(),
            buffers,
        }
    }

    pub(crate) fn insert(
        &mut self,
        request: Request,
        descriptor: Option<Descriptor>,
        keep: Option<Box<dyn Any>>,
    ) -> OpKey {
        let generation = self.generation;
        // The two highest generations are left to the driver's own entries.
        self.generation = (generation + 1) % (u32::MAX - 1);
        let index = self.cells.insert(Cell {
            generation,
            phase: Phase::InFlight,
            completion: None,
            further: VecDeque::new(),
            waiter: Waiter::Nobody,
            yields_descriptor: request.yields_descriptor(),
            keep,
            _descriptor: descriptor,
        });
        OpKey { index: index as u32, generation }
    }

    fn cell(&mut self, key: OpKey) -> Option<&mut Cell> {
        self.cells.get_mut(key.index as usize).filter(|cell| cell.generation == key.generation)
    }

    /// Files a completion. Nothing is lost: a cell nobody waits for any more has its result disposed of.
    pub(crate) fn complete(&mut self, key: OpKey, completion: Completion) {
        if let (Some(_), Some(pool)) = (completion.buffer, &self.buffers) {
            pool.claimed();
        }
        let Some(cell) = self.cell(key) else {
            debug_assert!(false, "a completion without its operation: {key:?} {completion:?}");
            return;
        };
        if cell.phase == Phase::Abandoned {
            let yields_descriptor = cell.yields_descriptor;
            self.dispose(completion, yields_descriptor);
            if !completion.more {
                self.release(key);
            }
            return;
        }
        if !completion.more {
            cell.phase = Phase::Ended;
        }
        if cell.completion.is_none() {
            cell.completion = Some(completion);
        } else {
            cell.further.push_back(completion);
        }
        let overfull = completion.more && cell.further.len() == UNCOLLECTED_LIMIT;
        match std::mem::replace(&mut cell.waiter, Waiter::Nobody) {
            Waiter::Nobody => {}
            Waiter::Task(waker) => self.aftermath.wakes.push(waker),
            Waiter::Watch(watch) => self.aftermath.watches.push(watch),
        }
        if overfull {
            self.overfull.push(key);
        }
    }

    /// The next completion; registers the waker until there is one. The terminal one releases the cell.
    pub(crate) fn poll(&mut self, key: OpKey, waker: &Waker) -> Poll<Completion> {
        let Some(cell) = self.cell(key) else {
            unreachable!("an operation is polled by its one owner, and not after its end")
        };
        match cell.next() {
            Some(completion) => {
                if !completion.more {
                    self.release(key);
                }
                Poll::Ready(completion)
            }
            None => {
                if !matches!(&cell.waiter, Waiter::Task(kept) if kept.will_wake(waker)) {
                    let former = std::mem::replace(&mut cell.waiter, Waiter::Task(waker.clone()));
                    self.aftermath.discard(former);
                }
                Poll::Pending
            }
        }
    }

    /// The next completion, if it is there.
    pub(crate) fn try_next(&mut self, key: OpKey) -> Option<Completion> {
        let completion = self.cell(key)?.next()?;
        if !completion.more {
            self.release(key);
        }
        Some(completion)
    }

    /// Has a completion arrived that was not collected?
    pub(crate) fn has_completion(&self, key: OpKey) -> bool {
        self.cells
            .get(key.index as usize)
            .is_some_and(|cell| cell.generation == key.generation && cell.completion.is_some())
    }

    /// Tells `watch`, instead of a task, when a completion arrives.
    pub(crate) fn watch(&mut self, key: OpKey, watch: Watch) {
        if let Some(cell) = self.cell(key) {
            cell.waiter = Waiter::Watch(watch);
        }
    }

    /// Gives up on an operation: what it points at moves in here and stays until its end. True when it is still in
    /// flight and should be cancelled.
    pub(crate) fn abandon(&mut self, key: OpKey, keep: Option<Box<dyn Any>>) -> bool {
        let Some(cell) = self.cell(key) else {
            // Its cell was leaked by a shutdown that ran out of time; so is what the kernel may still write to.
            std::mem::forget(keep);
            return false;
        };
        let waiter = std::mem::replace(&mut cell.waiter, Waiter::Nobody);
        let (ended, yields_descriptor) = (cell.phase == Phase::Ended, cell.yields_descriptor);
        if keep.is_some() {
            cell.keep = keep;
        }
        cell.phase = Phase::Abandoned;
        self.aftermath.discard(waiter);
        while let Some(completion) = self.cell(key).and_then(Cell::next) {
            self.dispose(completion, yields_descriptor);
        }
        if ended {
            self.release(key);
        }
        !ended
    }

    /// Whether the operation has not seen its terminal completion.
    pub(crate) fn in_flight(&self, key: OpKey) -> bool {
        self.cells
            .get(key.index as usize)
            .is_some_and(|cell| cell.generation == key.generation && cell.phase != Phase::Ended)
    }

    /// An unwanted result: an orphan descriptor is closed, a pool buffer goes back.
    fn dispose(&mut self, completion: Completion, yields_descriptor: bool) {
        if yields_descriptor && completion.result >= 0 {
            self.orphans.push(completion.result);
        }
        if let (Some(buffer), Some(pool)) = (completion.buffer, &self.buffers) {
            pool.give_back(buffer);
        }
    }

    pub(crate) fn release(&mut self, key: OpKey) {
        let cell = self.cells.remove(key.index as usize);
        self.aftermath.garbage.extend(cell.keep);
        self.aftermath.discard(cell.waiter);
    }

    /// Every cell that is still in flight, for the shutdown.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.cells.iter().filter(|(_, cell)| cell.phase != Phase::Ended).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }
}
