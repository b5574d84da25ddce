//! Why a simulated run stopped short.

use std::time::Duration;

/// Why a simulated run did not come to its end. Each names the seed to repeat it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The future is not done, and nothing will ever happen again: no task is ready, no mail, timer or completion is
    /// under way.
    #[error(
        "simulation seed = {seed}: deadlock after {at:?}: {parked} tasks are parked, and there is no ready task, mail, \
         timer or completion left that could wake one"
    )]
    Deadlock {
        /// The seed of the run.
        seed: u64,
        /// The simulated time since the start.
        at: Duration,
        /// How many tasks wait.
        parked: usize,
    },
    /// The limit of turns was reached, as in a run that keeps itself busy for ever.
    #[error(
        "simulation seed = {seed}: not done after {turns} turns, at {at:?}; raise `turn_limit` for a longer run"
    )]
    Exhausted {
        /// The seed of the run.
        seed: u64,
        /// The simulated time since the start.
        at: Duration,
        /// How many turns were made.
        turns: u64,
    },
    /// The core that ran the future has been killed.
    #[error("simulation seed = {seed}: the core that ran the future has ended")]
    CoreEnded {
        /// The seed of the run.
        seed: u64,
    },
}

impl SimulationError {
    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        match *self {
            SimulationError::Deadlock { seed, .. }
            | SimulationError::Exhausted { seed, .. }
            | SimulationError::CoreEnded { seed } => seed,
        }
    }

    /// Whether nothing was left that could go on.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, SimulationError::Deadlock { .. })
    }
}
