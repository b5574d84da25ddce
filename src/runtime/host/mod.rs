//! Cores inside somebody else's event loop: tokio's, or tokio-uring's, which is one of tokio's with a ring beside it.
//!
//! A service that lives in such a loop makes its cores by
//! [`build_guests`](crate::runtime::RuntimeBuilder::build_guests) and gives each to its thread's loop: by
//! [`tokio::run`] or `tokio_uring::run`, which begin a loop for it, or by [`drive`], in a loop that runs already. A
//! service without one lets [`inside`](crate::runtime::RuntimeBuilder::inside) start a thread and a loop for each core.
//!
//! # Who may use what
//!
//! Two kinds of futures live on such a thread, and each kind may use both sides:
//!
//! - **Tasks of the core** ([`spawn`](crate::runtime::spawn), [`Hosted::spawn`]) are polled by the core's turns, which
//!   the host runs as one of its own tasks. So the host's timers, channels, sockets and `spawn_local` work in them as
//!   they are.
//! - **Futures of the host** (its main future, its tasks) are polled by the host, which knows no current core. What
//!   of them uses the core, be it a pool, a stream or a sleep, goes through [`Hosted::on_core`], which makes the core
//!   the current one for each poll, or through [`Hosted::enter`], for calls that are no futures. [`here`] gives the
//!   [`Hosted`] of the current core.
//!
//! What a future of the host's keeps beyond an `on_core`, such as a lease or a stream, should be used and dropped inside
//! another: dropped elsewhere it is given back or closed all the same, but what that stages for the kernel goes out with
//! the core's next turn, which nobody asks for.
//!
//! Wakes go both ways by the futures' own wakers. Nothing polls in vain: an idle host sleeps in its own wait, which the
//! core's descriptor and its next deadline are part of.
//!
//! # Taking turns
//!
//! The core gets one turn, of at most 256 polls, whenever it is told that there is something to do, and then the host
//! looks at its own tasks and events, also when the core has more. A task that is always ready keeps nobody waiting for
//! longer than that, on either side; and a future in [`on_core`](Hosted::on_core) has the same budget in each poll as a
//! task of the core.
//!
//! Timers of the core are as fine as the host's: tokio rounds up to a millisecond.
//!
//! # The end
//!
//! A core ends when its [`Drive`] ends or is dropped: by [`Hosted::end`], with the host's loop, or with the runtime that
//! started the loop. Its tasks are then dropped, and operations in flight are cancelled and waited for, as by
//! [`Core`](crate::runtime::Core)'s drop. Futures that are still in [`on_core`](Hosted::on_core) give [`CoreEnded`].
//!
//! # Examples
//! ```
//! use std::time::Duration;
//! use corelet::runtime::{Cores, Runtime, host, sleep};
//!
//! let (_, mut guests) = Runtime::builder().cores(Cores::Count(1)).build_guests()?;
//! let sum = host::tokio::run(guests.remove(0), async {
//!     // A task of the core, with a timer of the host.
//!     let core = host::here();
//!     let task = core.spawn(async {
//!         tokio::time::sleep(Duration::from_millis(1)).await;
//!         40
//!     });
//!     // A task of the host, with a timer of the core.
//!     let other = tokio::task::spawn_local(core.on_core(async {
//!         sleep(Duration::from_millis(1)).await;
//!         2
//!     }));
//!     task.await.unwrap() + other.await.unwrap().unwrap()
//! })?;
//! assert_eq!(sum, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod drive;
mod hosted;
pub mod tokio;
#[cfg(feature = "tokio-uring")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio-uring")))]
pub mod tokio_uring;

use std::future::Future;
use std::io;

use crossbeam_channel::Sender;

use super::builder::GuestCore;
use super::error::StartError;
use super::identity::CoreId;

pub use drive::{Drive, drive};
pub(crate) use hosted::wake;
pub use hosted::{Hosted, OnCore, here};

/// What each core's thread runs; see [`inside`](crate::runtime::RuntimeBuilder::inside).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Host {
    /// A current-thread runtime of tokio, with a `LocalSet`.
    Tokio,
    /// tokio-uring.
    #[cfg(feature = "tokio-uring")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio-uring")))]
    TokioUring,
}

/// Why a host did not run its core, or not to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The core or its host could not be started.
    #[error("a core could not be started inside its host")]
    Start(#[from] StartError),
    /// The core's ring could not be entered, or the host ended under it; the core has ended.
    #[error("a core inside a host failed")]
    Failed(#[source] io::Error),
    /// The core was ended before the main future was done.
    #[error(transparent)]
    Ended(#[from] CoreEnded),
}

/// A core ended before a future that was using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("core {core} has ended")]
pub struct CoreEnded {
    /// The core.
    pub core: CoreId,
}

impl Host {
    /// The life of a core's thread inside this host.
    pub(crate) fn drive(self, guest: GuestCore, started: &Sender<Result<(), StartError>>) {
        let life = async {
            let drive = drive(guest.start()?).map_err(HostError::Failed)?;
            // The receiver waits for this answer, or has given up.
            let _ = started.send(Ok(()));
            // A task of its own, for what its tasks put beside it is polled beside it.
            ended(::tokio::task::spawn_local(drive).await)
        };
        let outcome = match self {
            Host::Tokio => tokio::begin(life),
            #[cfg(feature = "tokio-uring")]
            Host::TokioUring => tokio_uring::begin(life),
        };
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(HostError::Start(error))) | Err(error) => {
                // As above.
                let _ = started.send(Err(error));
            }
            Ok(Err(error)) => tracing::error!(%error, "a core inside a host failed; the core ends"),
        }
    }
}

/// Starts the core, drives it in a task beside `main`, and ends it after `main`. Polled inside a `LocalSet`.
async fn live<F: Future>(guest: GuestCore, main: F) -> Result<F::Output, HostError> {
    let drive = drive(guest.start()?).map_err(HostError::Failed)?;
    let core = drive.hosted();
    let driving = ::tokio::task::spawn_local(drive);
    let output = core.on_core(main).await;
    core.end();
    ended(driving.await)?;
    Ok(output?)
}

/// How the task of a drive ended.
fn ended(joined: Result<io::Result<()>, ::tokio::task::JoinError>) -> Result<(), HostError> {
    match joined {
        Ok(outcome) => outcome.map_err(HostError::Failed),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => Err(HostError::Failed(io::Error::other(error))),
        },
    }
}
