//! Lifecycle of runtimes and tasks.
#![allow(missing_docs)]

use corelet::runtime::{Cores, Runtime, sleep, spawn, yield_now};
use std::time::{Duration, Instant};

#[test]
fn run_gives_the_result_of_every_core_in_order() {
    let runtime = Runtime::builder().cores(Cores::Count(2)).build().unwrap();
    let cores = runtime.cores();
    let results = runtime.run(|| async { corelet::runtime::current_core().unwrap() }).unwrap();
    assert_eq!(results, cores);
}

#[test]
fn a_sleep_never_ends_early() {
    let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
    let slept = runtime
        .block_on(|| async {
            let begun = Instant::now();
            sleep(Duration::from_millis(20)).await;
            begun.elapsed()
        })
        .unwrap();
    assert!(slept >= Duration::from_millis(20));
}

#[test]
fn a_panic_ends_its_own_task_only() {
    let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
    runtime
        .block_on(|| async {
            let error = spawn(async { panic!("on purpose") }).await.unwrap_err();
            assert!(error.is_panic() && error.to_string().contains("on purpose"));
            yield_now().await;
        })
        .unwrap();
}

#[test]
fn a_task_on_another_core_is_joined_from_here() {
    let runtime = Runtime::builder().cores(Cores::Count(2)).build().unwrap();
    let handle = runtime.handle();
    let far = runtime.cores()[1];
    let answer = runtime
        .block_on(move || async move {
            handle
                .spawn_on(far, || async { corelet::runtime::current_core().unwrap() })
                .unwrap()
                .await
                .unwrap()
        })
        .unwrap();
    assert_eq!(answer, far);
}
