//! Why a runtime did not start, and what to do about it.

use std::io;

/// A runtime, or one of its cores, could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No core was asked for.
    #[error("no cores were chosen; choose at least one")]
    NoCores,
    /// A core was asked for that this machine, or this process' affinity mask, does not have.
    #[error(
        "core {asked} does not exist or is not allowed to this process; available: {available:?} \
         (see `nproc` and the affinity mask set by `taskset` or the container)"
    )]
    UnknownCore {
        /// The number asked for.
        asked: usize,
        /// The numbers that could have been.
        available: Vec<usize>,
    },
    /// More cores were asked for than there are.
    #[error("{asked} cores were asked for, but only {available} are available to this process")]
    TooFewCores {
        /// How many were asked for.
        asked: usize,
        /// How many there are.
        available: usize,
    },
    /// The process has as many live cores, over all runtimes, as it can tell apart.
    #[error("this process already runs {limit} cores, the most that can be told apart; end a runtime first")]
    TooManyCores {
        /// The limit.
        limit: usize,
    },
    /// A thread could not be pinned.
    #[error("the thread of core {core} could not be pinned to it; check the affinity mask of the process")]
    Pin {
        /// The number of the core.
        core: usize,
    },
    /// A ring or buffer size is out of range.
    #[error("{what} must be {expected}, but was {got}")]
    InvalidSize {
        /// Which setting.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        got: usize,
    },
    /// This kernel has no io_uring.
    #[error(
        "this kernel has no io_uring (ENOSYS); corelet needs Linux 5.19 or newer, built with CONFIG_IO_URING"
    )]
    Unsupported,
    /// io_uring is switched off for this process.
    #[error(
        "io_uring is not permitted here (EPERM): {}; allow it by `sysctl kernel.io_uring_disabled=0`, or in the \
         seccomp profile of the container", describe_sysctl(.sysctl)
    )]
    Denied {
        /// The value of `kernel.io_uring_disabled`, where it can be read.
        sysctl: Option<u32>,
    },
    /// The limit on locked memory is too low.
    #[error(
        "the limit on locked memory ({}) is too low for the rings and buffers; raise it by `ulimit -l`, \
         LimitMEMLOCK= or the container's ulimits, or choose smaller rings", describe_limit(.limit)
    )]
    MemoryLock {
        /// The limit in bytes; none when it is unlimited and memory itself was short.
        limit: Option<u64>,
    },
    /// No descriptor is free.
    #[error(
        "out of descriptors (limit {}); raise it by `ulimit -n` or LimitNOFILE=, or close some",
        describe_limit(.limit)
    )]
    Descriptors {
        /// The limit; none when it is unlimited and the whole system is short.
        limit: Option<u64>,
    },
    /// The kernel's io_uring lacks something that corelet cannot do without.
    #[error("this kernel's io_uring has no {what}; corelet needs Linux 5.19 or newer")]
    MissingOperation {
        /// What is missing.
        what: &'static str,
    },
    /// The ring could not be made, for another reason.
    #[error("the ring could not be set up")]
    Ring(#[source] io::Error),
    /// The host that the cores were to run inside could not be started.
    #[error("the host of a core could not be started")]
    Host(#[source] io::Error),
    /// A thread could not be started.
    #[error("a core's thread could not be started")]
    Thread(#[source] io::Error),
}

impl StartError {
    /// Reads the cause off what ring set-up answered.
    pub(crate) fn from_ring(error: io::Error) -> StartError {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => StartError::Unsupported,
            Some(libc::EPERM | libc::EACCES) => StartError::Denied { sysctl: read_sysctl() },
            Some(libc::ENOMEM) => StartError::MemoryLock { limit: limit_of(libc::RLIMIT_MEMLOCK) },
            Some(libc::EMFILE | libc::ENFILE) => {
                StartError::Descriptors { limit: limit_of(libc::RLIMIT_NOFILE) }
            }
            _ => StartError::Ring(error),
        }
    }
}

fn read_sysctl() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

#[allow(unsafe_code)]
fn limit_of(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure it is given.
    let known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn describe_sysctl(sysctl: &Option<u32>) -> String {
    match sysctl {
        Some(0) => {
            "kernel.io_uring_disabled is 0, so a seccomp filter or a security module forbids it".into()
        }
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "kernel.io_uring_disabled cannot be read".into(),
    }
}

fn describe_limit(limit: &Option<u64>) -> String {
    limit.map_or_else(|| "unlimited here, so the system itself is short".into(), |limit| limit.to_string())
}
