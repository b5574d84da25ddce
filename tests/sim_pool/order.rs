//! An acquire under observation: when it was queued, woken and served, and whether its deadline was kept; and the
//! judgement over the order in which the local acquires of a shard were served.
//!
//! The order of grants is that in which the waiters are woken. The order in which they then run is the executor's.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use corelet::pool::{Acquire, AcquireError, Fairness, Lease};
use corelet::runtime::{current_core, now};

use super::connector::TrackedConnector;
use super::ledger::Ledger;

/// What a turn of virtual time may add to a deadline: a busy system lets a millisecond pass now and then.
const SLACK: Duration = Duration::from_millis(1);

/// What befell the local acquires of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Queued {
        handle: u64,
        acquire: u64,
    },
    Woken {
        acquire: u64,
    },
    /// It has its lease. At once, if it never was queued.
    Served {
        handle: u64,
        acquire: u64,
    },
    /// It has ended without.
    Left {
        acquire: u64,
    },
}

/// Whose acquire it is and what it was promised.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub home: usize,
    pub here: usize,
    pub handle: u64,
    /// It may be served by another shard.
    pub spills: bool,
    pub limit: Option<Duration>,
}

pub struct Observed<'a> {
    acquire: Acquire<'a, TrackedConnector>,
    ledger: Ledger,
    terms: Terms,
    number: u64,
    begun: Option<Instant>,
    queued: bool,
    ended: bool,
}

/// Notes the first wake, then passes it on.
struct Bell {
    inner: Waker,
    rung: AtomicBool,
    ledger: Ledger,
    /// The shard whose order it counts in and the acquire, once that is queued.
    queued: Option<(usize, u64)>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.rung.swap(true, Ordering::Relaxed)
            && let Some((shard, acquire)) = self.queued
        {
            self.ledger.book().steps[shard].push(Step::Woken { acquire });
        }
        self.inner.wake_by_ref();
    }
}

impl<'a> Observed<'a> {
    pub fn new(acquire: Acquire<'a, TrackedConnector>, ledger: &Ledger, terms: Terms) -> Observed<'a> {
        let number = ledger.number();
        let ledger = ledger.clone();
        Observed { acquire, ledger, terms, number, begun: None, queued: false, ended: false }
    }

    fn is_local(&self) -> bool {
        self.terms.home == self.terms.here && !self.terms.spills
    }

    fn note(&self, step: Step) {
        if self.is_local() {
            self.ledger.book().steps[self.terms.home].push(step);
        }
    }

    /// It was not queued after all.
    fn take_back(&self, from: usize) {
        if !self.is_local() {
            return;
        }
        let steps = &mut self.ledger.book().steps[self.terms.home];
        let tail = steps.split_off(from);
        let of_this = |step: &Step| match step {
            Step::Queued { acquire, .. } | Step::Woken { acquire } => *acquire == self.number,
            _ => false,
        };
        steps.extend(tail.into_iter().filter(|step| !of_this(step)));
    }

    /// The deadline has been kept so far, and nobody was let wait in vain.
    fn check_time(&self, timed_out: bool) {
        let Some(begun) = self.begun else { return };
        // No shard keeps anybody waiting once it is gone.
        let gone = {
            let book = self.ledger.book();
            book.closing.into_iter().chain(book.killed[self.terms.home]).min()
        };
        if gone.is_some_and(|gone| now() > begun.max(gone) + SLACK) {
            self.ledger.fault(format!("waited on for a shard that is gone: {:?}", self.terms));
        }
        let Some(limit) = self.terms.limit else { return };
        let taken = now() - begun;
        if timed_out && taken < limit {
            self.ledger.fault(format!("timed out after {taken:?}, before {limit:?}: {:?}", self.terms));
        }
        let overrun = taken.saturating_sub(limit);
        if overrun > SLACK {
            self.ledger.fault(format!("{taken:?} taken, {limit:?} allowed: {:?}", self.terms));
        }
        let tally = &mut self.ledger.book().tally;
        tally.overrun = tally.overrun.max(overrun.as_nanos() as u64);
    }
}

impl Future for Observed<'_> {
    type Output = Result<Lease<TrackedConnector>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let queued = (self.queued && self.is_local()).then_some((self.terms.home, self.number));
        let first = self.begun.is_none();
        if first {
            self.begun = Some(now());
        }
        let bell = Arc::new(Bell {
            inner: cx.waker().clone(),
            rung: AtomicBool::new(false),
            ledger: self.ledger.clone(),
            queued: queued.or((first && self.is_local()).then_some((self.terms.home, self.number))),
        });
        let waker = Waker::from(Arc::clone(&bell));
        // Noted before, because the news may come before this returns; taken back when it was served at once.
        let before = self.ledger.book().steps[self.terms.here].len();
        let Terms { handle, .. } = self.terms;
        if first {
            self.note(Step::Queued { handle, acquire: self.number });
        }
        let polled = Pin::new(&mut self.acquire).poll(&mut Context::from_waker(&waker));
        match &polled {
            Poll::Pending if first && bell.rung.load(Ordering::Relaxed) => {
                // The task had spent its budget: nothing has begun.
                self.begun = None;
                self.take_back(before);
            }
            Poll::Pending => {
                if first {
                    self.ledger.book().tally.waited += 1;
                }
                self.queued = true;
            }
            Poll::Ready(result) => {
                self.ended = true;
                let timed_out = matches!(result, Err(AcquireError::Timeout { .. }));
                self.check_time(timed_out);
                if first {
                    self.take_back(before);
                }
                match result {
                    Ok(_) => self.note(Step::Served { handle, acquire: self.number }),
                    Err(_) => self.note(Step::Left { acquire: self.number }),
                }
            }
        }
        polled
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        if self.ended || !self.queued {
            return;
        }
        self.note(Step::Left { acquire: self.number });
        if current_core().is_some() {
            self.check_time(false);
        }
    }
}

