//! Settings of push queues.

use super::handle::PushHandle;
use super::queues::PushQueues;

/// Settings of the push queues of a connection.
#[derive(Clone, Debug)]
pub struct PushBuilder {
    pub(super) high: usize,
    pub(super) low: usize,
    pub(super) high_before_low: usize,
}

impl Default for PushBuilder {
    fn default() -> PushBuilder {
        PushBuilder { high: 64, low: 256, high_before_low: 8 }
    }
}

impl PushBuilder {
    /// Places for frames of high priority; 64 by default.
    ///
    /// # Panics
    /// When `places` is zero.
    pub fn high_capacity(mut self, places: usize) -> PushBuilder {
        assert!(places > 0, "a push queue has room for at least one frame");
        self.high = places;
        self
    }

    /// Places for frames of low priority; 256 by default.
    ///
    /// # Panics
    /// When `places` is zero.
    pub fn low_capacity(mut self, places: usize) -> PushBuilder {
        assert!(places > 0, "a push queue has room for at least one frame");
        self.low = places;
        self
    }

    /// How many frames of high priority go out in a row while one of low priority waits; 8 by default.
    pub fn high_before_low(mut self, frames: usize) -> PushBuilder {
        self.high_before_low = frames.max(1);
        self
    }

    /// Queues of their own, without a connection.
    ///
    /// # Panics
    /// When not called on a core.
    pub fn build<F: 'static>(self) -> (PushHandle<F>, PushQueues<F>) {
        let queues = PushQueues::new(&self);
        (queues.handle(), queues)
    }
}
