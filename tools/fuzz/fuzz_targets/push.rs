//! Pushes, receives, closes and drops on push queues, on their core and from elsewhere, against a model: the order, who is
//! refused and why, what becomes of every frame, and no wake-up is lost.
//!
//! An input is a byte that chooses the capacities, one that chooses the other settings, and a byte for each operation.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use corelet::actor::channel;
use corelet::runtime::{Core, Cores, Runtime, yield_now};
use corelet::service::push::{
    DeadLetter, DeadLetterReason, Priority, PushBuilder, PushError, PushHandle, PushQueues, WhenFull,
};
use libfuzzer_sys::fuzz_target;

static ALIVE: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct Frame(u32);

impl Frame {
    fn new(number: u32) -> Frame {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Frame(number)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Push {
    priority: Priority,
    number: u32,
    here: bool,
}

/// One queue, as it should be.
#[derive(Debug, Default)]
struct Lane {
    capacity: usize,
    frames: VecDeque<u32>,
    /// The core may keep free places to itself: it has pushed or received since its reader last had nothing to read.
    in_hand: bool,
    pushed: u64,
    dropped: u64,
    undelivered: u64,
}

struct Model {
    lanes: [Lane; 2],
    bound: u32,
    /// How often in a row one of low priority was passed over.
    passed: u32,
    closed: bool,
    when_full: WhenFull,
    /// Of frames that nobody will take.
    letters: Vec<(u32, Priority, DeadLetterReason)>,
}

impl Model {
    fn lane(&mut self, priority: Priority) -> &mut Lane {
        &mut self.lanes[usize::from(priority == Priority::Low)]
    }

    fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.frames.is_empty())
    }

    fn rest(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.in_hand = false);
    }

    /// Compares what has become of a push with what should have. `dropped` is what the queue says of all so far.
    fn push(&mut self, push: Push, result: Result<(), PushError<Frame>>, dropped: u64) {
        let Push { priority, number, here } = push;
        let (closed, when_full) = (self.closed, self.when_full);
        let lane = self.lane(priority);
        let free = lane.capacity - lane.frames.len();
        // The core may keep some of them to itself.
        let hidden = if here || !lane.in_hand { 0 } else { (lane.capacity / 8).min(16) };
        match result {
            Err(PushError::Closed(frame)) => assert_eq!((frame.0, closed), (number, true)),
            _ if closed => panic!("{result:?}, though it is closed"),
            Err(PushError::Full(frame)) => {
                assert!(free <= hidden, "full with {free} places of {}", lane.capacity);
                assert_eq!((frame.0, when_full), (number, WhenFull::Error));
            }
            Err(other) => panic!("{other:?} without a limit"),
            Ok(()) if dropped > lane.dropped => {
                assert!(free <= hidden, "dropped with {free} places of {}", lane.capacity);
                assert_eq!(when_full, WhenFull::Drop);
                lane.dropped += 1;
                self.letters.push((number, priority, DeadLetterReason::Full));
            }
            Ok(()) => {
                assert!(free > 0, "accepted without a place");
                lane.frames.push_back(number);
                lane.pushed += 1;
                lane.in_hand |= here;
            }
        }
    }

    fn next(&mut self) -> Option<(Priority, u32)> {
        let [high, low] = [0, 1].map(|lane| !self.lanes[lane].frames.is_empty());
        let priority = match (high, low) {
            (true, true) if self.passed < self.bound => {
                self.passed += 1;
                Priority::High
            }
            (true, false) => {
                self.passed = 0;
                Priority::High
            }
            (_, true) => {
                self.passed = 0;
                Priority::Low
            }
            (false, false) => {
                self.passed = 0;
                return None;
            }
        };
        let lane = self.lane(priority);
        lane.in_hand = true;
        lane.frames.pop_front().map(|number| (priority, number))
    }

    fn end(&mut self) {
        self.closed = true;
        for priority in [Priority::High, Priority::Low] {
            let lane = self.lane(priority);
            lane.undelivered += lane.frames.len() as u64;
            let frames = std::mem::take(&mut lane.frames);
            self.letters
                .extend(frames.into_iter().map(|frame| (frame, priority, DeadLetterReason::Undelivered)));
        }
    }
}

struct World {
    queues: Option<PushQueues<Frame>>,
    handles: Vec<PushHandle<Frame>>,
    model: Model,
    waiting: Option<Arc<Flag>>,
    number: u32,
}

impl World {
    /// One operation that does not wait.
    fn step(&mut self, operation: u8, here: bool) {
        let choice = usize::from(operation >> 3 & 7);
        let priority = if operation & 64 == 0 { Priority::High } else { Priority::Low };
        match operation & 7 {
            0..=2 => {
                let number = self.number;
                self.number += 1;
                let Some(handle) = self.handles.get(choice % self.handles.len().max(1)) else { return };
                let result = handle.push(priority, Frame::new(number));
                let dropped = handle.stats().of(priority).dropped;
                self.model.push(Push { priority, number, here }, result, dropped);
            }
            3 | 4 if here => {
                let Some(queues) = &mut self.queues else { return };
                let next = queues.try_next().map(|(priority, frame)| (priority, frame.0));
                assert_eq!(next, self.model.next());
                if next.is_none() {
                    self.model.rest();
                }
                assert_eq!(queues.len(), self.model.lanes.iter().map(|lane| lane.frames.len()).sum());
            }
            5 if here => self.poll(),
            6 if choice < 3 => self.handles.extend(self.handles.first().cloned()),
            6 if choice < 6 && self.handles.len() > 1 => {
                drop(self.handles.swap_remove(choice % self.handles.len()))
            }
            6 if choice == 6 => {
                if let Some(queues) = &mut self.queues {
                    queues.close();
                    self.model.closed = true;
                    // The reader has looked itself.
                    self.waiting = None;
                }
            }
            7 if choice == 7 => {
                self.queues = None;
                self.waiting = None;
                self.model.end();
            }
            7 if choice == 6 && here => {
                let Some(queues) = &mut self.queues else { return };
                self.model.closed = true;
                for (priority, frame) in queues.drain().take(2) {
                    assert_eq!(Some((priority, frame.0)), self.model.next());
                }
                // The reader has looked itself.
                self.waiting = None;
            }
            _ => {}
        }
    }

