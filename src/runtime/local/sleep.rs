//! How a core sleeps: spinning first where that is wanted, and never while there is something for it.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Local;
use crate::runtime::context;

/// Looks at the queues between two looks at the clock while spinning.
const SPINS_PER_CLOCK: u32 = 32;

impl Local {
    /// Sleeps until there is something to do, or for at most `limit`. What is staged is sent first.
    pub(crate) fn park(self: &Rc<Local>, limit: Option<Duration>) -> io::Result<()> {
        context::enter(self, || {
            if self.executor.has_ready() {
                return self.submit();
            }
            self.answer_idle_probes();
            let deadline = self.timers.borrow().next();
            if !self.busy_poll.get().is_zero() {
                self.submit()?;
                if self.executor.has_ready() || self.spin(deadline, limit) {
                    return Ok(());
                }
            }
            let until = deadline.map(|at| at.saturating_duration_since(self.now()));
            let timeout = match (until, limit) {
                (Some(until), Some(limit)) => Some(until.min(limit)),
                (until, limit) => until.or(limit),
            };
            if timeout == Some(Duration::ZERO) || !self.announce_sleep() {
                return self.submit();
            }
            self.parks.set(self.parks.get() + 1);
            let waited = self.driver.borrow_mut().wait(timeout);
            self.mailbox.sleep_flag().awake();
            waited?;
            self.settle_driver();
            Ok(())
        })
    }

    /// For a core that another loop waits for: goes to sleep unless there is something to do.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.answer_idle_probes();
        let asleep = self.announce_sleep();
        if asleep {
            self.parks.set(self.parks.get() + 1);
        }
        asleep
    }

    /// Says that this core sleeps unless there is mail; false means it must not.
    fn announce_sleep(&self) -> bool {
        self.mailbox.sleep_flag().announce(|| self.has_mail())
    }

    pub(crate) fn awake(&self) {
        self.mailbox.sleep_flag().awake();
    }

    /// Looks at the queues until one has something, for at most the busy-poll time; true when one has.
    fn spin(&self, deadline: Option<Instant>, limit: Option<Duration>) -> bool {
        let length = limit.map_or(self.busy_poll.get(), |limit| limit.min(self.busy_poll.get()));
        // Counted from the first look at the clock: what comes at once should not wait for one.
        let mut end = None;
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if self.driver.borrow_mut().has_news() {
                    // A completion may lie behind deferred work that only a kernel entry runs.
                    let fetched = self.submit();
                    return fetched.is_ok();
                }
                if self.has_mail() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = self.now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return true;
            }
            if now >= *end.get_or_insert(now + length) {
                return false;
            }
        }
    }
}
