//! What was counted in a scenario, by name.

use corelet::runtime::core_stats;

use crate::common::alloc;

/// What a number in the results counts. Each has the name of the thing itself, never of what it is taken to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    ApplicationsPrepared,
    CapacityWaits,
    FactoryCalls,
    FramesQueued,
    FramesSent,
    LiveTasks,
    MiddlewareTransformations,
    PushesRefused,
    SchedulerSpawns,
    TasksSpawned,
}

impl Counter {
    pub const ALL: [Counter; 10] = [
        Counter::ApplicationsPrepared,
        Counter::CapacityWaits,
        Counter::FactoryCalls,
        Counter::FramesQueued,
        Counter::FramesSent,
        Counter::LiveTasks,
        Counter::MiddlewareTransformations,
        Counter::PushesRefused,
        Counter::SchedulerSpawns,
        Counter::TasksSpawned,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Counter::ApplicationsPrepared => "applications_prepared",
            Counter::CapacityWaits => "capacity_waits",
            Counter::FactoryCalls => "factory_calls",
            Counter::FramesQueued => "frames_queued",
            Counter::FramesSent => "frames_sent",
            Counter::LiveTasks => "live_tasks",
            Counter::MiddlewareTransformations => "middleware_transformations",
            Counter::PushesRefused => "pushes_refused",
            Counter::SchedulerSpawns => "scheduler_spawns",
            Counter::TasksSpawned => "tasks_spawned",
        }
    }

    /// What it counts, and where the number is read.
    pub fn meaning(self) -> &'static str {
        match self {
            Counter::ApplicationsPrepared => {
                "applications put together, by `corelet::service::app::preparations`"
            }
            Counter::CapacityWaits => {
                "acquires that were admitted and not granted at once, by the pool's own count"
            }
            Counter::FactoryCalls => "calls of the function that makes the application, counted inside it",
            Counter::FramesQueued => "frames put into push queues, or requests put before the connection",
            Counter::FramesSent => "frames that the connection's transport was given to send",
            Counter::LiveTasks => "tasks that have not ended, by the core's statistics, beyond those before",
            Counter::MiddlewareTransformations => {
                "times that a middleware was put around a route, by `corelet::service::app::preparations`"
            }
            Counter::PushesRefused => "pushes that gave their frame back because the queue was full",
            Counter::SchedulerSpawns => "scheduler tasks ever started, by the pool's own count",
            Counter::TasksSpawned => "tasks spawned on the core, by its statistics",
        }
    }
}

/// What so many operations came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub operations: u64,
    /// On the thread of the core.
    pub allocations: u64,
    pub counted: Vec<(Counter, u64)>,
}

impl Counts {
    pub fn new(operations: u64, allocations: u64) -> Counts {
        Counts { operations, allocations, counted: Vec::new() }
    }

    pub fn with(mut self, counter: Counter, value: u64) -> Counts {
        self.counted.push((counter, value));
        self
    }

    /// What `counter` came to; the scenario must have counted it.
    #[track_caller]
    pub fn of(&self, counter: Counter) -> u64 {
        match self.counted.iter().find(|(counted, _)| *counted == counter) {
            Some((_, value)) => *value,
            None => panic!("the scenario does not count {}", counter.name()),
        }
    }

    /// Holds it to be exactly so many.
    #[track_caller]
    pub fn expect(&self, counter: Counter, expected: u64) -> &Counts {
        let (name, operations) = (counter.name(), self.operations);
        assert_eq!(self.of(counter), expected, "{name} in {operations} operations");
        self
    }

    /// Holds the allocations to be exactly so many.
    #[track_caller]
    pub fn expect_allocations(&self, expected: u64) -> &Counts {
        assert_eq!(self.allocations, expected, "allocations in {} operations", self.operations);
        self
    }
}

/// The state of the thread's counters at some time. Taken on a core.
#[derive(Clone, Copy)]
pub struct Mark {
    allocations: u64,
    spawned: u64,
    live: usize,
}

impl Mark {
    pub fn now() -> Mark {
        let executor = core_stats().expect("a mark is taken on a core").executor;
        Mark { allocations: alloc::on_this_thread(), spawned: executor.spawned, live: executor.live }
    }

    /// What has come since, in so many operations.
    pub fn counts(self, operations: u64) -> Counts {
        let now = Mark::now();
        Counts::new(operations, now.allocations - self.allocations)
            .with(Counter::TasksSpawned, now.spawned - self.spawned)
    }

    /// Tasks that there are now, beyond those that there were.
    pub fn live_since(self) -> u64 {
        Mark::now().live.saturating_sub(self.live) as u64
    }
}
