//! What every host of guest cores must keep, each case run by the test file of a host.
#![allow(dead_code)]

pub mod ends;
pub mod leases;
pub mod sharing;

use std::future::Future;

use corelet::runtime::host::{self, Host, HostError};
use corelet::runtime::{GuestCore, Runtime, RuntimeHandle};

pub use crate::common::PATIENCE;
use crate::common::{cores, within};

/// Begins `macro!(Host: group::case, ...)` with all cases.
macro_rules! every_case {
    ($run:ident!($host:ident)) => {
        $run! {
            $host:
            leases::a_lease_of_every_core_is_had_there,
            leases::a_host_future_and_a_task_lease_from_the_same_shard,
            leases::acquires_are_forwarded_both_ways_and_to_a_parked_core,
            leases::a_dropped_acquire_gives_up_its_place,
            leases::a_dropped_exchange_costs_its_connection,
            leases::an_acquire_of_a_host_future_ends_by_its_deadline,
            leases::closing_the_pool_ends_the_acquires_that_wait,
            sharing::timers_and_channels_of_both_sides_work_on_both_sides,
            sharing::no_wake_is_lost_between_the_sides_or_from_other_threads,
            sharing::wakes_between_the_sides_send_no_mail,
            sharing::no_side_starves_the_other,
            sharing::a_loop_of_ready_acquires_lets_the_host_go_on,
            sharing::a_spent_budget_is_not_held_against_the_host,
            sharing::an_idle_host_uses_no_cpu,
            sharing::two_cores_may_share_a_host,
            ends::a_panic_ends_its_task_only,
            ends::a_panic_of_the_main_future_is_carried_on_after_the_core_has_ended,
            ends::a_core_ends_with_work_in_flight,
            ends::futures_of_the_host_learn_of_the_core_s_end,
            ends::a_dropped_drive_ends_its_core,
            ends::a_waker_outlives_its_core_and_its_thread_s_host,
            ends::an_ended_core_is_not_in_the_way_of_the_next_with_its_id,
            ends::a_failed_ring_ends_its_core_with_the_error,
            ends::a_run_ends_as_soon_as_its_queued_work_is_done,
            ends::a_runtime_dropped_with_work_in_flight_ends_its_hosts,
        }
    };
}
pub(crate) use every_case;

/// Runs `main` inside `host`, on the core that is its guest.
pub fn run<F: Future>(host: Host, guest: GuestCore, main: F) -> Result<F::Output, HostError> {
    match host {
        Host::Tokio => host::tokio::run(guest, main),
        #[cfg(feature = "tokio-uring")]
        Host::TokioUring => host::tokio_uring::run(guest, main),
        other => panic!("{other:?} is not known here"),
    }
}

/// The host's loop, without a core.
pub fn host_loop<F: Future>(host: Host, main: F) -> F::Output {
    match host {
        Host::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, main)
        }
        #[cfg(feature = "tokio-uring")]
        Host::TokioUring => tokio_uring::start(main),
        other => panic!("{other:?} is not known here"),
    }
}

pub fn guests(count: usize) -> (RuntimeHandle, Vec<GuestCore>) {
    cores(count).build_guests().unwrap()
}

/// Runs a test inside a host on one core, with a bound on how long it may take.
pub fn on_host<F, Fut>(host: Host, test: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    within(PATIENCE, move || run(host, guests(1).1.remove(0), async { test().await }).unwrap());
}

/// So many cores, each with a thread and a host of its own.
pub fn hosts(host: Host, count: usize) -> Runtime {
    cores(count).inside(host).build().unwrap()
}

/// Runs a test as a task of the first of `count` such cores.
pub fn on_hosts<F, Fut>(host: Host, count: usize, test: F)
where
    F: FnOnce(RuntimeHandle) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    within(PATIENCE, move || {
        let runtime = hosts(host, count);
        let handle = runtime.handle();
        match runtime.block_on(move || test(handle)) {
            Ok(()) => {}
            Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap()),
        }
    });
}
