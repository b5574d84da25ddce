//! What the receiving end and all handles share, and the way of a frame through it.
//!
//! The queues proper are at home on their core, and a push there is a move into them. From elsewhere a frame takes a place,
//! goes into a channel, and raises the gate; the first to do so sends the core a letter. The core fetches what is in the
//! channel when the letter comes, or before, when it looks at the queues anyway: so whatever was pushed before a frame, on whichever
//! thread, is in the queue before it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use crossbeam_channel::{Receiver, Sender, unbounded};
use governor::clock::Clock;

use super::builder::{self, PushSettings, WhenFull};
use super::dead::{DeadLetter, DeadLetterReason, Nag, Sink};
use super::fairness::Fairness;
use super::gate::{Gate, Raised};
use super::handle::{Priority, PushError};
use super::home::Home;
use super::places::{Hand, Places};
use super::rate::{CoreClock, Limiter};
use super::stats::{PushStats, Tallies};
use crate::runtime::CoreId;
use crate::runtime::context;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};

pub(super) struct Shared<F> {
    core: CoreId,
    home: Home<Queues<F>>,
    /// What threads elsewhere write. Apart from what the core does, which would otherwise wait for it.
    door: Door,
    high: Lane,
    low: Lane,
    /// Frames from elsewhere, on their way. Made for the first of them.
    transit: OnceLock<Transit<F>>,
    when_full: WhenFull,
    dead_letters: Option<Sink<F>>,
    full: Nag,
    lost: Nag,
}

type Transit<F> = (Sender<(Priority, F)>, Receiver<(Priority, F)>);

/// Two lines of most machines' caches are fetched together.
#[repr(align(128))]
struct Door {
    gate: Gate,
    high: Places,
    low: Places,
}

/// What every thread may know of one queue.
struct Lane {
    limiter: Option<Box<Limiter>>,
    tallies: Tallies,
}

/// The two queues, on their core.
pub(super) struct Queues<F> {
    lanes: RefCell<Lanes<F>>,
    high: Hand,
    low: Hand,
    pub(super) reader: Cell<Option<Waker>>,
    /// The receiving end is gone, and what arrives now is a dead letter.
    ended: Cell<bool>,
}

struct Lanes<F> {
    high: VecDeque<F>,
    low: VecDeque<F>,
    fairness: Fairness,
}

impl<F> Lanes<F> {
    #[inline]
    fn of(&mut self, priority: Priority) -> &mut VecDeque<F> {
        match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.high.is_empty() && self.low.is_empty()
    }
}

impl<F> Queues<F> {
    #[inline]
    fn hand(&self, priority: Priority) -> &Hand {
        match priority {
            Priority::High => &self.high,
            Priority::Low => &self.low,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        let lanes = self.lanes.borrow();
        lanes.high.len() + lanes.low.len()
    }
}

impl<F> Shared<F> {
    pub(super) fn new(local: &Local, settings: &PushSettings<F>) -> Shared<F> {
        let lane = |lane: &builder::Lane| Lane {
            limiter: lane.quota.map(|quota| Box::new(Limiter::new(quota))),
            tallies: Tallies::default(),
        };
        let queues = Queues {
            lanes: RefCell::new(Lanes {
                high: VecDeque::new(),
                low: VecDeque::new(),
                fairness: Fairness::new(settings.high_before_low, settings.slice),
            }),
            high: Hand::default(),
            low: Hand::default(),
            reader: Cell::new(None),
            ended: Cell::new(false),
        };
        Shared {
            core: local.id(),
            home: Home::new(local, queues),
            door: Door {
                gate: Gate::new(),
                high: Places::new(settings.high.places),
                low: Places::new(settings.low.places),
            },
            high: lane(&settings.high),
            low: lane(&settings.low),
            transit: OnceLock::new(),
            when_full: settings.when_full,
            dead_letters: settings.dead_letters.clone(),
            full: Nag::default(),
            lost: Nag::default(),
        }
    }

    pub(super) fn core(&self) -> CoreId {
        self.core
    }

