//! The file of a Unix listener: taken over from the dead, removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::UnixListener;

/// Why a path could not be claimed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("it is in use by a process that is alive")]
    InUse,
    #[error("there is a file that is no socket of this user")]
    NotOurs,
    #[error(transparent)]
    Refused(#[from] io::Error),
}

/// The file that was made. Removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub(crate) struct Claim {
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

/// Listens at `path`, with a file of that mode, in place of a socket there to which nobody listens any more.
#[track_caller]
pub(crate) fn claim(path: &Path, mode: u32) -> Result<(UnixListener, Claim), ClaimError> {
    let listener = match UnixListener::bind_with_mode(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind_with_mode(path, mode)?
        }
        bound => bound?,
    };
    Ok((listener, Claim { path: path.to_owned(), file: identity(path) }))
}

fn remove_stale(path: &Path) -> Result<(), ClaimError> {
    let file = fs::symlink_metadata(path)?;
    // The user that the process acts as owns what is its own under /proc.
    let user = fs::metadata("/proc/self")?.uid();
    if !file.file_type().is_socket() || file.uid() != user {
        return Err(ClaimError::NotOurs);
    }
    // Answers at once, and does not wait for room in the queue of a listener that is there.
    let caller = Socket::new_raw(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
    match caller.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(ClaimError::InUse),
        Ok(()) => Err(ClaimError::InUse),
        Err(error) => Err(error.into()),
    }
}
