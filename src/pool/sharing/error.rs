//! What can go wrong with a shared socket.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An exchange in turn gave no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnError<E> {
    /// The socket failed before this exchange had its turn, perhaps by somebody else's exchange that was dropped or
    /// failed. Nothing was sent.
    Condemned,
    /// What the exchange itself returned. The socket is closed.
    Failed(E),
}

impl<E> TurnError<E> {
    /// Whether the exchange did not begin, so that making it again, with another lease, repeats nothing.
    pub fn is_retryable(&self) -> bool {
        matches!(self, TurnError::Condemned)
    }

    /// The exchange's own error, if it ran.
    pub fn into_inner(self) -> Option<E> {
        match self {
            TurnError::Condemned => None,
            TurnError::Failed(error) => Some(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for TurnError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnError::Condemned => {
                f.write_str("the shared socket failed before this exchange had its turn; nothing was sent")
            }
            TurnError::Failed(error) => write!(f, "the exchange failed: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for TurnError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TurnError::Condemned => None,
            TurnError::Failed(error) => Some(error),
        }
    }
}

/// A pipelined call gave no reply; `E` is the codec's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError<E> {
    /// The request could not be encoded. Nothing was sent, and the session goes on.
    #[error("the request could not be encoded: {0}")]
    Encode(#[source] E),
    /// A request with the same correlation id is still without its reply, perhaps one whose caller has given up.
    /// Nothing was sent, and the session goes on.
    #[error("a request with this correlation id is still without its reply; nothing was sent")]
    DuplicateId,
    /// The socket failed before the reply came; the session is over.
    #[error("the shared socket failed ({cause}); the request {}", if *.sent { "may have been sent" } else { "was not sent" })]
    Lost {
        /// Whether the request may have reached the peer.
        sent: bool,
        /// What happened to the socket, the same for all whose requests were on it.
        cause: Arc<SocketFailure<E>>,
    },
}

impl<E> PipelineError<E> {
    /// Whether the peer cannot have seen the request, so that sending it again repeats nothing.
    pub fn is_unsent(&self) -> bool {
        !matches!(self, PipelineError::Lost { sent: true, .. })
    }

    /// Whether the same request may be made again at once with another lease: it was not sent, and what prevented it
    /// lies with this socket.
    pub fn is_retryable(&self) -> bool {
        matches!(self, PipelineError::Lost { sent: false, .. })
    }
}

/// Why a pipelined socket has failed; `E` is the codec's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFailure<E> {
    /// The peer closed it between two replies.
    #[error("the peer closed it")]
    Closed,
    /// The peer closed it within a reply.
    #[error("the peer closed it in the middle of a reply")]
    ClosedMidFrame,
    /// What was received is no frame, or one larger than the codec allows.
    #[error("a reply could not be decoded: {0}")]
    Decode(#[source] E),
    /// A frame came that no request calls for.
    #[error("the peer sent a frame that no request calls for")]
    Unsolicited,
    /// The oldest reply did not come within the `reply_timeout`.
    #[error("its oldest reply did not come within {after:?}")]
    Overdue {
        /// The limit.
        after: Duration,
    },
    /// The connection failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The socket's task has ended: its core ends, or the codec has panicked.
    #[error("its task has ended")]
    Stopped,
}
