//! Why an observer's socket could not be opened.

use std::io;
use std::path::{Path, PathBuf};

use crate::net::UnixListener;
use crate::net::claim::{self, Claim, ClaimError};

/// Reading and writing, for the user alone.
const MODE: u32 = 0o600;

/// An observer's socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserverError {
    /// Somebody listens there.
    #[error("{} is in use by a process that is alive; choose another path for each process", path.display())]
    InUse {
        /// The path asked for.
        path: PathBuf,
    },
    /// There is a file that no observer has left.
    #[error("{} exists, and is no socket of this user; choose another path", path.display())]
    NotOurs {
        /// The path asked for.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{} could not be opened", path.display())]
    Refused {
        /// The path asked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Listens at `path`, in place of a socket there to which nobody listens any more.
#[track_caller]
pub(super) fn claim(path: &Path) -> Result<(UnixListener, Claim), ObserverError> {
    claim::claim(path, MODE).map_err(|error| {
        let path = path.to_owned();
        match error {
            ClaimError::InUse => ObserverError::InUse { path },
            ClaimError::NotOurs => ObserverError::NotOurs { path },
            ClaimError::Refused(source) => ObserverError::Refused { path, source },
        }
    })
}
