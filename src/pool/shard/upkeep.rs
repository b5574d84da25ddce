//! What is asked of a shard while it runs: another size, another look at its connections, and to be warm.

use std::io;
use std::sync::Arc;

use super::Shard;
use crate::pool::connector::Connector;
use crate::pool::scheduler::Lifecycle;

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
}
