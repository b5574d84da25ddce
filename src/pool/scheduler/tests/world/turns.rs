//! The model of the queue: who stands in line, who is held back, and whose turn it is.

use super::*;

impl World {
    pub(super) fn join(&mut self, waiter: WaiterKey, handle: HandleId) {
        self.queued.push((waiter, handle));
        if !self.turns.contains(&handle) {
            self.turns.push(handle);
        }
    }

    /// A waiter that is not served leaves; another of its handle may take its place.
    pub(super) fn end(&mut self, waiter: WaiterKey) -> HandleId {
        let handle = self.forget(waiter);
        self.ended.push(waiter);
        self.promote(handle);
        handle
    }

    pub(super) fn has_room(&self, handle: HandleId) -> bool {
        let of = |waiters: &[(WaiterKey, HandleId)]| waiters.iter().filter(|w| w.1 == handle).count();
        let holds = self.leases.iter().filter(|lease| lease.2 == handle).count();
        let all = holds + of(&self.granted) + of(&self.queued);
        (self.may_hold)(handle).is_none_or(|limit| all < limit.get() as usize)
    }

    pub(super) fn promote(&mut self, handle: HandleId) {
        while self.has_room(handle)
            && let Some(place) = self.held_back.iter().position(|&(_, whose)| whose == handle)
        {
            let (waiter, _) = self.held_back.remove(place);
            self.join(waiter, handle);
        }
    }

    /// How many are served before it: found by serving them.
    pub(super) fn position(&self, waiter: WaiterKey) -> usize {
        let mut future = self.clone();
        std::iter::from_fn(|| future.serve()).take_while(|served| *served != waiter).count()
    }

    /// Whom the policy serves next.
    pub(super) fn serve(&mut self) -> Option<WaiterKey> {
        let waiter = match self.limits.fairness {
            Fairness::Fifo => self.queued.first()?.0,
            Fairness::RoundRobin => {
                let handle = *self.turns.first()?;
                self.turns.rotate_left(1);
                self.queued.iter().find(|&&(_, whose)| whose == handle)?.0
            }
        };
        let handle = self.forget(waiter);
        self.granted.push((waiter, handle));
        Some(waiter)
    }

    pub(super) fn forget(&mut self, waiter: WaiterKey) -> HandleId {
        if let Some(place) = self.held_back.iter().position(|&(held_back, _)| held_back == waiter) {
            return self.held_back.remove(place).1;
        }
        let Some(place) = self.queued.iter().position(|&(queued, _)| queued == waiter) else {
            panic!("{waiter:?} was told of its fate without being queued");
        };
        let (_, handle) = self.queued.remove(place);
        if !self.queued.iter().any(|&(_, whose)| whose == handle) {
            self.turns.retain(|&turn| turn != handle);
        }
        handle
    }
}
