//! What can go wrong with a server.

use std::io;
use std::time::Duration;

use super::address::Address;
use crate::runtime::CoreId;
use crate::service::error::{BoxError, PrepareError};

/// A server could not start. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No address was given.
    #[error("the server has no address; give it one by `bind` or `bind_unix`")]
    NoAddress,
    /// No core was chosen.
    #[error("the server has no core; choose at least one, or leave the choice out to serve on all")]
    NoCores,
    /// Connections may not hold what the longest frame and their output take.
    #[error(
        "connections may hold {memory} bytes, but `max_frame` and `send_at` take {needed}; raise `Limits::memory`"
    )]
    Limits {
        /// [`Limits::memory`](crate::service::Limits::memory).
        memory: usize,
        /// [`max_frame`](crate::service::Limits::max_frame) and [`send_at`](crate::service::Limits::send_at) together.
        needed: usize,
    },
    /// A core was chosen that the runtime does not have.
    #[error("core {core} is not a core of the runtime; `RuntimeHandle::cores` names them")]
    UnknownCore {
        /// The core.
        core: CoreId,
    },
    /// An address could not be listened on.
    #[error("core {core} cannot listen on {address}: {source}{}", advice(.source))]
    Listen {
        /// The address.
        address: Address,
        /// The core.
        core: CoreId,
        /// Why.
        source: io::Error,
    },
    /// Somebody listens at the path of a Unix socket.
    #[error("{address} is in use by a process that is alive; stop it, or choose another path")]
    InUse {
        /// The address.
        address: Address,
    },
    /// There is a file at the path of a Unix socket that is no socket, or another user's.
    #[error("{address} exists, and is no socket of this user; remove it, or choose another path")]
    NotASocket {
        /// The address.
        address: Address,
    },
    /// The application cannot be put together.
    #[error("the application could not be made on core {core}")]
    Prepare {
        /// The core.
        core: CoreId,
        /// Why.
        source: PrepareError,
    },
    /// The factory panicked.
    #[error("the application could not be made on core {core}: its factory panicked: {message}")]
    Factory {
        /// The core.
        core: CoreId,
        /// What it panicked with, if that was a text.
        message: String,
    },
    /// A core has ended.
    #[error("core {core} of the runtime has ended; start the server before the runtime is told to end")]
    CoreEnded {
        /// The core.
        core: CoreId,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; stop who listens there, or choose another port",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE, and a socket's directory must be writable"
        }
        io::ErrorKind::NotFound => "; the directory must exist",
        _ => match error.raw_os_error() {
            Some(libc::EMFILE) => "; the process is out of descriptors: raise `ulimit -n`, or LimitNOFILE=",
            _ => "",
        },
    }
}

/// Why a connection was not admitted to framing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreambleError {
    /// The preamble refused it.
    #[error("the preamble was refused")]
    Refused(#[source] BoxError),
    /// It took too long.
    #[error("the preamble was not complete within {limit:?}")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// It sent too much.
    #[error("a preamble of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The peer ended its side.
    #[error("the peer has closed the connection before the end of the preamble")]
    Closed,
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// A drain was over before all connections were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{remaining} connections had not ended when the time to drain was over, and were dropped")]
pub struct DrainTimeout {
    /// Connections that were dropped.
    pub remaining: usize,
    /// Connections that ended in good order.
    pub drained: usize,
}