    #[inline]
    pub(super) fn gate(&self) -> &Gate {
        &self.door.gate
    }

    #[inline]
    pub(super) fn queues(&self, local: &Local) -> Option<&Queues<F>> {
        self.home.visit(local)
    }

    #[inline]
    pub(super) fn places(&self, priority: Priority) -> &Places {
        match priority {
            Priority::High => &self.door.high,
            Priority::Low => &self.door.low,
        }
    }

    #[inline]
    fn lane(&self, priority: Priority) -> &Lane {
        match priority {
            Priority::High => &self.high,
            Priority::Low => &self.low,
        }
    }

    pub(super) fn stats(&self) -> PushStats {
        PushStats { high: self.high.tallies.read(), low: self.low.tallies.read() }
    }
}

impl<F: 'static> Shared<F> {
    /// A push on the queues' own core.
    #[inline]
    pub(super) fn push_here(
        &self,
        queues: &Queues<F>,
        priority: Priority,
        frame: F,
    ) -> Result<(), PushError<F>> {
        if !self.gate().is_quiet() {
            if self.gate().is_closed() {
                return Err(PushError::Closed(frame));
            }
            // They were pushed before.
            self.arrive(queues);
        }
        let (lane, places, hand) = (self.lane(priority), self.places(priority), queues.hand(priority));
        if !places.take_here(hand) {
            return self.full(priority, frame);
        }
        if let Some(limiter) = &lane.limiter
            && let Err(retry_after) = limiter.take()
        {
            places.free_here(hand);
            lane.tallies.limited.count_here(1);
            return Err(PushError::Limited { frame, retry_after });
        }
        queues.lanes.borrow_mut().of(priority).push_back(frame);
        lane.tallies.pushed.count_here(1);
        // Woken only now: a waker may be a user's.
        if let Some(reader) = queues.reader.take() {
            reader.wake();
        }
        Ok(())
    }

    /// A push from another core, or from a thread that is none.
    #[inline(never)]
    pub(super) fn push_from_elsewhere(
        self: &Arc<Self>,
        priority: Priority,
        frame: F,
    ) -> Result<(), PushError<F>>
    where
        F: Send,
    {
        if self.gate().is_closed() {
            return Err(PushError::Closed(frame));
        }
        let (lane, places) = (self.lane(priority), self.places(priority));
        if !places.take() {
            return self.full(priority, frame);
        }
        if let Some(limiter) = &lane.limiter
            && let Err(retry_after) = limiter.take()
        {
            places.free();
            lane.tallies.limited.count(1);
            return Err(PushError::Limited { frame, retry_after });
        }
        let (sender, _) = self.transit.get_or_init(unbounded);
        if sender.send((priority, frame)).is_err() {
            unreachable!("the receiving end is kept beside the sending one");
        }
        match self.gate().raise() {
            Raised::First => {
                if let Err(letter) = mesh::post(self.core, Arrival(Some(Arc::clone(self)))) {
                    // The core has ended; what that means for the frame is the letter's business.
                    drop(letter);
                }
            }
            Raised::Again => {}
            Raised::Closed => self.sweep(),
        }
        Ok(())
    }

    #[cold]
    fn full(&self, priority: Priority, frame: F) -> Result<(), PushError<F>> {
        if self.when_full == WhenFull::Error {
            return Err(PushError::Full(frame));
        }
        self.lane(priority).tallies.dropped.count(1);
        if self.when_full == WhenFull::WarnAndDrop && self.full.is_due(CoreClock.now()) {
            let dropped = self.stats().of(priority).dropped;
            tracing::warn!(core = self.core.get(), %priority, dropped, "a push queue is full, and frames are dropped");
        }
        self.bury(priority, frame, DeadLetterReason::Full);
        Ok(())
    }

    /// Fetches what has come from elsewhere.
    #[inline]
    pub(super) fn look(&self, queues: &Queues<F>) {
        if !self.gate().is_quiet() {
            self.arrive(queues);
        }
    }

