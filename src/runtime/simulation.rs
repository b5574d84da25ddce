//! Whole-system runs that replay from a seed: several cores on one thread, a clock that is only moved, and a network
//! that exists in memory.
//!
//! Never: let a simulated core sleep, or enter the kernel in its turn.

mod error;
mod faults;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::context;
use super::core::Core;
use super::driver::Driver;
use super::driver::buffers::BufferPool;
use super::driver::sim::SimPort;
use super::driver::sim::random::Random;
use super::driver::sim::trace::{TraceEvent, TraceKind};
use super::driver::sim::world::{SharedWorld, World, lock};
use super::error::StartError;
use super::executor::Executor;
use super::identity::{CoreId, Incarnation, NodeId};
use super::join::JoinHandle;
use super::local::{CoreStats, Local};
use super::mesh::Mailbox;
use super::runtime_handle::RuntimeHandle;
pub use error::SimulationError;
pub use faults::Faults;

/// Turns in a row, with always more to run, after which time passes all the same: a task that spins until a deadline
/// must get there.
const BUSY_TURNS: u32 = 64;
/// How much time passes then at most.
const BUSY_STEP: Duration = Duration::from_millis(1);
/// Turns that one call makes at most, unless told otherwise.
const TURN_LIMIT: u64 = 10_000_000;

/// A runtime that is simulated: its cores take turns on the calling thread, in an order drawn from a seed; their tasks
/// run in a shuffled order; sockets exist in memory and behave as badly as the kernel's may; and time passes only when
/// nothing is left to do at the present instant, so an hour's sleep takes no time at all.
///
/// The same seed gives the same run, event by event, as long as the program itself decides nothing by real time,
/// random numbers, addresses in memory or the ids of its cores, and no other thread sends to the cores. A failure is
/// repeated by its seed, which every error names and which is printed when a test panics.
///
/// ```
/// use std::time::Duration;
/// use corelet::runtime::{Simulation, now, sleep};
///
/// for seed in 0..20 {
///     let mut simulation = Simulation::new(seed, 2);
///     let slept = simulation.block_on(|| async {
///         let begun = now();
///         sleep(Duration::from_secs(3600)).await;
///         now() - begun
///     });
///     assert_eq!(slept, Ok(Duration::from_secs(3600)));
/// }
/// ```
///
/// # Drop
/// Drops the cores, one after another, with all of their tasks.
pub struct Simulation {
    seed: u64,
    random: Random,
    cores: Vec<Option<Core>>,
    world: SharedWorld,
    handle: RuntimeHandle,
    turn_limit: u64,
    busy_turns: u32,
    /// The seed of a panicking run has been printed.
    said: bool,
}

/// Whether there is something to do at the present instant.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Turned,
    Idle,
}

impl Simulation {
    /// Makes so many cores, at least one.
    ///
    /// # Panics
    /// When the cores cannot be made; see [`try_new`](Simulation::try_new).
    pub fn new(seed: u64, cores: usize) -> Simulation {
        match Simulation::try_new(seed, cores) {
            Ok(simulation) => simulation,
            Err(error) => panic!("simulation seed = {seed}: the cores could not be made: {error}"),
        }
    }

