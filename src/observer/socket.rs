//! The file of the socket: made for nobody else, taken over from the dead, removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::net::UnixListener;

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

/// The file that was made. Removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    /// Device and number of the file; none when it cannot be told.
    file: Option<(u64, u64)>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            // Whoever removed it first has done what was to be done.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Listens at `path`, in place of a socket there to which nobody listens any more.
#[track_caller]
pub(super) fn claim(path: &Path) -> Result<(UnixListener, Claim), ObserverError> {
    let refused = |source| ObserverError::Refused { path: path.to_owned(), source };
    let listener = match UnixListener::bind_with_mode(path, MODE) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind_with_mode(path, MODE)
        }
        bound => bound,
    };
    let listener = listener.map_err(refused)?;
    Ok((listener, Claim { path: path.to_owned(), file: identity(path) }))
}

fn remove_stale(path: &Path) -> Result<(), ObserverError> {
    let refused = |source| ObserverError::Refused { path: path.to_owned(), source };
    let file = fs::symlink_metadata(path).map_err(refused)?;
    // The user that the process acts as owns what is its own under /proc.
    let user = fs::metadata("/proc/self").map_err(refused)?.uid();
    if !file.file_type().is_socket() || file.uid() != user {
        return Err(ObserverError::NotOurs { path: path.to_owned() });
    }
    // Answers at once: to connect to a Unix socket waits only for room in the queue of a listener that is there.
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused)
        }
        Ok(_) => Err(ObserverError::InUse { path: path.to_owned() }),
        Err(error) => Err(refused(error)),
    }
}
