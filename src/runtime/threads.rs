//! A runtime that drives its cores on threads of its own: start, run, end.

use std::future::Future;
use std::thread::JoinHandle as ThreadHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded, unbounded};

use super::builder::{GuestCore, RuntimeBuilder};
use super::context;
use super::core::Core;
use super::error::StartError;
use super::identity::CoreId;
use super::join::{JoinError, RemoteJoinHandle};
use super::mesh::Mail;
use super::runtime_handle::{RuntimeHandle, UnknownCore};

/// How long an ending run lets work that keeps itself busy go on.
const FINISH_LIMIT: Duration = Duration::from_secs(1);

/// One pinned thread per core, each with its own ring and executor.
///
/// # Examples
/// ```
/// use corelet::runtime::{Cores, Runtime, current_core};
///
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// let core = runtime.block_on(|| async { current_core() })?;
/// assert_eq!(core, Some(runtime.cores()[0]));
///
/// // One root task on every core; the runtime ends with them.
/// assert_eq!(runtime.run(|| async { 7 })?, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// # Drop
/// Stops every task, waits for the operations in flight, closes the rings and joins the threads. A task that drops the
/// runtime it runs on waits for the other cores only; its own ends when it returns to the executor.
#[derive(Debug)]
pub struct Runtime {
    handle: RuntimeHandle,
    threads: Vec<ThreadHandle<()>>,
}

impl Runtime {
    /// The settings to start from.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    pub(crate) fn start(
        handle: RuntimeHandle,
        guests: Vec<GuestCore>,
        name: &str,
    ) -> Result<Runtime, StartError> {
        let mut runtime = Runtime { handle, threads: Vec::with_capacity(guests.len()) };
        let (started, starts) = bounded(guests.len());
        for (position, guest) in guests.into_iter().enumerate() {
            let started = started.clone();
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{position}"))
                .spawn(move || drive(guest, &started))
                .map_err(StartError::Thread)?;
            runtime.threads.push(thread);
        }
        drop(started);
        for _ in 0..runtime.threads.len() {
            match starts.recv() {
                Ok(outcome) => outcome?,
                // The thread died before it could tell; its panic has been printed.
                Err(_) => return Err(StartError::Thread(std::io::ErrorKind::BrokenPipe.into())),
            }
        }
        Ok(runtime)
    }

    /// A handle that names the cores, for any thread.
    pub fn handle(&self) -> RuntimeHandle {
        self.handle.clone()
    }

    /// The cores, in the order in which they were chosen.
    pub fn cores(&self) -> Vec<CoreId> {
        self.handle.cores()
    }

    /// Runs a future on `core`; see [`RuntimeHandle::spawn_on`].
    ///
    /// # Errors
    /// [`UnknownCore`] when `core` is not of this runtime.
    pub fn spawn_on<F, Fut>(
        &self,
        core: CoreId,
        task: F,
    ) -> Result<RemoteJoinHandle<Fut::Output>, UnknownCore>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.handle.spawn_on(core, task)
    }

    /// Runs the future that `root` makes on the first core and waits for it; everything else goes on.
    ///
    /// # Errors
    /// When the future panics, or its core ends.
    ///
    /// # Panics
    /// When called on one of the runtime's own cores, which would wait for itself.
    pub fn block_on<F, Fut>(&self, root: F) -> Result<Fut::Output, JoinError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.refuse_own_cores();
        let (answer, answers) = bounded(1);
        self.handle.run_on(&self.handle.mailboxes()[0], root, move |result| {
            // The receiver waits below.
            let _ = answer.send(result);
        });
        answers.recv().unwrap_or_else(|_| Err(JoinError::cancelled()))
    }

    /// Runs a root task on every core, made there by `root`, and ends the runtime when all of them have ended. Work
    /// that is queued by then finishes first (for at most a second, if it keeps itself busy); then every task that
    /// is left, parked on I/O, a timer or a message, is stopped once.
    ///
    /// Gives the results in the order of the cores.
    ///
    /// # Errors
    /// The error of the first root task that panicked, after all of them have ended.
    ///
    /// # Panics
    /// When called on one of the runtime's own cores, which would wait for itself.
    pub fn run<F, Fut>(self, root: F) -> Result<Vec<Fut::Output>, JoinError>
    where
        F: Fn() -> Fut + Send + Clone + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.refuse_own_cores();
        let mut answers = Vec::new();
        for mailbox in self.handle.mailboxes() {
            let (answer, answered) = bounded(1);
            self.handle.run_on(mailbox, root.clone(), move |result| {
                // The receiver waits below.
                let _ = answer.send(result);
            });
            answers.push(answered);
        }
        drop(root);
        let results: Vec<_> = answers
            .into_iter()
            .map(|answered| answered.recv().unwrap_or_else(|_| Err(JoinError::cancelled())))
            .collect();
        self.finish_queued_work();
        drop(self);
        results.into_iter().collect()
    }

    #[track_caller]
    fn refuse_own_cores(&self) {
        let own = context::current_core().is_some_and(|core| self.handle.mailbox(core).is_ok());
        assert!(!own, "a core cannot block on its own runtime; spawn a task instead");
    }

    /// Waits until all cores have been idle twice in a row with nothing in between: then no work is queued anywhere,
    /// nor on its way between two cores.
    fn finish_queued_work(&self) {
        let deadline = Instant::now() + FINISH_LIMIT;
        let mut before = None;
        loop {
            let mut activity = Vec::new();
            for mailbox in self.handle.mailboxes() {
                let (answer, answers) = unbounded();
                if mailbox.send(Mail::WhenIdle(answer)).is_ok() {
                    match answers.recv_deadline(deadline) {
                        Ok(count) => activity.push(count),
                        Err(_) if Instant::now() >= deadline => return,
                        Err(_) => {}
                    }
                }
            }
            // Each probe is itself one mail.
            let expected = before.replace(activity.clone());
            let quiet = expected.is_some_and(|before: Vec<u64>| {
                before.len() == activity.len()
                    && before.iter().zip(&activity).all(|(old, new)| old + 1 == *new)
            });
            if quiet || activity.is_empty() {
                return;
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for mailbox in self.handle.mailboxes() {
            // Refused only by a core that has already ended.
            let _ = mailbox.send(Mail::End);
        }
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != here && thread.join().is_err() {
                tracing::error!("a core's thread panicked");
            }
        }
    }
}

/// The life of one core's thread.
fn drive(guest: GuestCore, started: &Sender<Result<(), StartError>>) {
    #[cfg(feature = "tokio")]
    if let Some(host) = guest.host() {
        return host.drive(guest, started);
    }
    let mut core = match guest.start() {
        Ok(core) => core,
        Err(error) => {
            // The receiver waits for this answer.
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(()));
    if let Err(error) = turn_until_ended(&mut core) {
        tracing::error!(core = %core.id(), %error, "the ring of a core failed; the core ends");
    }
}

fn turn_until_ended(core: &mut Core) -> std::io::Result<()> {
    let local = core.local();
    loop {
        let more = local.turn()?;
        if local.is_ending() {
            return Ok(());
        }
        if !more {
            local.park(None)?;
        }
    }
}
