//! Which time-outs of a machine are set, and what is to be done to its timers. It keeps no time itself.
//!
//! Never: let a timer that was set before a reset or a cancel be taken for the one that was set after.

use std::time::Duration;

/// Names one setting of a time-out. A timer brings it along when it fires, and one that no longer names anything is stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeoutId(u64);

/// What is to be done to a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Arm(TimeoutId, Duration),
    Disarm(TimeoutId),
}

pub(super) struct Timeouts<T> {
    /// The one that ends with the state.
    state: Option<Set<T>>,
    /// Those that outlive it. Few, so they are searched one by one.
    named: Vec<Set<T>>,
    last: u64,
    orders: Vec<Order>,
}

struct Set<T> {
    id: TimeoutId,
    timeout: T,
}

impl<T: PartialEq> Timeouts<T> {
    pub(super) fn new() -> Timeouts<T> {
        Timeouts { state: None, named: Vec::new(), last: 0, orders: Vec::new() }
    }

    /// Sets the time-out of the present state, in place of the one that was set.
    pub(super) fn set_state(&mut self, after: Duration, timeout: T) {
        self.reset_state();
        self.state = Some(self.arm(after, timeout));
    }

    /// Takes back the time-out of the present state; false when none was set.
    pub(super) fn reset_state(&mut self) -> bool {
        let reset = self.state.take();
        self.disarm(reset)
    }

    /// Sets a time-out that outlives the state, in place of an equal one that was set.
    pub(super) fn set_named(&mut self, after: Duration, timeout: T) {
        self.cancel_named(&timeout);
        let set = self.arm(after, timeout);
        self.named.push(set);
    }

    /// Takes back a time-out that outlives the state; false when it was not set.
    pub(super) fn cancel_named(&mut self, timeout: &T) -> bool {
        let place = self.named.iter().position(|set| set.timeout == *timeout);
        let cancelled = place.map(|place| self.named.swap_remove(place));
        self.disarm(cancelled)
    }

    /// A timer has fired. None when its time-out was set anew or taken back since.
    pub(super) fn fire(&mut self, id: TimeoutId) -> Option<T> {
        if let Some(set) = self.state.take_if(|set| set.id == id) {
            return Some(set.timeout);
        }
        let place = self.named.iter().position(|set| set.id == id)?;
        Some(self.named.swap_remove(place).timeout)
    }

    /// What is to be done to the timers since this was last called, in that order.
    pub(super) fn take_orders(&mut self) -> impl Iterator<Item = Order> + '_ {
        self.orders.drain(..)
    }

    fn arm(&mut self, after: Duration, timeout: T) -> Set<T> {
        self.last += 1;
        let id = TimeoutId(self.last);
        self.orders.push(Order::Arm(id, after));
        Set { id, timeout }
    }

    fn disarm(&mut self, set: Option<Set<T>>) -> bool {
        if let Some(set) = &set {
            self.orders.push(Order::Disarm(set.id));
        }
        set.is_some()
    }
}