    /// Waits for the next frame, as far as one can without waiting.
    fn poll(&mut self) {
        let Some(queues) = &mut self.queues else { return };
        let flag = Arc::new(Flag::default());
        let polled = queues.poll_next(&mut Context::from_waker(&Waker::from(Arc::clone(&flag))));
        match polled {
            Poll::Ready(Some((priority, frame))) => assert_eq!(Some((priority, frame.0)), self.model.next()),
            Poll::Ready(None) => assert!(self.model.closed && self.model.is_empty(), "ended"),
            // The budget of the task is spent; it is to come again.
            Poll::Pending if !self.model.is_empty() => assert!(flag.0.load(Ordering::Relaxed), "forgotten"),
            Poll::Pending => {
                assert!(!self.model.closed, "it waits for what cannot come");
                self.model.rest();
                self.waiting = Some(flag);
            }
        }
    }

    /// Whoever waits has heard of what there is.
    fn check_wake(&mut self) {
        if !self.model.is_empty()
            && let Some(waiting) = self.waiting.take()
        {
            assert!(waiting.0.load(Ordering::Relaxed), "a lost wake-up");
        }
    }
}

/// Until the core has seen what was sent to it.
async fn arrive() {
    for _ in 0..3 {
        yield_now().await;
    }
}

thread_local! {
    static CORE: RefCell<Core> = {
        let builder = Runtime::builder().cores(Cores::Count(1)).pinned(false);
        let (_, mut guests) = builder.build_guests().unwrap();
        RefCell::new(guests.remove(0).start().unwrap())
    };
}

const CAPACITIES: [usize; 4] = [1, 2, 9, 40];

fuzz_target!(|data: &[u8]| {
    let [capacities, settings, operations @ ..] = data else { return };
    let capacity = |bits: u8| CAPACITIES[usize::from(bits & 3)];
    let (high, low) = (capacity(*capacities), capacity(capacities >> 2));
    let bound = u32::from(settings & 3) + 1;
    let when_full = if settings & 4 == 0 { WhenFull::Error } else { WhenFull::Drop };
    let (letters, mut dead) =
        CORE.with_borrow_mut(|core| core.block_on(async { channel::unbounded() }).unwrap());
    let build = async move {
        PushBuilder::new()
            .high_capacity(high)
            .low_capacity(low)
            .high_before_low(bound)
            .when_full(when_full)
            .dead_letters(letters)
            .build()
            .unwrap()
    };
    let (handle, queues) = CORE.with_borrow_mut(|core| core.block_on(build).unwrap());
    let lane = |capacity| Lane { capacity, ..Lane::default() };
    let model = Model {
        lanes: [lane(high), lane(low)],
        bound,
        passed: 0,
        closed: false,
        when_full,
        letters: Vec::new(),
    };
    let mut world = World { queues: Some(queues), handles: vec![handle], model, waiting: None, number: 0 };

    // Every other run of operations is on the core.
    for run in operations.chunk_by(|a, b| a & 128 == b & 128) {
        if run[0] & 128 != 0 {
            run.iter().for_each(|operation| world.step(*operation, false));
        } else {
            let run = run.to_vec();
            let work = async move {
                arrive().await;
                world.check_wake();
                for operation in run {
                    world.step(operation, true);
                    world.check_wake();
                }
                world
            };
            world = CORE.with_borrow_mut(|core| core.block_on(work).unwrap());
        }
    }

    let end = async move {
        arrive().await;
        world.check_wake();
        let handle = world.handles.pop();
        drop(world.queues.take());
        world.model.end();
        arrive().await;
        let mut found = Vec::new();
        while let Ok(DeadLetter { frame, priority, reason }) = dead.try_recv() {
            found.push((frame.0, priority, reason));
        }
        (world.model, handle, found)
    };
    let (mut model, handle, mut found) = CORE.with_borrow_mut(|core| core.block_on(end).unwrap());
    found.sort_by_key(|(number, ..)| *number);
    model.letters.sort_by_key(|(number, ..)| *number);
    assert_eq!(found, model.letters);
    if let Some(handle) = handle {
        for priority in [Priority::High, Priority::Low] {
            let (stats, lane) = (*handle.stats().of(priority), model.lane(priority));
            assert_eq!(
                (stats.pushed, stats.dropped, stats.undelivered, stats.dead_lettered, stats.limited),
                (lane.pushed, lane.dropped, lane.undelivered, lane.dropped + lane.undelivered, 0)
            );
        }
        assert!(handle.is_closed());
    }
    drop(found);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0, "frames are left");
});
