//! What a connection attends to next: a decision, without I/O, await or clock.

/// What a connection can take a step of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A frame of the push queues.
    Push,
    /// A frame of the response to the current request.
    Response,
    /// A frame from the peer.
    Inbound,
}

/// Pushes go before responses, and those before what comes in; but what waits below is not passed over for ever.
#[derive(Debug)]
pub(super) struct Attention {
    /// Pushes in a row after which what is below has a turn.
    bound: u32,
    streak: u32,
}

impl Attention {
    pub(super) fn new(bound: u32) -> Attention {
        Attention { bound: bound.max(1), streak: 0 }
    }

    /// The order in which to look; the first that is ready is served.
    #[inline]
    pub(super) fn order(&self) -> [Source; 3] {
        if self.streak < self.bound {
            [Source::Push, Source::Response, Source::Inbound]
        } else {
            [Source::Response, Source::Inbound, Source::Push]
        }
    }

    /// `source` was served.
    #[inline]
    pub(super) fn served(&mut self, source: Source) {
        self.streak = if source == Source::Push { self.streak.saturating_add(1) } else { 0 };
        if self.streak > self.bound {
            // Nothing below was ready when it had its turn.
            self.streak = 1;
        }
    }
}
