//! A core that sleeps and its senders: mail is never left behind with its reader asleep, and rings are not wasted.

use std::collections::VecDeque;

use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use crate::park::SleepFlag;
use crate::sync::{AtomicBool, Ordering, fence};

/// What stands between a sender and a core: the crate's protocol, or a faulty one to show that the model finds faults.
pub(crate) trait Protocol: Send + Sync + 'static {
    fn new() -> Self;
    fn announce(&self, has_mail: impl FnOnce() -> bool) -> bool;
    fn awake(&self);
    fn must_ring(&self) -> bool;
}

impl Protocol for SleepFlag {
    fn new() -> SleepFlag {
        SleepFlag::new()
    }
    fn announce(&self, has_mail: impl FnOnce() -> bool) -> bool {
        SleepFlag::announce(self, has_mail)
    }
    fn awake(&self) {
        SleepFlag::awake(self);
    }
    fn must_ring(&self) -> bool {
        SleepFlag::must_ring(self)
    }
}

/// A core as its senders see it, with a locked queue.
pub(crate) struct Core<T, P = SleepFlag> {
    queue: Mutex<VecDeque<T>>,
    protocol: P,
    bell: Notify,
    /// Counted outside the model: what is asserted about them needs no ordering.
    announcements: std::sync::atomic::AtomicUsize,
    rings: std::sync::atomic::AtomicUsize,
}

impl<T, P: Protocol> Core<T, P> {
    pub(crate) fn new() -> Arc<Core<T, P>> {
        Arc::new(Core {
            queue: Mutex::new(VecDeque::new()),
            protocol: P::new(),
            bell: Notify::new(),
            announcements: Default::default(),
            rings: Default::default(),
        })
    }

    pub(crate) fn send(&self, mail: T) {
        self.queue.lock().unwrap().push_back(mail);
        if self.protocol.must_ring() {
            self.rings.fetch_add(1, Ordering::Relaxed);
            self.bell.notify();
        }
    }

    /// The core's loop, for one mail.
    pub(crate) fn receive(&self) -> T {
        loop {
            if let Some(mail) = self.queue.lock().unwrap().pop_front() {
                return mail;
            }
            self.announcements.fetch_add(1, Ordering::Relaxed);
            if self.protocol.announce(|| !self.queue.lock().unwrap().is_empty()) {
                self.bell.wait();
                self.protocol.awake();
            }
        }
    }

    fn assert_rings_not_wasted(&self) {
        let [announcements, rings] =
            [&self.announcements, &self.rings].map(|count| count.load(Ordering::Relaxed));
        assert!(rings <= announcements, "{rings} rings for {announcements} announcements");
    }
}

pub(crate) fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

