//! When the kernel is entered: to send what is staged, and to sleep.

use std::io;
use std::time::Duration;

use super::{Backend, Driver};

impl Driver {
    /// Sends what is staged, if anything is or the kernel says that it has news; does not wait.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.push_staged();
        match &mut self.backend {
            Backend::Ring(ring) => {
                if !ring.wants_enter() {
                    return Ok(());
                }
                ring.submit(&mut self.stats)?;
            }
            Backend::Sim(port) => port.submit(&mut self.stats),
        }
        self.reap()
    }

    /// Sends what is staged and sleeps until a completion, the doorbell or the time-out.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.push_staged();
        match &mut self.backend {
            // A posted send that succeeds posts no completion, so sleeping would keep its waiter waiting.
            Backend::Ring(ring) if self.posts.is_awaited() => ring.submit(&mut self.stats)?,
            Backend::Ring(ring) => ring.wait(timeout, &mut self.stats)?,
            Backend::Sim(port) => port.submit(&mut self.stats),
        }
        self.reap()
    }

    /// Anything to reap or to fetch from the kernel? No system call.
    #[inline]
    pub(crate) fn has_news(&mut self) -> bool {
        match &mut self.backend {
            Backend::Ring(ring) => ring.has_news(),
            Backend::Sim(port) => port.has_news(),
        }
    }

    /// Anything staged that the kernel has not seen?
    pub(crate) fn has_staged(&mut self) -> bool {
        self.posts.has_collecting()
            || !self.patient.is_empty()
            || self.backend.consumed() != self.backend.pushed()
    }
}
