//! Push queues and their handles elsewhere: no frame is left on its way with nobody told of it, whoever closes meanwhile; and
//! no more frames are in use than there are places, however the core keeps some in hand.

use std::collections::VecDeque;
use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize as Count;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::doorbell::bounded;
use super::gate::{Gate, Raised};
use super::places::{Hand, Places};
use super::sync::Ordering;

/// The channel of the queues, and the mail of their core.
struct Queues {
    gate: Gate,
    transit: Mutex<VecDeque<usize>>,
    letters: Mutex<usize>,
    /// What a faulty sender does: leaves what it put in after the end to others.
    trusts_others: bool,
}

impl Queues {
    fn new(trusts_others: bool) -> Arc<Queues> {
        let (transit, letters) = (Mutex::new(VecDeque::new()), Mutex::new(0));
        Arc::new(Queues { gate: Gate::new(), transit, letters, trusts_others })
    }

    /// What a sender swept away, or none when it was refused.
    fn push(&self, frame: usize) -> Option<Vec<usize>> {
        if self.gate.is_closed() {
            return None;
        }
        self.transit.lock().unwrap().push_back(frame);
        match self.gate.raise() {
            Raised::First => *self.letters.lock().unwrap() += 1,
            Raised::Closed if !self.trusts_others => return Some(self.sweep()),
            Raised::Again | Raised::Closed => {}
        }
        Some(Vec::new())
    }

    fn sweep(&self) -> Vec<usize> {
        let mut swept = Vec::new();
        loop {
            let next = self.transit.lock().unwrap().pop_front();
            let Some(frame) = next else { return swept };
            swept.push(frame);
        }
    }

    /// The core looks by itself.
    fn arrive(&self) -> Vec<usize> {
        if !self.gate.is_raised() {
            return Vec::new();
        }
        self.gate.lower();
        self.sweep()
    }

    /// The core opens the letter that has come; none when none has.
    fn open(&self) -> Option<Vec<usize>> {
        let mut letters = self.letters.lock().unwrap();
        assert!(*letters <= 1, "told twice");
        *letters = letters.checked_sub(1)?;
        drop(letters);
        self.gate.heard();
        Some(self.sweep())
    }
}

fn pusher(queues: &Arc<Queues>, frames: [usize; 1]) -> thread::JoinHandle<Vec<Option<Vec<usize>>>> {
    let queues = Arc::clone(queues);
    thread::spawn(move || frames.map(|frame| queues.push(frame)).into())
}

#[test]
fn every_frame_from_elsewhere_has_a_letter_behind_it() {
    bounded(4).check(|| {
        let queues = Queues::new(false);
        let threads = [0, 1].map(|frame| pusher(&queues, [frame]));
        let mut arrived = Vec::new();
        // The core looks by itself, and when a letter comes.
        arrived.extend(queues.arrive());
        arrived.extend(queues.open().into_iter().flatten());
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        while let Some(frames) = queues.open() {
            arrived.extend(frames);
        }
        arrived.sort_unstable();
        assert_eq!(arrived, [0, 1], "nobody tells the core of a frame");
    });
}

/// Two push while the core closes: everything accepted is swept by somebody.
fn closed_meanwhile(trusts_others: bool) {
    bounded(4).check(move || {
        let queues = Queues::new(trusts_others);
        let threads = [0, 1].map(|frame| pusher(&queues, [frame]));
        let mut found = queues.arrive();
        queues.gate.close();
        found.extend(queues.sweep());
        let mut accepted = 0;
        for thread in threads {
            for swept in thread.join().unwrap().into_iter().flatten() {
                accepted += 1;
                found.extend(swept);
            }
        }
        // No letter is opened any more.
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), accepted, "a frame is left on its way");
    });
}

#[test]
fn no_frame_is_left_on_its_way_when_the_queues_close() {
    closed_meanwhile(false);
}

#[test]
#[should_panic(expected = "a frame is left on its way")]
fn a_sender_that_leaves_its_frame_to_others_is_found_out() {
    closed_meanwhile(true);
}

/// Places in use, counted outside of the model, and never fewer than there are.
#[derive(Clone)]
struct Used(StdArc<Count>, usize);

impl Used {
    fn take(&self) {
        let used = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(used <= self.1, "{used} frames for {} places", self.1);
    }

    fn free(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn places(capacity: usize, pushes: usize) {
    bounded(3).check(move || {
        let (places, used) = (Arc::new(Places::new(capacity)), Used(StdArc::new(Count::new(0)), capacity));
        let threads = [(); 2].map(|()| {
            let (places, used) = (Arc::clone(&places), used.clone());
            thread::spawn(move || {
                for _ in 0..pushes {
                    if places.take() {
                        used.take();
                        used.free();
                        places.free();
                    }
                }
            })
        });
        let hand = Hand::default();
        let mut queued = 0;
        for _ in 0..2 {
            while queued < 2 && places.take_here(&hand) {
                used.take();
                queued += 1;
            }
            while queued > 0 {
                used.free();
                places.free_here(&hand);
                queued -= 1;
            }
        }
        places.put_down(&hand);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for _ in 0..capacity {
            assert!(places.take(), "every place is open again");
        }
        assert!(!places.take() && !places.take_here(&hand));
    });
}

#[test]
fn no_more_frames_are_in_use_than_there_are_places() {
    places(1, 1);
    places(2, 1);
}

#[test]
fn places_in_hand_are_nobody_elses() {
    places(16, 1);
}