    /// Moves what has come from elsewhere into the queues. On their core.
    #[cold]
    pub(super) fn arrive(&self, queues: &Queues<F>) {
        if self.gate().is_raised() {
            self.gate().lower();
            self.fetch(queues);
        }
    }

    fn fetch(&self, queues: &Queues<F>) {
        if queues.ended.get() {
            return self.sweep();
        }
        let Some((_, transit)) = self.transit.get() else { return };
        let mut lanes = queues.lanes.borrow_mut();
        // There is an end to it: what is on its way has its place already.
        while let Ok((priority, frame)) = transit.try_recv() {
            lanes.of(priority).push_back(frame);
            self.lane(priority).tallies.pushed.count_here(1);
        }
    }

    /// The next frame. On the queues' core.
    #[inline]
    pub(super) fn pop(&self, queues: &Queues<F>) -> Option<(Priority, F)> {
        let mut lanes = queues.lanes.borrow_mut();
        let (high, low) = (!lanes.high.is_empty(), !lanes.low.is_empty());
        let priority = lanes.fairness.next(high, low, || CoreClock.now())?;
        let frame = lanes.of(priority).pop_front()?;
        drop(lanes);
        self.places(priority).free_here(queues.hand(priority));
        Some((priority, frame))
    }

    /// The reader has nothing left to read: what is in hand is for everybody again.
    #[inline]
    pub(super) fn rest(&self, queues: &Queues<F>) {
        self.door.high.put_down(&queues.high);
        self.door.low.put_down(&queues.low);
    }

    /// The receiving end is gone. On the queues' core, or at least on its thread.
    pub(super) fn end(&self, queues: &Queues<F>) {
        self.gate().close();
        queues.ended.set(true);
        drop(queues.reader.take());
        let (high, low) = {
            let mut lanes = queues.lanes.borrow_mut();
            (std::mem::take(&mut lanes.high), std::mem::take(&mut lanes.low))
        };
        for (priority, frames) in [(Priority::High, high), (Priority::Low, low)] {
            for frame in frames {
                self.undelivered(priority, frame);
            }
        }
        self.sweep();
    }

    /// Takes out what came into the channel when nobody was to look any more.
    #[cold]
    fn sweep(&self) {
        let Some((_, transit)) = self.transit.get() else { return };
        while let Ok((priority, frame)) = transit.try_recv() {
            self.lane(priority).tallies.pushed.count(1);
            self.undelivered(priority, frame);
        }
    }

    fn undelivered(&self, priority: Priority, frame: F) {
        self.lane(priority).tallies.undelivered.count(1);
        contain("a frame that nobody took", || {
            self.bury(priority, frame, DeadLetterReason::Undelivered);
        });
    }

    fn bury(&self, priority: Priority, frame: F, reason: DeadLetterReason) {
        let Some(sink) = &self.dead_letters else { return };
        match sink.send(DeadLetter { frame, priority, reason }) {
            Ok(()) => self.lane(priority).tallies.dead_lettered.count(1),
            Err(frame) => {
                if self.lost.is_due(CoreClock.now()) {
                    let lost = self.stats().of(priority).lost();
                    tracing::warn!(core = self.core.get(), %priority, lost, "a dead letter is lost: {reason}");
                }
                drop(frame);
            }
        }
    }
}

/// Tells the core that frames have come from elsewhere.
struct Arrival<F: 'static>(Option<Arc<Shared<F>>>);

impl<F: Send + 'static> Letter for Arrival<F> {
    fn open(mut self: Box<Self>) {
        let Some(shared) = &self.0 else { return };
        // None on a core that has the id of the one that it was meant for, which has ended.
        let Some(queues) = context::with(|local| shared.queues(local)).flatten() else { return };
        shared.gate().heard();
        shared.fetch(queues);
        // What a push here has fetched before, and told nobody of because it was refused itself, is news as well.
        let reader = if queues.is_empty() { None } else { queues.reader.take() };
        self.0 = None;
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<F> Drop for Arrival<F> {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            // Nobody opened it: the core has ended, and if the receiving end has not gone with it, it has leaked.
            shared.gate().close();
            shared.sweep();
        }
    }
}
