//! What is asked of a shard while it runs: another size, another look at its connections, and to be warm.

use std::io;
use std::sync::Arc;

use super::Shard;
use crate::pool::connector::Connector;
use crate::pool::scheduler::Lifecycle;
#[cfg(feature = "framed")]
use crate::{pool::scheduler::SlotId, runtime::Watch};
#[cfg(feature = "framed")]
use std::time::{Duration, Instant};

impl<C: Connector> Shard<C> {
    /// Does what the pool's users have asked of every shard.
    pub(crate) fn follow(&self) {
        let slots = self.shared.slots();
        self.with_state(|state| state.handle_resize(slots));
        let refreshes = self.shared.refreshes();
        if self.refreshes.replace(refreshes) != refreshes {
            self.with_state(|state| state.handle_refresh(|carrier| self.is_current(carrier)));
        }
    }

    /// How many refreshes there have been here.
    pub(crate) fn refreshes(&self) -> u64 {
        self.refreshes.get()
    }

    /// Tells those who wait for the shard to be warm, if it is; once it has stopped it never will be.
    pub(crate) fn settle_warmups(&self) {
        if self.warmups.borrow().is_empty() {
            return;
        }
        let (warm, running) = {
            let state = self.state.borrow();
            (state.is_warm(), state.lifecycle() == Lifecycle::Running)
        };
        if warm || !running {
            for warmup in self.warmups.take() {
                if warm && running {
                    // Refused when nobody waits any more.
                    let _ = warmup.send(Ok(()));
                }
            }
        }
    }

    /// Tells those who wait for the shard to be warm why it is not.
    pub(crate) fn fail_warmups(&self, error: &Arc<io::Error>) {
        for warmup in self.warmups.take() {
            let _ = warmup.send(Err(Arc::clone(error)));
        }
    }

    /// Has `watch` told when the present lease of this connection is to be its last.
    #[cfg(feature = "framed")]
    pub(crate) fn hold(&self, slot: SlotId, watch: Watch) {
        let mut holders = self.holders.borrow_mut();
        holders.retain(|(held, _)| *held != slot);
        holders.push((slot, watch));
        drop(holders);
        self.tell_holders();
    }

    /// Asks one of those who keep a lease for long to end it, unless one that was asked has yet to and was asked less
    /// than `patience` ago. Gives when to ask the next one.
    #[cfg(feature = "framed")]
    pub(super) fn recall_one(&self, patience: Duration) -> Option<Instant> {
        if self.holders.borrow().is_empty() {
            return None;
        }
        let now = self.local.now();
        if let Some((slot, asked)) = self.recalled.get()
            && now < asked + patience
            && self.state.borrow().is_last_lease(slot).is_some()
        {
            return Some(asked + patience);
        }
        let holder = self.holders.borrow_mut().pop();
        if let Some((slot, watch)) = holder {
            self.recalled.set(Some((slot, now)));
            watch.notify();
        }
        Some(now + patience)
    }

    /// Tells those whose lease is to be the connection's last, and forgets those whose lease has ended.
    #[cfg(feature = "framed")]
    pub(crate) fn tell_holders(&self) {
        if self.holders.borrow().is_empty() {
            return;
        }
        let (state, mut holders) = (self.state.borrow(), self.holders.borrow_mut());
        let told: Vec<_> =
            holders.extract_if(.., |(slot, _)| state.is_last_lease(*slot) != Some(false)).collect();
        drop((state, holders));
        told.into_iter().for_each(|(_, watch)| watch.notify());
    }
}