    /// Makes so many cores, at least one.
    ///
    /// # Errors
    /// [`StartError`], when no core was asked for, the process has too many cores, or it is out of descriptors: each
    /// core has a doorbell, which is never rung here, and a mapping for its receive buffers.
    pub fn try_new(seed: u64, cores: usize) -> Result<Simulation, StartError> {
        if cores == 0 {
            return Err(StartError::NoCores);
        }
        let mut random = Random::new(seed);
        let world = World::new(random.draw(), cores);
        let opened: Vec<_> = (0..cores).map(|_| Mailbox::open()).collect::<Result<_, _>>()?;
        let mailboxes = opened.iter().map(|(mailbox, _)| mailbox.clone()).collect();
        let handle = RuntimeHandle::new(mailboxes, NodeId::default(), Incarnation::default());
        let mut made = Vec::with_capacity(cores);
        for (position, (mailbox, inbox)) in opened.into_iter().enumerate() {
            // Few enough buffers, at times, for a test to run out of them.
            let (count, size) = if random.one_in(2) { (8, 512) } else { (64, 4096) };
            let buffers = BufferPool::new(count, size, false).map_err(StartError::from_ring)?;
            let driver = Driver::simulated(SimPort::new(&world, position, buffers.clone()), buffers);
            // A shuffle by zero would be none.
            let executor = Executor::new(mailbox.core(), random.one_in(2), random.draw() | 1);
            let local = Local::new(mailbox, inbox, driver, executor, Duration::ZERO, handle.clone());
            made.push(Some(Core::new(local)));
        }
        Ok(Simulation {
            seed,
            random,
            cores: made,
            world,
            handle,
            turn_limit: TURN_LIMIT,
            busy_turns: 0,
            said: false,
        })
    }

    /// Sets how many turns one call makes at most before it gives up (10,000,000 by default): a run with a periodic
    /// timer would not end otherwise when its future does not.
    pub fn turn_limit(&mut self, turns: u64) {
        self.turn_limit = turns;
    }

    /// Runs the future that `root` makes on the first core until it is done, and the rest of the system as far as that
    /// takes. What has not ended by then stays as it is, for the next call.
    ///
    /// # Errors
    /// [`SimulationError`], which names the seed.
    ///
    /// # Panics
    /// When the future panics; the seed is printed then.
    pub fn block_on<F, Fut>(&mut self, root: F) -> Result<Fut::Output, SimulationError>
    where
        F: FnOnce() -> Fut + 'static,
        Fut: Future + 'static,
        Fut::Output: 'static,
    {
        let seed = self.seed;
        let Some(core) = &mut self.cores[0] else { return Err(SimulationError::CoreEnded { seed }) };
        let handle = core.spawn(async move { root().await });
        if self.run(None, || handle.is_finished())? == Step::Idle {
            return Err(self.deadlock());
        }
        self.take_result(handle)
    }

    /// Runs until nothing is left to happen: no ready task, no mail, no timer, no completion under way.
    ///
    /// # Errors
    /// [`SimulationError::Exhausted`] when there is no end to it, as with a periodic timer.
    pub fn run_until_idle(&mut self) -> Result<(), SimulationError> {
        self.run(None, || false).map(drop)
    }

    /// Lets so much time pass, with all that happens in it, and stops at exactly its end.
    ///
    /// # Errors
    /// [`SimulationError::Exhausted`] when there is no end to what happens.
    pub fn advance(&mut self, duration: Duration) -> Result<(), SimulationError> {
        let end = self.elapsed().saturating_add(duration);
        self.run(Some(end), || false)?;
        self.advance_to(end);
        Ok(())
    }

