//! Posted sends: small writes that return at once and ride along with the next kernel entry.
//!
//! A write copies its bytes into a buffer of the driver's and is done; what a socket posts within one turn leaves in
//! one send. That send is of the kind that never waits in the kernel (see [`Request::SendPosted`]): once the kernel
//! has consumed its entry, either everything was sent and no completion comes, or a completion says how much was.
//! So a request and the receive of its reply cost one kernel entry, and the buffer's life ends with that entry.
//!
//! Rules: at most one posted send of a socket is under way, so bytes cannot overtake each other; what the socket had
//! no room for goes on as an ordinary send, and until its end the socket's further writes wait; an error stays with
//! the socket until its owner asks.

use std::io;
use std::task::{Poll, Waker};

use slab::Slab;

use super::descriptor::Descriptor;
use super::op::{Aftermath, OpKey, Request};
use super::{Backend, Ops};

/// The most bytes one socket posts in one turn; longer writes go out of the caller's own buffer.
pub(crate) const POST_CAPACITY: usize = 4096;
/// Buffers kept for the next turn.
const SPARE_BUFFERS: usize = 256;

/// Names the posted bytes of one socket. Stale once all of them are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostKey {
    index: u32,
    generation: u32,
}

enum State {
    /// Takes more bytes until the next kernel entry.
    Collecting,
    /// The entry was pushed as the `sequence`th.
    Pushed {
        op: OpKey,
        sequence: u64,
    },
    /// The socket was full: the rest goes on as an ordinary send.
    Draining {
        op: OpKey,
    },
    Failed(i32),
}

struct Post {
    generation: u32,
    descriptor: Descriptor,
    buffer: Vec<u8>,
    sent: usize,
    state: State,
    owned: bool,
    /// What the socket has no room for is dropped.
    given_up: bool,
    waiter: Option<Waker>,
}

/// How a posted write went.
#[must_use]
pub(crate) enum Posting {
    /// The bytes are copied and will be sent.
    Taken(PostKey),
    /// Earlier bytes are still on their way: wait by [`Posts::poll`].
    Busy,
    Failed(io::Error),
}

#[derive(Default)]
pub(crate) struct Posts {
    posts: Slab<Post>,
    generation: u32,
    collecting: Vec<u32>,
    under_way: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// The next kernel entry decides the fate of bytes that somebody waits for, or of a socket that nobody owns any more: it
    /// closes with its last send, and its peer must hear of that even if nothing else happens here.
    awaited: bool,
}

