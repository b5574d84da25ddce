//! Who drives the core. Whatever runs is a task of the core, the same for all.
#![allow(unsafe_code)]

use crate::runtimes::{Runtime, Timers, corelet::core};
use anyhow::{Context as _, Result, bail};
use corelet::runtime::host::{self, HostError, here};
use corelet::runtime::{Core, Cores, GuestCore, Runtime as Threads};
use std::cell::Cell;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The core's own thread, which parks in the ring.
pub struct Pinned;

/// A loop that polls the core's descriptor and has nothing else to do.
pub struct GuestPoll;

/// tokio's current-thread runtime.
pub struct InTokio;

/// tokio-uring.
pub struct InTokioUring;

impl Runtime for Pinned {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        // The caller is pinned, so its core is the only one to choose.
        let runtime = Threads::builder().cores(Cores::Count(1)).build().context("cannot build corelet")?;
        Ok(runtime.block_on(main)?)
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        corelet::runtime::spawn(task)
    }
}

impl Runtime for GuestPoll {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let mut core = core(|builder| builder)?;
        core.event_fd()?;
        let outcome = Rc::new(Cell::new(None));
        let inside = outcome.clone();
        let task = core.spawn(async move { inside.set(Some(main().await)) });
        while !task.is_finished() {
            if !core.turn()? && !task.is_finished() {
                poll(&core)?;
            }
        }
        outcome.take().context("the task panicked")
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        corelet::runtime::spawn(task)
    }
}

/// Sleeps until the core's descriptor or its deadline calls.
fn poll(core: &Core) -> Result<()> {
    let limit = match core.next_deadline() {
        Some(at) => at.saturating_duration_since(Instant::now()).as_millis() as i32 + 1,
        None => -1,
    };
    let mut entry = libc::pollfd { fd: core.event_fd()?.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, alive for the length of the call; its descriptor is the core's.
    if unsafe { libc::poll(&raw mut entry, 1, limit) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            bail!("cannot poll: {error}");
        }
    }
    Ok(())
}

fn guest() -> Result<GuestCore> {
    let builder = Threads::builder().cores(Cores::Count(1)).pinned(false);
    let (_, mut guests) = builder.build_guests().context("cannot build corelet")?;
    Ok(guests.remove(0))
}

impl Runtime for InTokio {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        inside(host::tokio::run(guest()?, async { here().spawn(main()).await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        corelet::runtime::spawn(task)
    }
}

impl Runtime for InTokioUring {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        inside(host::tokio_uring::run(guest()?, async { here().spawn(main()).await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        corelet::runtime::spawn(task)
    }
}

fn inside<T>(ended: Result<Result<T, corelet::runtime::JoinError>, HostError>) -> Result<T> {
    Ok(ended??)
}

impl Timers for Pinned {
    fn sleep(duration: Duration) -> impl Future + 'static {
        corelet::runtime::sleep(duration)
    }
}

impl Timers for GuestPoll {
    fn sleep(duration: Duration) -> impl Future + 'static {
        corelet::runtime::sleep(duration)
    }
}

impl Timers for InTokio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        corelet::runtime::sleep(duration)
    }
}

impl Timers for InTokioUring {
    fn sleep(duration: Duration) -> impl Future + 'static {
        corelet::runtime::sleep(duration)
    }
}
