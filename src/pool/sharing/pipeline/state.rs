//! Which requests are on a socket, how far their bytes have come, and whose reply is whose. A value without I/O and
//! clock: events go in, and outcomes and wakers come out, to be acted upon when it is not borrowed any more.

use std::task::{Poll, Waker};
use std::time::Instant;

use super::matching::Matching;
use crate::pool::sharing::line::Line;
use crate::pool::sharing::order::Order;

/// What one socket takes before further calls wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests without their reply, those whose callers have given up included.
    pub(super) outstanding: usize,
    /// Bytes encoded and not yet with the kernel. The last request may exceed it.
    pub(super) unsent_bytes: usize,
}

#[derive(Debug)]
enum Fate<R> {
    Waiting(Option<Waker>),
    /// Nobody waits for the reply any more; it must come all the same before its place is free.
    Abandoned,
    Replied(R),
    Lost {
        sent: bool,
    },
}

#[derive(Debug)]
struct Request<R> {
    /// Where in the stream it begins.
    start: u64,
    /// When it was made, if anybody wants to know.
    since: Option<Instant>,
    fate: Fate<R>,
}

/// What a call has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<R> {
    Replied(R),
    Lost { sent: bool },
}

/// Whose reply it was.
#[derive(Debug)]
pub(super) enum Arrived<R> {
    /// The caller's, who is to be woken.
    Expected(Option<Waker>),
    /// One's who does not wait any more.
    Unwanted(R),
    /// Nobody's.
    Unsolicited(R),
}

#[derive(Debug)]
pub(super) struct State<R, M> {
    /// In line are those without a reply, oldest first; out of it, those whose caller has not collected it.
    requests: Order<Request<R>>,
    matching: M,
    /// Calls that wait for room.
    line: Line,
    limits: Limits,
    /// Bytes encoded in all, of which handed to the stream, of which written.
    encoded: u64,
    handed: u64,
    written: u64,
    over: bool,
}

impl<R, M: Matching<R>> State<R, M> {
    pub(super) fn new(limits: Limits) -> State<R, M> {
        State {
            requests: Order::new(),
            matching: M::default(),
            line: Line::new(),
            limits,
            encoded: 0,
            handed: 0,
            written: 0,
            over: false,
        }
    }

    fn has_room(&self) -> bool {
        self.requests.in_line() + self.line.granted() < self.limits.outstanding
            && self.encoded - self.written < self.limits.unsent_bytes as u64
    }

    /// Whether a call may begin without waiting: there is room, and nobody came before.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        !self.over && self.line.is_empty() && self.has_room()
    }

    /// A call waits for room.
    pub(super) fn enter(&mut self, waker: Waker) -> u32 {
        debug_assert!(!self.over, "who comes late is refused");
        self.line.enter(waker)
    }

    /// Whether there is room for it now; false when there never will be. The answer ends the waiting.
    pub(super) fn poll_room(&mut self, place: u32, waker: &Waker) -> Poll<bool> {
        self.line.poll(place, waker).map(|granted| granted && !self.over)
    }

    /// A call has given up waiting for room.
    pub(super) fn leave(&mut self, place: u32) {
        self.line.leave(place);
    }

    /// Who may begin now, to be asked after whatever makes room until there is nobody.
    pub(super) fn admit(&mut self) -> Option<Waker> {
        if self.over || !self.has_room() { None } else { self.line.grant_next() }
    }

    /// Whether a request with that id is without its reply.
    pub(super) fn expects(&self, id: &M::Id) -> bool {
        self.matching.expects(id)
    }

    /// A request was encoded, in `len` bytes behind all others.
    pub(super) fn begin(&mut self, id: M::Id, len: usize, since: Option<Instant>) -> u32 {
        debug_assert!(!self.over, "who comes late is refused");
        let start = self.encoded;
        self.encoded += len as u64;
        let key = self.requests.push_back(Request { start, since, fate: Fate::Waiting(None) });
        self.matching.expect(id, key);
        key
    }

    /// All that was encoded goes to the stream, which may send any part of it from here on.
    pub(super) fn hand_over(&mut self) {
        self.handed = self.encoded;
    }

    /// All that was handed over is with the kernel.
    pub(super) fn wrote(&mut self) {
        self.written = self.handed;
    }

    /// What a call has come to. The answer ends it.
    pub(super) fn poll(&mut self, key: u32, waker: &Waker) -> Poll<Outcome<R>> {
        if let Fate::Waiting(kept) = &mut self.requests.get_mut(key).fate {
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                *kept = Some(waker.clone());
            }
            return Poll::Pending;
        }
        match self.requests.remove(key).fate {
            Fate::Replied(reply) => Poll::Ready(Outcome::Replied(reply)),
            Fate::Lost { sent } => Poll::Ready(Outcome::Lost { sent }),
            Fate::Waiting(_) | Fate::Abandoned => unreachable!("polled by its caller, who waits"),
        }
    }

    /// The caller has given up. Gives a reply that had come and was not collected.
    pub(super) fn abandon(&mut self, key: u32) -> Option<R> {
        let request = self.requests.get_mut(key);
        if let Fate::Waiting(_) = request.fate {
            request.fate = Fate::Abandoned;
            return None;
        }
        match self.requests.remove(key).fate {
            Fate::Replied(reply) => Some(reply),
            _ => None,
        }
    }

    /// A reply has come.
    pub(super) fn arrive(&mut self, reply: R) -> Arrived<R> {
        let Some(key) = self.matching.take(&reply, self.requests.front()) else {
            return Arrived::Unsolicited(reply);
        };
        let request = self.requests.get_mut(key);
        if request.start >= self.handed {
            // To a request that the peer cannot have seen.
            return Arrived::Unsolicited(reply);
        }
        match std::mem::replace(&mut request.fate, Fate::Abandoned) {
            Fate::Waiting(waker) => {
                request.fate = Fate::Replied(reply);
                self.requests.step_out(key);
                Arrived::Expected(waker)
            }
            Fate::Abandoned => {
                self.requests.remove(key);
                Arrived::Unwanted(reply)
            }
            Fate::Replied(_) | Fate::Lost { .. } => unreachable!("out of line, and expected no more"),
        }
    }

    /// The socket has failed: nothing begins any more. What was on it is fetched by
    /// [`next_lost`](State::next_lost).
    pub(super) fn fail(&mut self) {
        self.over = true;
    }

    /// After a failure: the next call that is over by it, with its waker, if anybody waits.
    pub(super) fn next_lost(&mut self) -> Option<Option<Waker>> {
        debug_assert!(self.over);
        let Some(key) = self.requests.front() else { return self.line.refuse_next().map(Some) };
        let request = self.requests.get_mut(key);
        let lost = Fate::Lost { sent: request.start < self.handed };
        match std::mem::replace(&mut request.fate, lost) {
            Fate::Waiting(waker) => {
                self.requests.step_out(key);
                Some(waker)
            }
            _ => {
                self.requests.remove(key);
                Some(None)
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Nothing is unsent, and no reply is to come.
    pub(super) fn is_drained(&self) -> bool {
        self.requests.in_line() == 0 && self.written == self.encoded
    }

    /// When the oldest request was made that has no reply.
    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.requests.get(self.requests.front()?).since
    }

    #[cfg(test)]
    pub(super) fn outstanding(&self) -> usize {
        self.requests.in_line()
    }

    /// Requests that are remembered for whatever reason.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.requests.len()
    }
}
