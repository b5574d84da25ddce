//! A Unix socket by which others look into the running process: `corelet top`, a script, your own tool.
//!
//! Off unless the program opens it. Whoever may connect sees the runtime's cores, actors and pools, and can change nothing;
//! only the user whose process it is, and root, may connect. Questions and answers are lines of JSON: see [`protocol`].
//!
//! The nearest in Erlang is the `observer` application connected to a node; in tokio it is the console, which is told of
//! each poll by `tracing` while this costs nothing until somebody asks, and then what a [snapshot](crate::actor::snapshot) costs.
//!
//! # Examples
//! ```
//! use std::io::{BufRead, BufReader, Write};
//! use corelet::observer::Observer;
//! use corelet::runtime::{Cores, Runtime};
//!
//! let path = std::env::temp_dir().join(format!("observer-{}.sock", std::process::id()));
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! let at = path.clone();
//! let observer = runtime.block_on(move || async { Observer::open(at) })??;
//!
//! // Some other process, such as `corelet top`:
//! let mut socket = std::os::unix::net::UnixStream::connect(&path)?;
//! socket.write_all(b"\"snapshot\"\n")?;
//! let mut lines = BufReader::new(socket).lines();
//! assert!(lines.next().unwrap()?.starts_with(r#"{"hello":"#));
//! assert!(lines.next().unwrap()?.starts_with(r#"{"snapshot":"#));
//!
//! drop(observer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: change anything in the process that is looked into, or hold a core up for whoever looks.

mod inspector;
pub mod protocol;
mod serve;
mod socket;

use std::path::{Path, PathBuf};

use crate::actor;
use crate::runtime::{RawPid, context};
pub use inspector::{Inspector, Look, View};
pub use socket::ObserverError;

/// The open socket.
///
/// It belongs to the runtime on whose core it was opened, is served by that core, and ends with it.
///
/// # Drop
/// Closes the socket, unless it was [detached](Observer::detach), and removes its file, soon.
#[derive(Debug)]
#[must_use = "dropping an observer closes its socket; `detach` leaves it open"]
pub struct Observer {
    path: PathBuf,
    /// The task to stop, unless it is detached.
    server: Option<RawPid>,
}

impl Observer {
    /// Opens the socket at `path`, with mode 0600. A file that a process of the same user has left there when it ended is
    /// replaced.
    ///
    /// # Errors
    /// [`ObserverError`] says what is at `path` instead.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Observer, ObserverError> {
        let path = path.as_ref().to_owned();
        let (listener, claim) = socket::claim(&path)?;
        let server = actor::spawn(serve::accept(listener, claim)).raw();
        actor::label(&context::current(), server, "observer".into());
        Ok(Observer { path, server: Some(server) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the socket open for as long as the core lives.
    pub fn detach(mut self) {
        self.server = None;
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(server) = self.server {
            context::stop(server);
        }
    }
}
