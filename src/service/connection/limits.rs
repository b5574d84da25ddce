//! What one connection may use.

use std::time::Duration;

/// What one connection may use: memory and time.
///
/// The deadlines arm nothing for each request: a connection has one timer, which looks again when it fires. Where a
/// deadline is not set, no clock is read for it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::service::Limits;
///
/// let limits = Limits { max_frame: 1024, idle_timeout: Some(Duration::from_secs(60)), ..Limits::default() };
/// assert!(limits.memory >= limits.max_frame);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame that the peer may send, in bytes as they are sent; 64 KiB by default. While so many bytes wait to be
    /// decoded, nothing more is received.
    pub max_frame: usize,
    /// The most bytes that are received and not decoded or encoded and not sent, with the spare room of the buffers
    /// they are in; 256 KiB by default. That has to be enough for a frame each way and `send_at`; a server does not start
    /// with less than `max_frame` and `send_at` come to, while [`serve`](crate::service::serve) takes what it is given. A codec
    /// that reserves more has its buffer shrunk afterwards. What a codec keeps in itself is not seen, nor what handlers keep
    /// of a frame.
    pub memory: usize,
    /// Encoded bytes from which on nothing more is encoded before they are sent; 4 KiB by default, which the driver sends
    /// without waiting.
    pub send_at: usize,
    /// Pushes in a row after which a response or request has its turn; 64 by default.
    pub pushes_in_a_row: u32,
    /// How long the peer may take from a frame's first byte to its last, however they drip; 10 s by default.
    pub frame_timeout: Option<Duration>,
    /// How long the peer may say nothing at all, with no request under way; none by default.
    pub idle_timeout: Option<Duration>,
    /// How long a handler may take until its response begins; none by default. It ends the request with
    /// [`RequestError::TimedOut`](crate::service::RequestError::TimedOut), and drops the handler.
    pub request_timeout: Option<Duration>,
    /// How long the peer may take to make room for what is sent at one time; 10 s by default.
    pub write_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_frame: 64 * 1024,
            memory: 256 * 1024,
            send_at: 4096,
            pushes_in_a_row: 64,
            frame_timeout: Some(Duration::from_secs(10)),
            idle_timeout: None,
            request_timeout: None,
            write_timeout: Some(Duration::from_secs(10)),
        }
    }
}
