//! Cores inside current-thread runtimes of tokio.

use std::future::Future;

use ::tokio::runtime::Builder;
use ::tokio::task::LocalSet;

use super::{HostError, live};
use crate::runtime::builder::GuestCore;
use crate::runtime::error::StartError;

/// Starts `core` and a tokio runtime for it on the calling thread, and runs `main` there, [on the
/// core](super::Hosted::on_core), to its end. `main` is polled inside a `LocalSet`.
///
/// Then the core ends, and with the runtime whatever was spawned. A panic of `main` is carried on, after the core has
/// ended.
///
/// # Errors
/// [`HostError`] says why the core could not be started, or why it ended before `main`.
///
/// # Panics
/// When called inside a tokio runtime; there, use [`drive`](super::drive()).
pub fn run<F: Future>(core: GuestCore, main: F) -> Result<F::Output, HostError> {
    begin(live(core, main))?
}

pub(super) fn begin<F: Future>(life: F) -> Result<F::Output, StartError> {
    let runtime =
        Builder::new_current_thread().enable_io().enable_time().build().map_err(StartError::Host)?;
    Ok(LocalSet::new().block_on(&runtime, life))
}
