//! A pool without an owner: its state is shared behind a mutex, and each operation spawns a task that serves it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corelet::pool::Fairness;
use corelet::runtime::{RuntimeHandle, spawn};
use futures_channel::oneshot;

use super::Subject;
use crate::common::Number;

/// Those who wait, in the order of their turns. Under FIFO everybody is of one party.
struct Turns {
    fairness: Fairness,
    parties: VecDeque<(u64, VecDeque<oneshot::Sender<Number>>)>,
    waiting: usize,
}

impl Turns {
    fn push(&mut self, handle: u64, reply: oneshot::Sender<Number>) {
        let party = match self.fairness {
            Fairness::RoundRobin => handle,
            _ => 0,
        };
        match self.parties.iter_mut().find(|(known, _)| *known == party) {
            Some((_, waiting)) => waiting.push_back(reply),
            None => self.parties.push_back((party, VecDeque::from([reply]))),
        }
        self.waiting += 1;
    }

    /// The next to be served who still wants to be.
    fn pop(&mut self) -> Option<oneshot::Sender<Number>> {
        while let Some((party, mut waiting)) = self.parties.pop_front() {
            let next = waiting.pop_front();
            self.waiting -= usize::from(next.is_some());
            if !waiting.is_empty() {
                self.parties.push_back((party, waiting));
            }
            if let Some(reply) = next.filter(|reply| !reply.is_canceled()) {
                return Some(reply);
            }
        }
        None
    }
}

struct State {
    idle: Vec<Number>,
    turns: Turns,
    capacity_waits: u64,
}

struct Shared(Mutex<State>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives idle connections to those who wait.
    fn serve(&self) {
        let mut state = self.lock();
        while let Some(number) = state.idle.pop() {
            let Some(reply) = state.turns.pop() else {
                state.idle.push(number);
                return;
            };
            if let Err(number) = reply.send(number) {
                state.idle.push(number);
            }
        }
    }

    fn spawn_servicing(self: &Arc<Shared>) {
        let shared = Arc::clone(self);
        spawn(async move { shared.serve() }).detach();
    }
}

pub struct SpawnOnDemand {
    shared: Arc<Shared>,
    handles: Cell<u64>,
}

pub struct DemandHandle {
    id: u64,
    shared: Arc<Shared>,
}

pub struct DemandLease {
    number: Option<Number>,
    shared: Arc<Shared>,
}

impl Drop for DemandLease {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.shared.lock().idle.push(number);
        }
        self.shared.spawn_servicing();
    }
}

impl Subject for SpawnOnDemand {
    const NAME: &'static str = "spawn_on_demand";
    const REFERENCE: bool = true;
    const TASKS_PER_LEASE: u64 = 2;

    fn allocations_added(_: usize) -> Option<u64> {
        None
    }

    type Handle = DemandHandle;
    type Lease = DemandLease;

    fn new(_: &RuntimeHandle, slots: usize, fairness: Fairness) -> SpawnOnDemand {
        let idle = (0..slots as u64).map(Number).collect();
        let turns = Turns { fairness, parties: VecDeque::new(), waiting: 0 };
        let state = State { idle, turns, capacity_waits: 0 };
        SpawnOnDemand { shared: Arc::new(Shared(Mutex::new(state))), handles: Cell::new(0) }
    }

    fn handle(&self) -> DemandHandle {
        self.handles.set(self.handles.get() + 1);
        DemandHandle { id: self.handles.get(), shared: Arc::clone(&self.shared) }
    }

    async fn acquire(handle: &DemandHandle) -> DemandLease {
        let (reply, granted) = oneshot::channel();
        {
            let mut state = handle.shared.lock();
            // Those who wait already have what is idle, even if nobody has served them yet.
            if state.idle.len() <= state.turns.waiting {
                state.capacity_waits += 1;
            }
            state.turns.push(handle.id, reply);
        }
        handle.shared.spawn_servicing();
        let number = granted.await.expect("whoever waits is served before the state goes");
        DemandLease { number: Some(number), shared: Arc::clone(&handle.shared) }
    }

    async fn capacity_waits(&self) -> u64 {
        self.shared.lock().capacity_waits
    }

    async fn scheduler_spawns(&self) -> u64 {
        0
    }

    async fn close(self) {}
}