/// Who waits, and whether it has been woken.
struct Waiting {
    handle: u64,
    woken: bool,
    /// How often each handle was served since this one was queued and its own handle was not.
    passed: BTreeMap<u64, usize>,
}

/// Judges one shard's steps; gives the first thing that is out of order.
pub fn judge(steps: &[Step], fairness: Fairness) -> Result<(), String> {
    // Which wakes were grants is known only later.
    let served: BTreeSet<u64> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Served { acquire, .. } => Some(*acquire),
            _ => None,
        })
        .collect();
    // By arrival: numbers are given before, so the order of the map would be another one.
    let mut line: Vec<(u64, Waiting)> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Queued { handle, acquire } => {
                line.push((acquire, Waiting { handle, woken: false, passed: BTreeMap::new() }));
            }
            Step::Woken { acquire } => {
                let Some(place) = line.iter().position(|(other, _)| *other == acquire) else { continue };
                let handle = line[place].1.handle;
                line[place].1.woken = true;
                if served.contains(&acquire) {
                    let overtaken = line[..place].iter().find(|(_, other)| {
                        !other.woken && (fairness == Fairness::Fifo || other.handle == handle)
                    });
                    if let Some((other, _)) = overtaken {
                        return Err(format!(
                            "step {at}: {acquire} is served before {other}, which came first"
                        ));
                    }
                }
                for (other, waiting) in &mut line {
                    if waiting.handle == handle || !served.contains(&acquire) {
                        // Perhaps a grant that nobody collected: then that handle's turn has passed too.
                        if waiting.handle == handle {
                            waiting.passed.clear();
                        }
                        continue;
                    }
                    if waiting.woken {
                        continue;
                    }
                    let passed = waiting.passed.entry(handle).or_default();
                    *passed += 1;
                    if *passed > 1 && fairness == Fairness::RoundRobin {
                        return Err(format!(
                            "step {at}: handle {handle} is served twice while {other} waits"
                        ));
                    }
                }
            }
            Step::Served { acquire, .. } => match line.iter().position(|(other, _)| *other == acquire) {
                Some(place) => drop(line.remove(place)),
                None => {
                    if let Some((other, _)) = line.iter().find(|(_, other)| !other.woken) {
                        return Err(format!("step {at}: {acquire} is served at once while {other} waits"));
                    }
                }
            },
            Step::Left { acquire } => line.retain(|(other, _)| *other != acquire),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Step::{Left, Queued, Served, Woken};
    use super::*;

    fn queued(handle: u64, acquire: u64) -> Step {
        Queued { handle, acquire }
    }

    fn granted(handle: u64, acquire: u64) -> [Step; 2] {
        [Woken { acquire }, Served { handle, acquire }]
    }

    #[test]
    fn the_judge_lets_arrival_pass_and_nothing_else() {
        let both = |first: [Step; 2], second: [Step; 2]| {
            [&[queued(1, 10), queued(2, 11)], &first[..], &second[..]].concat()
        };
        let in_order = both(granted(1, 10), granted(2, 11));
        let overtaken = both(granted(2, 11), granted(1, 10));
        assert!(judge(&in_order, Fairness::Fifo).is_ok());
        assert!(judge(&overtaken, Fairness::Fifo).is_err());
        // Between handles it is nobody's promise there.
        assert!(judge(&overtaken, Fairness::RoundRobin).is_ok());
        let given_up = [&[queued(1, 10), queued(2, 11), Left { acquire: 10 }], &granted(2, 11)[..]].concat();
        assert!(judge(&given_up, Fairness::Fifo).is_ok());
        let newcomer = [queued(1, 10), Served { handle: 2, acquire: 12 }];
        assert!(judge(&newcomer, Fairness::Fifo).is_err());
    }

    #[test]
    fn the_judge_lets_handles_take_turns_and_nothing_else() {
        let waiting = [queued(1, 10), queued(1, 11), queued(2, 20)];
        let turns = [&waiting[..], &granted(1, 10), &granted(2, 20), &granted(1, 11)].concat();
        let hogged = [&waiting[..], &granted(1, 10), &granted(1, 11), &granted(2, 20)].concat();
        let reversed = [&waiting[..], &granted(1, 11), &granted(2, 20), &granted(1, 10)].concat();
        assert!(judge(&turns, Fairness::RoundRobin).is_ok());
        assert!(judge(&hogged, Fairness::RoundRobin).is_err());
        assert!(judge(&reversed, Fairness::RoundRobin).is_err(), "inside a handle it is by arrival");
    }
}
