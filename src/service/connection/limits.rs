//! What one connection may use.

use std::time::Duration;

/// What one connection may use: memory and time.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes that are received and not yet decoded, so the longest frame; 64 KiB by default.
    pub max_frame: usize,
    /// Encoded bytes from which on nothing more is encoded before they are sent; 4 KiB by default, which the driver sends
    /// without waiting.
    pub send_at: usize,
    /// Pushes in a row after which a response or request has its turn; 64 by default.
    pub pushes_in_a_row: u32,
    /// How long a frame may take from its first byte to its last; 10 s by default.
    pub frame_timeout: Option<Duration>,
    /// How long the peer may say nothing at all, with no request under way; none by default.
    pub idle_timeout: Option<Duration>,
    /// How long the peer may take to read what is sent; 10 s by default.
    pub write_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_frame: 64 * 1024,
            send_at: 4096,
            pushes_in_a_row: 64,
            frame_timeout: Some(Duration::from_secs(10)),
            idle_timeout: None,
            write_timeout: Some(Duration::from_secs(10)),
        }
    }
}
