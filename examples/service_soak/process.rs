//! This process: its memory, its descriptors, and the process of the clients.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use corelet::actor::channel::{self, Receiver};
use corelet::runtime::timeout;

use crate::{Args, Failure};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, counted.
pub struct Counting;

// SAFETY: hands every call on to the system's allocator unchanged; the counter is an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: likewise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE_BYTES.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: likewise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Memory in use, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    /// What is allocated.
    pub heap: i64,
    /// What the kernel has given, its own part of the connections not counted.
    pub resident: i64,
}

impl Memory {
    pub fn now() -> io::Result<Memory> {
        let status = fs::read_to_string("/proc/self/status")?;
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let resident = resident.and_then(|number| number.trim().parse::<i64>().ok()).unwrap_or(0) * 1024;
        Ok(Memory { heap: LIVE_BYTES.load(Ordering::Relaxed), resident })
    }
}

/// As many descriptors as may be had without asking anybody.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read and write the live structure.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
        }
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes every descriptor that is left, until it is dropped. With the number of those to leave.
pub fn take_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The process of the clients.
pub struct Clients {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Clients {
    pub fn start(args: &Args, address: SocketAddr) -> Result<Clients, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--clients-of", &address.to_string()])
            .args(["--connections", &args.connections.to_string(), "--dripping", &args.dripping.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, output) = (process.stdin.take(), process.stdout.take());
        let (orders, output) = orders.zip(output).ok_or("the clients have no pipes")?;
        let (answer, answers) = channel::unbounded();
        // A core must not wait for a pipe.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if answer.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Clients { process, orders, answers })
    }

    pub fn order(&mut self, order: &str) -> io::Result<()> {
        writeln!(self.orders, "{order}")?;
        self.orders.flush()
    }

    pub async fn answer(&mut self) -> Result<String, Failure> {
        Ok(timeout(crate::server::PATIENCE, self.answers.recv()).await??)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // It may have ended of its own doing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
