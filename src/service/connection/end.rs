//! How a connection ends.

use std::io;
use std::time::Duration;

use super::CodecError;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The peer ended its side, and everything was answered.
    #[error("the peer has closed the connection")]
    Closed,
    /// It was drained or shut down from this side.
    #[error("the connection was shut down")]
    ShutDown,
    /// Its task was stopped or dropped, or its core has ended.
    #[error("the connection's task was dropped")]
    Stopped,
    /// A request failed, and the protocol had the connection end for it.
    #[error("a request failed")]
    RequestFailed,
    /// The peer sent bytes that are no frame.
    #[error("the peer sent no valid frame")]
    Decode(#[source] CodecError),
    /// A frame could not be encoded.
    #[error("a frame could not be encoded")]
    Encode(#[source] CodecError),
    /// A frame of the peer's was longer than [`Limits::max_frame`](super::Limits::max_frame).
    #[error("a frame of more than {limit} bytes")]
    FrameTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// What was received and not decoded and what was encoded and not sent came to more than
    /// [`Limits::memory`](super::Limits::memory).
    #[error("the connection needs {needed} bytes of memory and may use {limit}")]
    OverBudget {
        /// What it would have taken, in bytes.
        needed: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A frame of the peer's was not complete in time.
    #[error("a frame was not complete {after:?} after it had begun")]
    FrameTimeout {
        /// The limit.
        after: Duration,
    },
    /// The peer said nothing for too long.
    #[error("the peer said nothing for {after:?}")]
    IdleTimeout {
        /// The limit.
        after: Duration,
    },
    /// The peer did not read what was sent to it.
    #[error("the peer did not take what was sent within {after:?}")]
    WriteTimeout {
        /// The limit.
        after: Duration,
    },
    /// The codec or a hook of the protocol panicked.
    #[error("the protocol panicked: {message}")]
    Panicked {
        /// What it panicked with, if that was a text.
        message: String,
    },
    /// The transport failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

impl End {
    /// The reason, for counting.
    pub fn reason(&self) -> EndReason {
        match self {
            End::Closed => EndReason::Closed,
            End::ShutDown => EndReason::ShutDown,
            End::Stopped => EndReason::Stopped,
            End::RequestFailed => EndReason::RequestFailed,
            End::Decode(_) => EndReason::Decode,
            End::Encode(_) => EndReason::Encode,
            End::FrameTooLong { .. } => EndReason::FrameTooLong,
            End::OverBudget { .. } => EndReason::OverBudget,
            End::FrameTimeout { .. } => EndReason::FrameTimeout,
            End::IdleTimeout { .. } => EndReason::IdleTimeout,
            End::WriteTimeout { .. } => EndReason::WriteTimeout,
            End::Panicked { .. } => EndReason::Panicked,
            End::Io(_) => EndReason::Io,
        }
    }

    /// Whether neither side did wrong: the peer went, or was asked to.
    pub fn is_orderly(&self) -> bool {
        matches!(self, End::Closed | End::ShutDown)
    }

    /// Whether a deadline ended it.
    pub fn is_timeout(&self) -> bool {
        matches!(self, End::FrameTimeout { .. } | End::IdleTimeout { .. } | End::WriteTimeout { .. })
    }
}

/// An [`End`] without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// [`End::Closed`].
    Closed,
    /// [`End::ShutDown`].
    ShutDown,
    /// [`End::Stopped`].
    Stopped,
    /// [`End::RequestFailed`].
    RequestFailed,
    /// [`End::Decode`].
    Decode,
    /// [`End::Encode`].
    Encode,
    /// [`End::FrameTooLong`].
    FrameTooLong,
    /// [`End::OverBudget`].
    OverBudget,
    /// [`End::FrameTimeout`].
    FrameTimeout,
    /// [`End::IdleTimeout`].
    IdleTimeout,
    /// [`End::WriteTimeout`].
    WriteTimeout,
    /// [`End::Panicked`].
    Panicked,
    /// [`End::Io`].
    Io,
}

impl EndReason {
    /// All of them, in order.
    pub const ALL: [EndReason; 13] = [
        EndReason::Closed,
        EndReason::ShutDown,
        EndReason::Stopped,
        EndReason::RequestFailed,
        EndReason::Decode,
        EndReason::Encode,
        EndReason::FrameTooLong,
        EndReason::OverBudget,
        EndReason::FrameTimeout,
        EndReason::IdleTimeout,
        EndReason::WriteTimeout,
        EndReason::Panicked,
        EndReason::Io,
    ];

    /// A name for labels.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed => "closed",
            EndReason::ShutDown => "shut_down",
            EndReason::Stopped => "stopped",
            EndReason::RequestFailed => "request_failed",
            EndReason::Decode => "decode",
            EndReason::Encode => "encode",
            EndReason::FrameTooLong => "frame_too_long",
            EndReason::OverBudget => "over_budget",
            EndReason::FrameTimeout => "frame_timeout",
            EndReason::IdleTimeout => "idle_timeout",
            EndReason::WriteTimeout => "write_timeout",
            EndReason::Panicked => "panicked",
            EndReason::Io => "io",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_where_their_numbers_say() {
        for (place, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize, "{}", reason.name());
        }
    }
}
