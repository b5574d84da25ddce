//! The progress line: on a terminal only, and on a thread of its own.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::load::Progress;

const REFRESH: Duration = Duration::from_millis(100);

/// The line on the screen; dropping it takes it away.
pub struct Line {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the line, unless standard error goes to a file or a pipe.
pub fn start(seconds: u64, counters: Vec<Arc<Progress>>) -> Option<Line> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let (end, ended) = channel();
    let draw = move || {
        let total = Duration::from_secs(seconds);
        let bar = ProgressBar::new(total.as_millis() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
            bar.set_style(style);
        }
        let begun = Instant::now();
        let (mut before, mut then) = (0, begun);
        while ended.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
            let now = Instant::now();
            let requests: u64 = counters.iter().map(|counter| counter.get()).sum();
            let rate = (requests - before) as f64 / (now - then).as_secs_f64();
            (before, then) = (requests, now);
            bar.set_position((now - begun).min(total).as_millis() as u64);
            bar.set_message(format!("{requests} requests, {rate:.0}/s"));
        }
        bar.finish_and_clear();
    };
    // Without the line the run is as good.
    let thread = std::thread::Builder::new().name("progress".into()).spawn(draw).ok()?;
    Some(Line { end: Some(end), thread: Some(thread) })
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed, and changes no result.
            let _ = thread.join();
        }
    }
}
