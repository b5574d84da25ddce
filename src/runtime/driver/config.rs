//! Sizes of a core's ring, its counts, and the hook that tests enter the kernel through.

use std::sync::Arc;

/// One entry into the kernel, as an [`EnterHook`] sees it before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnterCall {
    /// How many staged entries are to be submitted; a hook may lower it.
    pub to_submit: u32,
    /// How many completions to wait for; a hook may lower it.
    pub min_complete: u32,
}

/// Looks at every kernel entry of a ring before it happens and may change it or have it fail: for fault injection in
/// tests.
#[derive(Clone)]
pub struct EnterHook(Arc<Hook>);

type Hook = dyn Fn(&mut EnterCall) -> Option<i32> + Send + Sync;

impl EnterHook {
    /// The hook gets each call; with `Some(errno)` the kernel is not entered and the call fails with that error.
    pub fn new(hook: impl Fn(&mut EnterCall) -> Option<i32> + Send + Sync + 'static) -> EnterHook {
        EnterHook(Arc::new(hook))
    }

    pub(super) fn before(&self, call: &mut EnterCall) -> Option<i32> {
        (self.0)(call)
    }
}

impl std::fmt::Debug for EnterHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EnterHook(..)")
    }
}

/// Sizes of a core's ring and buffers.
#[derive(Clone, Debug)]
pub(crate) struct RingConfig {
    pub(crate) submission_entries: u32,
    pub(crate) completion_entries: u32,
    pub(crate) receive_buffers: u16,
    pub(crate) receive_buffer_size: usize,
    pub(crate) hook: Option<EnterHook>,
}

/// Counts of one core's driver since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStats {
    /// Kernel entries (`io_uring_enter` calls).
    pub enters: u64,
    /// Kernel entries that ended with EINTR, EAGAIN or EBUSY.
    pub retried_enters: u64,
    /// Entries the kernel has taken.
    pub submitted: u64,
    /// Completions reaped.
    pub completions: u64,
    /// Times the completion queue was found to have overflowed.
    pub overflows: u64,
    /// Operations in flight now.
    pub in_flight: usize,
    /// Receive buffers held by the program now.
    pub buffers_out: u16,
}