/// `senders` threads send `each` mails to one core, which must get them all.
fn all_mail_is_read<P: Protocol>(preemptions: usize, senders: usize, each: usize) {
    bounded(preemptions).check(move || {
        let core = Core::<usize, P>::new();
        let threads: Vec<_> = (0..senders)
            .map(|sender| {
                let core = Arc::clone(&core);
                thread::spawn(move || (0..each).for_each(|mail| core.send(sender * each + mail)))
            })
            .collect();
        let mut last = vec![None; senders];
        for _ in 0..senders * each {
            let mail = core.receive();
            let (sender, number) = (mail / each, mail % each);
            assert!(last[sender] < Some(number), "each sender's mail arrives in its order");
            last[sender] = Some(number);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        core.assert_rings_not_wasted();
    });
}

#[test]
fn a_core_never_sleeps_over_the_mail_of_one_sender() {
    all_mail_is_read::<SleepFlag>(4, 1, 2);
}

#[test]
fn a_core_never_sleeps_over_the_mail_of_two_senders() {
    all_mail_is_read::<SleepFlag>(3, 2, 1);
}

/// A queue whose length is an unordered counter: nothing but the protocol's own barriers orders it with the flag.
fn counted_mail_is_read<P: Protocol>(preemptions: usize, senders: usize) {
    bounded(preemptions).check(move || {
        let length = Arc::new(AtomicUsize::new(0));
        let protocol = Arc::new(P::new());
        let bell = Arc::new(Notify::new());
        let threads: Vec<_> = (0..senders)
            .map(|_| {
                let (length, protocol, bell) =
                    (Arc::clone(&length), Arc::clone(&protocol), Arc::clone(&bell));
                thread::spawn(move || {
                    length.fetch_add(1, Ordering::Relaxed);
                    if protocol.must_ring() {
                        bell.notify();
                    }
                })
            })
            .collect();
        while length.load(Ordering::Relaxed) < senders {
            let seen = length.load(Ordering::Relaxed);
            if seen < senders && protocol.announce(|| length.load(Ordering::Relaxed) != seen) {
                bell.wait();
                protocol.awake();
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn the_protocol_needs_no_ordering_of_its_queue() {
    counted_mail_is_read::<SleepFlag>(4, 1);
}

#[test]
fn the_protocol_needs_no_ordering_of_its_queue_with_two_senders() {
    counted_mail_is_read::<SleepFlag>(2, 2);
}

#[test]
fn of_many_senders_one_rings_per_sleep() {
    bounded(3).check(|| {
        let flag = Arc::new(SleepFlag::new());
        assert!(flag.announce(|| false));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let flag = Arc::clone(&flag);
                thread::spawn(move || usize::from(flag.must_ring()))
            })
            .collect();
        let own = usize::from(flag.must_ring());
        let rings = own + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
        assert_eq!(rings, 1);
        assert!(!flag.must_ring(), "nobody rings a core that has been rung");
    });
}

#[test]
fn a_core_that_is_awake_is_not_rung() {
    bounded(3).check(|| {
        let flag = Arc::new(SleepFlag::new());
        assert!(!flag.announce(|| true), "with mail it must not sleep");
        let sender = {
            let flag = Arc::clone(&flag);
            thread::spawn(move || flag.must_ring())
        };
        assert!(!sender.join().unwrap());
        assert!(flag.announce(|| false));
        flag.awake();
        assert!(!flag.must_ring());
    });
}

/// The crate's protocol without its barriers.
struct NoBarrier(AtomicBool);

impl Protocol for NoBarrier {
    fn new() -> NoBarrier {
        NoBarrier(AtomicBool::new(false))
    }
    fn announce(&self, has_mail: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        if has_mail() {
            self.0.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }
    fn awake(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
    fn must_ring(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// The crate's protocol without the last look.
struct NoLastLook(SleepFlag);

impl Protocol for NoLastLook {
    fn new() -> NoLastLook {
        NoLastLook(SleepFlag::new())
    }
    fn announce(&self, _: impl FnOnce() -> bool) -> bool {
        self.0.announce(|| false)
    }
    fn awake(&self) {
        self.0.awake();
    }
    fn must_ring(&self) -> bool {
        self.0.must_ring()
    }
}

/// The crate's protocol with the barrier on the sender's side only.
struct OneBarrier(NoBarrier);

impl Protocol for OneBarrier {
    fn new() -> OneBarrier {
        OneBarrier(NoBarrier::new())
    }
    fn announce(&self, has_mail: impl FnOnce() -> bool) -> bool {
        self.0.announce(has_mail)
    }
    fn awake(&self) {
        self.0.awake();
    }
    fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.must_ring()
    }
}

/// The heart of it, as an assertion instead of a sleep: the core announces, one sender sends.
fn announcement_meets_mail<P: Protocol>() {
    loom::model(|| {
        let length = Arc::new(AtomicUsize::new(0));
        let protocol = Arc::new(P::new());
        let sender = {
            let (length, protocol) = (Arc::clone(&length), Arc::clone(&protocol));
            thread::spawn(move || {
                length.fetch_add(1, Ordering::Relaxed);
                protocol.must_ring()
            })
        };
        let sleeps = protocol.announce(|| length.load(Ordering::Relaxed) != 0);
        let rung = sender.join().unwrap();
        assert!(!sleeps || rung, "a lost wake-up");
    });
}

#[test]
fn an_announcement_and_a_mail_never_miss_each_other() {
    announcement_meets_mail::<SleepFlag>();
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn without_the_barriers_the_model_finds_the_lost_wake_up() {
    announcement_meets_mail::<NoBarrier>();
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn with_one_barrier_the_model_finds_the_lost_wake_up() {
    announcement_meets_mail::<OneBarrier>();
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn without_the_last_look_the_model_finds_the_lost_wake_up() {
    announcement_meets_mail::<NoLastLook>();
}