    /// Drops the core at this position, as it stands: its tasks end, its sockets close, its mail is refused. False when
    /// it was dropped before.
    ///
    /// # Panics
    /// When there never was such a core.
    pub fn kill_core(&mut self, position: usize) -> bool {
        let killed = self.cores[position].take();
        if killed.is_some() {
            lock(&self.world).record(position, TraceKind::Killed);
        }
        killed.is_some()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A handle that names the cores. Use it on this thread, inside the simulation or between two calls; other threads
    /// would bring chance in.
    pub fn handle(&self) -> RuntimeHandle {
        self.handle.clone()
    }

    /// The cores, by their position.
    pub fn cores(&self) -> Vec<CoreId> {
        self.handle.cores()
    }

    /// What makes the simulated world fail, for tasks too.
    pub fn faults(&self) -> Faults {
        Faults::new(&self.world, self.cores.len())
    }

    /// The present time on the simulated clock.
    pub fn now(&self) -> Instant {
        lock(&self.world).now()
    }

    /// Simulated time since the start.
    pub fn elapsed(&self) -> Duration {
        lock(&self.world).elapsed()
    }

    /// What has happened, in order; of a long run the last 65,536 events.
    pub fn trace(&self) -> Vec<TraceEvent> {
        lock(&self.world).trace().events()
    }

    /// A hash over all that has happened since the start.
    pub fn trace_hash(&self) -> u64 {
        lock(&self.world).trace().hash()
    }

    /// The counts of the core at this position; none when it was killed.
    ///
    /// # Panics
    /// When there never was such a core.
    pub fn stats(&self, position: usize) -> Option<CoreStats> {
        self.cores[position].as_ref().map(Core::stats)
    }

    /// Turns cores and moves the clock until `done` or idle for good. With an `end`, idle also means that nothing
    /// happens up to it.
    fn run(&mut self, end: Option<Duration>, done: impl Fn() -> bool) -> Result<Step, SimulationError> {
        for _ in 0..self.turn_limit {
            if done() {
                return Ok(Step::Turned);
            }
            match self.step() {
                Step::Turned => self.busy_turns += 1,
                Step::Idle => match self.next_event() {
                    Some(next) if end.is_none_or(|end| next <= end) => self.advance_to(next),
                    _ => return Ok(Step::Idle),
                },
            }
            if self.busy_turns == BUSY_TURNS {
                let until = self.elapsed() + BUSY_STEP;
                let latest = self.next_event().into_iter().chain(end).min();
                self.advance_to(latest.map_or(until, |latest| latest.min(until)));
            }
        }
        Err(SimulationError::Exhausted { seed: self.seed, at: self.elapsed(), turns: self.turn_limit })
    }

    /// Turns one core that has something to do.
    fn step(&mut self) -> Step {
        let doomed = lock(&self.world).take_doomed_cores();
        for position in doomed {
            self.kill_core(position);
        }
        let ready: Vec<usize> = (0..self.cores.len())
            .filter(|position| self.cores[*position].as_ref().is_some_and(|core| core.local().has_work()))
            .collect();
        if ready.is_empty() {
            return Step::Idle;
        }
        let position = ready[self.random.below(ready.len())];
        if let Some(core) = &self.cores[position] {
            let local = core.local();
            let turned = local.turn().and_then(|_| context::enter(local, || local.submit()));
            if let Err(error) = turned {
                unreachable!("a simulated driver does not fail: {error}");
            }
            let polls = local.executor().stats().polls;
            lock(&self.world).record(position, TraceKind::Turned { polls });
        }
        Step::Turned
    }

    /// When the next timer or completion is due, since the start.
    fn next_event(&self) -> Option<Duration> {
        let (start, completion) = {
            let world = lock(&self.world);
            (world.start_instant(), world.next_due())
        };
        let timers = self.cores.iter().flatten().filter_map(Core::next_deadline);
        timers.map(|at| at.saturating_duration_since(start)).chain(completion).min()
    }

    fn advance_to(&mut self, time: Duration) {
        self.busy_turns = 0;
        lock(&self.world).advance_to(time);
    }

    fn deadlock(&self) -> SimulationError {
        let parked = self.cores.iter().flatten().map(|core| core.stats().executor.live).sum();
        SimulationError::Deadlock { seed: self.seed, at: self.elapsed(), parked }
    }

    fn say_seed(&mut self) {
        if !std::mem::replace(&mut self.said, true) {
            eprintln!("simulation seed = {}", self.seed);
        }
    }

    fn take_result<T>(&mut self, handle: JoinHandle<T>) -> Result<T, SimulationError> {
        match pin!(handle).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(output)) => Ok(output),
            Poll::Ready(Err(error)) => match error.try_into_panic() {
                Ok(payload) => {
                    self.say_seed();
                    std::panic::resume_unwind(payload)
                }
                Err(_) => Err(SimulationError::CoreEnded { seed: self.seed }),
            },
            Poll::Pending => unreachable!("the task has ended"),
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // The assertion that failed may be one of the test's own, after the run.
        if std::thread::panicking() {
            self.say_seed();
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}
