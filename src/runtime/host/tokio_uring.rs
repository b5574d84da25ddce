//! Cores inside tokio-uring: its operations on its ring, and a core's on the core's, on one thread.

use std::future::Future;

use ::tokio_uring::Runtime;

use super::{HostError, live};
use crate::runtime::builder::GuestCore;
use crate::runtime::error::StartError;

/// Starts `core` and tokio-uring on the calling thread, and runs `main` there, [on the core](super::Hosted::on_core), to
/// its end, as [`tokio::run`](super::tokio::run) does. A loop that runs already, by `tokio_uring::start`, takes a core in
/// by [`drive`](super::drive()).
///
/// # Errors
/// [`HostError`] says why the core could not be started, or why it ended before `main`.
///
/// # Panics
/// When called inside a tokio runtime, which tokio-uring's is too.
///
/// # Examples
/// ```
/// use corelet::runtime::{Cores, Runtime, host};
///
/// let (_, mut guests) = Runtime::builder().cores(Cores::Count(1)).build_guests()?;
/// let read = host::tokio_uring::run(guests.remove(0), async {
///     // A task of the core reads a file by the host's ring.
///     let task = host::here().spawn(async {
///         let file = tokio_uring::fs::File::open("/proc/self/stat").await?;
///         file.read_at(vec![0; 64], 0).await.0
///     });
///     task.await.unwrap()
/// })?;
/// assert!(read? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run<F: Future>(core: GuestCore, main: F) -> Result<F::Output, HostError> {
    begin(live(core, main))?
}

pub(super) fn begin<F: Future>(life: F) -> Result<F::Output, StartError> {
    let runtime = Runtime::new(&::tokio_uring::builder()).map_err(StartError::Host)?;
    Ok(runtime.block_on(life))
}
