//! What can go wrong with a frame.

use std::io;

/// A framed operation failed; `E` is the codec's error.
///
/// Except where it says otherwise, the connection is then unfit for further use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FramedError<E> {
    /// The request could not be encoded. Nothing was sent, and the connection is as it was.
    #[error("the request could not be encoded: {0}")]
    Encode(#[source] E),
    /// What was received is no frame, or one larger than the codec allows.
    #[error("the reply could not be decoded: {0}")]
    Decode(#[source] E),
    /// The peer closed the connection before any byte of the reply.
    #[error("the peer closed the connection before the reply; {}", describe(*.sent))]
    Closed {
        /// Whether the request may have reached the peer.
        sent: bool,
    },
    /// The peer closed the connection within the reply.
    #[error("the peer closed the connection in the middle of the reply")]
    ClosedMidFrame,
    /// Something had arrived that no request called for, before this request was sent.
    #[error("the peer has sent something unasked; {}", describe(false))]
    Unsolicited,
    /// The connection failed.
    #[error("the connection failed; {}: {source}", describe(*.sent))]
    Io {
        /// The kernel's error.
        source: io::Error,
        /// Whether the request may have reached the peer.
        sent: bool,
    },
    /// The reply has another correlation id than the request.
    #[error("the reply belongs to another request")]
    WrongReply,
    /// A call was made while replies to earlier requests were still to come, and would have taken the first of those.
    /// Nothing was sent, and the connection is as it was.
    #[error("{replies} replies to earlier requests are still to come; receive them before a call")]
    Outstanding {
        /// How many.
        replies: usize,
    },
    /// A reply was to be received, and no request calls for one. The connection is as it was.
    #[error("no request is waiting for a reply")]
    NothingOutstanding,
    /// An earlier operation had failed or was dropped within a frame. Nothing was sent.
    #[error("an earlier operation left the connection in an unknown state; {}", describe(false))]
    Broken,
}

impl<E> FramedError<E> {
    /// Whether the peer cannot have seen the request, so that sending it again, on another connection, repeats nothing.
    /// False where that is not certain.
    pub fn is_unsent(&self) -> bool {
        match self {
            FramedError::Encode(_)
            | FramedError::Unsolicited
            | FramedError::Outstanding { .. }
            | FramedError::Broken => true,
            FramedError::Closed { sent } | FramedError::Io { sent, .. } => !sent,
            _ => false,
        }
    }

    /// Whether the same request may be made again at once on another connection: it was not sent, and what prevented
    /// it lies with this connection.
    pub fn is_retryable(&self) -> bool {
        self.is_unsent() && !matches!(self, FramedError::Encode(_))
    }
}

fn describe(sent: bool) -> &'static str {
    if sent { "the request may have been sent" } else { "the request was not sent" }
}
