//! What there is to know of this machine and this process. Only reads and tries; judging is for
//! [`checks`](super::checks).

use std::fs;
use std::path::{Path, PathBuf};

use corelet::runtime::{Cores, Features, Runtime, StartError};

/// The facts. What could not be read is none.
pub struct Machine {
    pub architecture: &'static str,
    /// As the kernel calls itself, such as `6.1.0-18-amd64`.
    pub kernel: Option<String>,
    /// `kernel.io_uring_disabled`.
    pub io_uring_disabled: Option<u32>,
    /// Whether a seccomp filter watches this process.
    pub filtered: bool,
    pub locked_memory: Option<Limit>,
    pub descriptors: Option<Limit>,
    /// How many cores the process may run on, by its affinity mask, and how many are there.
    pub allowed_cores: Option<usize>,
    pub online_cores: Option<usize>,
    /// How many cores' time the control group grants, if it limits that.
    pub quota: Option<f64>,
    /// A ring, made and closed again.
    pub ring: Result<Features, StartError>,
    /// A runtime on every core, started and ended again; how many cores it had.
    pub start: Result<usize, StartError>,
}

/// A limit of the process. None is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

impl Machine {
    pub fn look() -> Machine {
        let limits = read("/proc/self/limits").unwrap_or_default();
        let status = read("/proc/self/status").unwrap_or_default();
        Machine {
            architecture: std::env::consts::ARCH,
            kernel: read("/proc/sys/kernel/osrelease"),
            io_uring_disabled: read("/proc/sys/kernel/io_uring_disabled").and_then(|text| text.parse().ok()),
            filtered: field(&status, "Seccomp:").is_some_and(|mode| mode == "2"),
            locked_memory: limit(&limits, "Max locked memory"),
            descriptors: limit(&limits, "Max open files"),
            allowed_cores: field(&status, "Cpus_allowed_list:").and_then(count_in_list),
            online_cores: read("/sys/devices/system/cpu/online").as_deref().and_then(count_in_list),
            quota: quota(),
            ring: make_ring(),
            start: Runtime::builder().build().map(|runtime| runtime.cores().len()),
        }
    }
}

fn make_ring() -> Result<Features, StartError> {
    let (_handle, guests) = Runtime::builder().cores(Cores::Count(1)).pinned(false).build_guests()?;
    let mut features = Features::default();
    for guest in guests {
        features = guest.start()?.features();
    }
    Ok(features)
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// The rest of the line that begins with `name`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A line of `/proc/self/limits`: soft limit, hard limit, unit.
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let mut columns = field(limits, name)?.split_whitespace();
    let mut next = || match columns.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

/// How many numbers a list such as `0-3,8` names.
fn count_in_list(list: &str) -> Option<usize> {
    let mut count = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count += (last + 1).checked_sub(first)?;
    }
    Some(count)
}

/// The least that any of the control groups around the process grants.
fn quota() -> Option<f64> {
    let group =
        read("/proc/self/cgroup")?.lines().find_map(|line| line.strip_prefix("0::/").map(PathBuf::from))?;
    group
        .ancestors()
        .filter_map(|group| cores_granted(&read(Path::new("/sys/fs/cgroup").join(group).join("cpu.max"))?))
        .reduce(f64::min)
}

/// `cpu.max` has the time granted in each period, and the period.
fn cores_granted(text: &str) -> Option<f64> {
    let (granted, period) = text.split_once(' ')?;
    Some(granted.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 1048576              files     \n\
                    Max locked memory         unlimited            unlimited            bytes     ";
        let descriptors = Limit { soft: Some(1024), hard: Some(1_048_576) };
        assert_eq!(limit(text, "Max open files"), Some(descriptors));
        assert_eq!(limit(text, "Max locked memory"), Some(Limit { soft: None, hard: None }));
        assert_eq!(limit(text, "Max of something else"), None);
        assert_eq!(limit("Max open files  many", "Max open files"), None);
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(count_in_list("0"), Some(1));
        assert_eq!(count_in_list("0-3,8,10-11"), Some(7));
        assert_eq!(count_in_list("3-1"), None);
        assert_eq!(count_in_list(""), None);
    }

    #[test]
    fn a_quota_is_a_number_of_cores_and_none_is_none() {
        assert_eq!(cores_granted("150000 100000"), Some(1.5));
        assert_eq!(cores_granted("max 100000"), None);
    }
}
