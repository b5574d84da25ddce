//! What a pool may be told when it is built.

/// In which order the waiters of one shard are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// By arrival: the oldest live waiter first.
    #[default]
    Fifo,
    /// Handles take turns; inside one handle the oldest waiter first.
    RoundRobin,
}
