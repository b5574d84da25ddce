//! The end of a driver: nothing the kernel may still write to is freed.

use std::time::{Duration, Instant};

use super::op::Ops;
use super::{Backend, Driver};

/// How long a closing ring waits for operations that do not end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

impl Driver {
    /// Flushes, cancels everything, reaps to zero, and refuses what comes later. What does not end in time is leaked,
    /// memory and all, because the kernel may still write to it.
    pub(crate) fn shut_down(&mut self) {
        if self.closed {
            return;
        }
        let flushed = self.submit();
        self.closed = true;
        self.posts.disown_all(&mut self.ops.aftermath);
        if let Err(error) = flushed {
            tracing::error!(%error, "a closing ring could not be flushed");
        }
        let drained = match &mut self.backend {
            Backend::Ring(_) => self.drain_ring(),
            Backend::Sim(port) => {
                port.close(&mut self.ops);
                self.posts.settle(&mut self.ops, &mut self.backend);
                true
            }
        };
        self.close_orphans();
        if !drained {
            tracing::error!(
                in_flight = self.ops.in_flight_count(),
                "operations did not end in time; their memory is leaked"
            );
            std::mem::forget(std::mem::replace(&mut self.ops, Ops::new(None)));
            std::mem::forget(std::mem::take(&mut self.posts));
            std::mem::forget(self.buffers.take());
            if let Backend::Ring(ring) = &mut self.backend {
                ring.leak_doorbell();
            }
        }
    }

    fn drain_ring(&mut self) -> bool {
        let deadline = Instant::now() + SHUTDOWN_LIMIT;
        loop {
            let Backend::Ring(ring) = &mut self.backend else { return true };
            if self.ops.in_flight_count() == 0 && !ring.has_own_entries() {
                return true;
            }
            ring.push_cancel_all();
            // The wait has a limit, because what is to be cancelled may end without a completion.
            let step = ring
                .submit(&mut self.stats)
                .and_then(|()| ring.wait_quietly(Duration::from_millis(1), &mut self.stats))
                .and_then(|()| ring.reap(&mut self.ops, &mut self.stats));
            if let Err(error) = step {
                tracing::error!(%error, "a closing ring could not be drained");
                return false;
            }
            // As in `reap`: a failed send's completion may be among those that overflowed.
            if !ring.overflowing() {
                self.posts.settle(&mut self.ops, &mut self.backend);
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }
}
