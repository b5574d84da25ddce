//! What a plan answers.

use std::sync::Arc;

use super::Key;
use crate::actor::ExitReason;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::actor::supervisor) enum Step {
    Start(Key),
    /// Tell it to end.
    Stop(Key),
    /// It has been told for long enough.
    Force(Key),
    /// It does not end: whoever waits for that is to be told.
    Overdue(Key),
    /// Nobody runs any more, but for those overdue.
    Finish(End),
}

/// Why a supervisor ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::actor::supervisor) enum End {
    /// It was told to.
    Ordered,
    /// A child failed in its first start.
    StartFailed { id: Arc<str>, reason: ExitReason },
    /// A child failed once too often.
    GaveUp { id: Arc<str>, reason: ExitReason },
}
