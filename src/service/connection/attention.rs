//! What a connection attends to next: a decision, without I/O, await or clock.
//!
//! A shutdown goes before everything; which of the two push queues gives the next push, the queues decide, so that
//! each of the two has its turn there. What is decided here is between pushes and the conversation with the peer.

/// What a connection can take a step of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A frame of the push queues.
    Push,
    /// A frame of the response to the current request.
    Response,
    /// A frame from the peer, or bytes of one.
    Inbound,
}

/// Pushes go before responses, and those before what comes in; but what waits below is not passed over for ever.
///
/// Responses and requests need no bound between them: a request is taken only when the one before is answered.
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
        // A push that is served at the bound begins a new row: nothing below was ready when it had its turn.
        self.streak = match source {
            Source::Push if self.streak < self.bound => self.streak + 1,
            Source::Push => 1,
            Source::Response | Source::Inbound => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Serves the first that is ready.
    fn step(attention: &mut Attention, ready: [bool; 3]) -> Option<Source> {
        let served = attention.order().into_iter().find(|source| ready[*source as usize])?;
        attention.served(served);
        Some(served)
    }

    /// Every run of so many steps, with whatever ready at each: pushes, and either the response or a request.
    #[test]
    fn no_source_is_passed_over_for_more_than_the_bound() {
        const STEPS: u32 = 9;
        for bound in 1..=3 {
            // Base four: neither, pushes only, conversation only, both; the conversation changes sides at each step served.
            for run in 0..4_u32.pow(STEPS) {
                let mut attention = Attention::new(bound);
                let (mut push_waits, mut rest_waits, mut answering) = (0, 0, false);
                for place in 0..STEPS {
                    let digit = run / 4_u32.pow(place) % 4;
                    let (push, rest) = (digit & 1 != 0, digit & 2 != 0);
                    let served = step(&mut attention, [push, rest && answering, rest && !answering]);
                    assert_eq!(served.is_some(), push || rest, "what is ready is served at once");
                    answering ^= matches!(served, Some(Source::Response | Source::Inbound));
                    let passed = |waits: u32, ready: bool, was_served: bool| {
                        if ready && !was_served { waits + 1 } else { 0 }
                    };
                    push_waits = passed(push_waits, push, served == Some(Source::Push));
                    rest_waits = passed(rest_waits, rest, served.is_some() && served != Some(Source::Push));
                    assert!(push_waits <= 1, "a push waits for one frame at most");
                    assert!(rest_waits <= bound, "the conversation waits for {bound} pushes at most");
                }
            }
        }
    }

    #[test]
    fn pushes_go_first_until_the_bound() {
        let mut attention = Attention::new(3);
        let served: Vec<_> = (0..8).filter_map(|_| step(&mut attention, [true, true, false])).collect();
        let (push, response) = (Source::Push, Source::Response);
        assert_eq!(served, [push, push, push, response, push, push, push, response]);
    }

    proptest! {
        #[test]
        fn under_a_flood_of_pushes_the_share_below_is_kept(
            bound in 0..200_u32,
            ready in proptest::collection::vec(any::<bool>(), 1..2000),
        ) {
            let mut attention = Attention::new(bound);
            let mut waits = 0;
            for rest in ready {
                match step(&mut attention, [true, false, rest]) {
                    Some(Source::Push) if rest => waits += 1,
                    _ => waits = 0,
                }
                prop_assert!(waits <= bound.max(1));
            }
        }
    }
}
