//! The ends of a channel: the news that the last sender has gone never overtakes a message, whoever is last and whatever
//! sender is made meanwhile; and no more messages are under way than there are places.

use std::collections::VecDeque;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::doorbell::bounded;
use super::ends::Ends;

enum Mail {
    Message,
    Gone { life: usize },
}

/// A channel with the mailbox of its receiver's core.
struct Channel {
    ends: Ends,
    mailbox: Mutex<VecDeque<Mail>>,
}

impl Channel {
    /// With one sender.
    fn new(capacity: usize) -> Arc<Channel> {
        let channel = Channel { ends: Ends::new(capacity, 0, false), mailbox: Mutex::new(VecDeque::new()) };
        channel.ends.enter();
        Arc::new(channel)
    }

    /// As from another core; false when there is no place.
    fn send(&self) -> bool {
        let sent = self.ends.take_place();
        if sent {
            self.ends.goes_abroad();
            self.mailbox.lock().unwrap().push_back(Mail::Message);
        }
        sent
    }

    fn leave_abroad(&self) {
        if let Some(farewell) = self.ends.leave() {
            self.mailbox.lock().unwrap().push_back(Mail::Gone { life: farewell.life });
        }
    }
}

/// The receiver's core.
#[derive(Default)]
struct Receiver {
    received: usize,
    over: bool,
    /// What a faulty one does: takes any farewell for the last.
    believes_all: bool,
}

impl Receiver {
    fn leave(&mut self, channel: &Channel) {
        match channel.ends.leave() {
            Some(farewell) if farewell.direct => self.over = true,
            Some(farewell) => channel.mailbox.lock().unwrap().push_back(Mail::Gone { life: farewell.life }),
            None => {}
        }
    }

    fn deliver(&mut self, channel: &Channel) {
        loop {
            let Some(mail) = channel.mailbox.lock().unwrap().pop_front() else { return };
            match mail {
                Mail::Message => {
                    assert!(!self.over, "a message after the end of the senders");
                    self.received += 1;
                    channel.ends.free_place();
                }
                Mail::Gone { life } => self.over |= self.believes_all || channel.ends.is_over(life),
            }
        }
    }
}

fn sender(channel: &Arc<Channel>) -> thread::JoinHandle<()> {
    let channel = Arc::clone(channel);
    thread::spawn(move || {
        assert!(channel.send());
        channel.leave_abroad();
    })
}

#[test]
fn the_end_never_overtakes_a_message_whoever_is_last() {
    bounded(4).check(|| {
        let channel = Channel::new(usize::MAX);
        channel.ends.join();
        let far = sender(&channel);
        let mut receiver = Receiver::default();
        receiver.leave(&channel);
        receiver.deliver(&channel);
        far.join().unwrap();
        receiver.deliver(&channel);
        assert_eq!((receiver.received, receiver.over), (1, true));
    });
}

#[test]
fn the_end_comes_behind_the_messages_of_two_senders() {
    bounded(3).check(|| {
        let channel = Channel::new(usize::MAX);
        channel.ends.join();
        let far = [sender(&channel), sender(&channel)];
        let mut receiver = Receiver::default();
        receiver.deliver(&channel);
        far.into_iter().for_each(|thread| thread.join().unwrap());
        receiver.deliver(&channel);
        assert_eq!((receiver.received, receiver.over), (2, true));
    });
}

fn a_sender_is_made_meanwhile(believes_all: bool) {
    bounded(3).check(move || {
        let channel = Channel::new(usize::MAX);
        let first = sender(&channel);
        let mut receiver = Receiver { believes_all, ..Receiver::default() };
        // The first one may be gone by now, and its news under way.
        channel.ends.enter();
        let second = sender(&channel);
        receiver.deliver(&channel);
        first.join().unwrap();
        second.join().unwrap();
        receiver.deliver(&channel);
        assert_eq!((receiver.received, receiver.over), (2, true));
    });
}

#[test]
fn the_end_of_earlier_senders_is_not_that_of_a_later_one() {
    a_sender_is_made_meanwhile(false);
}

#[test]
#[should_panic(expected = "a message after the end of the senders")]
fn a_farewell_that_does_not_say_which_life_it_ends_is_found_out() {
    a_sender_is_made_meanwhile(true);
}

#[test]
fn no_more_messages_are_under_way_than_there_are_places() {
    bounded(4).check(|| {
        let channel = Channel::new(1);
        let senders = [(); 2].map(|()| {
            let channel = Arc::clone(&channel);
            thread::spawn(move || {
                let sent = usize::from(channel.send());
                assert!(channel.mailbox.lock().unwrap().len() <= 1, "more than there are places");
                sent
            })
        });
        let mut receiver = Receiver::default();
        receiver.deliver(&channel);
        let sent: usize = senders.into_iter().map(|thread| thread.join().unwrap()).sum();
        receiver.deliver(&channel);
        assert!(sent >= 1, "there was a place");
        assert_eq!(receiver.received, sent);
        assert!(channel.send(), "every place is free again");
        assert!(!channel.send());
    });
}