impl Posts {
    /// Takes `bytes`, at most [`POST_CAPACITY`], behind what `earlier` names.
    pub(crate) fn post(&mut self, earlier: Option<PostKey>, to: &Descriptor, bytes: &[u8]) -> Posting {
        debug_assert!(bytes.len() <= POST_CAPACITY);
        if let Some(key) = earlier
            && let Some(post) = self.get_mut(key)
        {
            return match post.state {
                State::Collecting if post.buffer.len() + bytes.len() <= POST_CAPACITY => {
                    post.buffer.extend_from_slice(bytes);
                    Posting::Taken(key)
                }
                State::Failed(errno) => Posting::Failed(io::Error::from_raw_os_error(errno)),
                State::Collecting | State::Pushed { .. } | State::Draining { .. } => Posting::Busy,
            };
        }
        let mut buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(POST_CAPACITY));
        buffer.extend_from_slice(bytes);
        let generation = self.generation;
        self.generation = generation.wrapping_add(1);
        let index = self.posts.insert(Post {
            generation,
            descriptor: to.clone(),
            buffer,
            sent: 0,
            state: State::Collecting,
            owned: true,
            given_up: false,
            waiter: None,
        }) as u32;
        self.collecting.push(index);
        Posting::Taken(PostKey { index, generation })
    }

    fn get_mut(&mut self, key: PostKey) -> Option<&mut Post> {
        self.posts.get_mut(key.index as usize).filter(|post| post.generation == key.generation)
    }

    /// Ready once all posted bytes are with the kernel, or the send failed.
    pub(crate) fn poll(
        &mut self,
        key: PostKey,
        waker: &Waker,
        aftermath: &mut Aftermath,
    ) -> Poll<io::Result<()>> {
        let Some(post) = self.get_mut(key) else { return Poll::Ready(Ok(())) };
        if let State::Failed(errno) = post.state {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno)));
        }
        let undecided = !matches!(post.state, State::Draining { .. });
        if !post.waiter.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            aftermath.discard_wakers(post.waiter.replace(waker.clone()));
        }
        self.awaited |= undecided;
        Poll::Pending
    }

    /// Where the bytes are: all sent or still collecting (`None`), stuck behind a full socket, or failed.
    pub(crate) fn trouble(&mut self, key: PostKey) -> Option<io::Error> {
        match self.get_mut(key)?.state {
            State::Collecting => None,
            State::Pushed { .. } | State::Draining { .. } => Some(io::ErrorKind::WouldBlock.into()),
            State::Failed(errno) => Some(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Whether the send failed before the kernel had taken a single byte of it.
    #[cfg(feature = "framed")]
    pub(crate) fn is_unsent(&mut self, key: PostKey) -> bool {
        self.get_mut(key).is_some_and(|post| matches!(post.state, State::Failed(_)) && post.sent == 0)
    }

    /// Whether bytes are not yet with the kernel.
    pub(crate) fn is_pending(&mut self, key: PostKey) -> bool {
        self.get_mut(key).is_some_and(|post| !matches!(post.state, State::Failed(_)))
    }

    /// The owner is gone: what was posted is still sent.
    pub(crate) fn disown(&mut self, key: PostKey, aftermath: &mut Aftermath) {
        let Some(post) = self.get_mut(key) else { return };
        post.owned = false;
        aftermath.discard_wakers(post.waiter.take());
        match post.state {
            State::Collecting | State::Pushed { .. } => self.awaited = true,
            State::Draining { .. } => {}
            State::Failed(_) => drop(self.posts.remove(key.index as usize)),
        }
    }

    /// The owner discards the socket: bytes still on their way need not arrive. Gives the operation to abandon, with
    /// the buffer it uses. A send that the next kernel entry decides is left to `settle`.
    pub(crate) fn discard(&mut self, key: PostKey, aftermath: &mut Aftermath) -> Option<(OpKey, Vec<u8>)> {
        let post = self.get_mut(key)?;
        let State::Draining { op } = post.state else {
            post.given_up = true;
            self.disown(key, aftermath);
            return None;
        };
        aftermath.discard_wakers(post.waiter.take());
        self.under_way.retain(|index| *index != key.index);
        Some((op, self.posts.remove(key.index as usize).buffer))
    }

    /// For the shutdown: nobody asks any more.
    pub(crate) fn disown_all(&mut self, aftermath: &mut Aftermath) {
        self.posts.retain(|_, post| {
            post.owned = false;
            aftermath.discard_wakers(post.waiter.take());
            !matches!(post.state, State::Failed(_))
        });
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    pub(crate) fn has_collecting(&self) -> bool {
        !self.collecting.is_empty()
    }

    /// Pushes one send for every socket that has collected bytes.
    #[allow(unsafe_code)]
    pub(crate) fn flush(&mut self, ops: &mut Ops, backend: &mut Backend) {
        for index in self.collecting.drain(..) {
            let post = &mut self.posts[index as usize];
            let request = Request::SendPosted { from: post.buffer.as_ptr(), len: post.buffer.len() as u32 };
            let op = ops.insert(request, Some(post.descriptor.clone()), None);
            // SAFETY: the buffer is neither changed nor freed before the send is over: `settle` recycles it then, and
            // `discard` hands it to the operation's cell. The cell keeps the descriptor open.
            unsafe { backend.push(op, post.descriptor.number(), request) };
            post.state = State::Pushed { op, sequence: backend.pushed() };
            self.under_way.push(index);
        }
    }

    /// After a kernel entry and a full reap: sorts out what became of the pushed sends.
    #[allow(unsafe_code)]
    pub(crate) fn settle(&mut self, ops: &mut Ops, backend: &mut Backend) {
        if self.under_way.is_empty() {
            return;
        }
        let consumed = backend.consumed();
        self.awaited = false;
        let mut at = 0;
        while at < self.under_way.len() {
            let index = self.under_way[at];
            let post = &mut self.posts[index as usize];
            let (op, quiet_success) = match post.state {
                State::Pushed { op, sequence } => (op, sequence <= consumed),
                State::Draining { op } => (op, false),
                State::Collecting | State::Failed(_) => unreachable!("only sends under way are listed"),
            };
            let over = match ops.try_next(op).map(|completion| completion.result) {
                None if quiet_success => {
                    ops.release(op);
                    true
                }
                None => {
                    let undecided = matches!(post.state, State::Pushed { .. });
                    self.awaited |= undecided && (post.waiter.is_some() || !post.owned);
                    at += 1;
                    continue;
                }
                Some(result) => {
                    if let Ok(count) = usize::try_from(result) {
                        post.sent += count;
                    }
                    match -result {
                        _ if post.sent == post.buffer.len() || post.given_up => true,
                        i32::MIN..=0 | libc::EAGAIN | libc::EINTR => {
                            let rest = &post.buffer[post.sent..];
                            let request =
                                Request::Send { from: rest.as_ptr(), len: rest.len() as u32, all: true };
                            let op = ops.insert(request, Some(post.descriptor.clone()), None);
                            // SAFETY: as in `flush`.
                            unsafe { backend.push(op, post.descriptor.number(), request) };
                            post.state = State::Draining { op };
                            at += 1;
                            continue;
                        }
                        errno => {
                            post.state = State::Failed(errno);
                            !post.owned
                        }
                    }
                }
            };
            self.under_way.swap_remove(at);
            if let Some(waiter) = self.posts[index as usize].waiter.take() {
                ops.aftermath.wakes.push(waiter);
            }
            if over {
                let mut post = self.posts.remove(index as usize);
                if self.spare.len() < SPARE_BUFFERS {
                    post.buffer.clear();
                    self.spare.push(post.buffer);
                }
            }
        }
    }
}
