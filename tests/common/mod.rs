//! What the black-box tests share: bounds on waiting, a bare executor, and looks at the process from outside.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::future::Future;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use corelet::runtime::{Cores, Runtime, RuntimeBuilder};

/// Long enough for anything that ends at all, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `body` on a thread of its own; a body that does not end in time fails the test instead of hanging it.
pub fn within<R: Send + 'static>(limit: Duration, body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        let _ = done.send(());
        result
    });
    if let Err(RecvTimeoutError::Timeout) = outcome.recv_timeout(limit) {
        panic!("still not over after {limit:?}");
    }
    match thread.join() {
        Ok(result) => result,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Looks at `condition` again and again until it holds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Settings of so many cores, on however many the machine has.
pub fn cores(count: usize) -> RuntimeBuilder {
    Runtime::builder().cores(Cores::Count(count)).pinned(false)
}

/// Runs a task on a core of its own, and bounds it.
pub fn on_core<F, Fut>(root: F) -> Fut::Output
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    within(PATIENCE, || match cores(1).build().unwrap().block_on(root) {
        Ok(output) => output,
        Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap()),
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on a thread that is no core's.
pub fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

/// The descriptors that this process has open.
pub fn open_descriptors() -> usize {
    // The directory that is being read is one of them.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// The live threads of this process whose name starts with `prefix` (the kernel keeps 15 bytes of a name).
pub fn threads_named(prefix: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// Runs `test`, which is called `name`, in a process of its own.
pub fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "CORELET_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    println!("{output}");
    assert!(child.status.success(), "failed in its own process: {}\n{output}", child.status);
    assert!(output.contains("1 passed"), "no test is called {name}\n{output}");
}

/// The CPU time that this process has used.
#[allow(unsafe_code)]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
