//! Judges the facts: what is well, what will be slower or run out, and what keeps corelet from starting; and the remedies.

use corelet::runtime::StartError;

use super::machine::{Limit, Machine};

/// Fewer descriptors than this are soon used up by connections.
const ENOUGH_DESCRIPTORS: u64 = 4096;
/// The oldest kernel that has all that corelet needs.
const OLDEST_KERNEL: (u32, u32) = (5, 19);

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Corelet starts, and something will be slower than it could be, or run out.
    Warn,
    /// Corelet does not start.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, serde::Serialize)]
pub struct Check {
    pub name: &'static str,
    pub status: Status,
    pub found: String,
    /// What to do; there is one whenever the status is not ok.
    pub remedy: Option<String>,
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, found: found.into(), remedy: None }
}

fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, status: Status::Warn, found: found.into(), remedy: Some(remedy.into()) }
}

fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, status: Status::Fail, found: found.into(), remedy: Some(remedy.into()) }
}

/// All checks, in the order in which one would go about them.
pub fn examine(machine: &Machine) -> Vec<Check> {
    vec![
        architecture(machine),
        kernel(machine),
        io_uring(machine),
        ring(machine),
        locked_memory(machine),
        descriptors(machine),
        cores(machine),
        start(machine),
    ]
}

fn architecture(machine: &Machine) -> Check {
    let name = "architecture";
    match machine.architecture {
        known @ ("x86_64" | "aarch64") => ok(name, known),
        other => fail(name, other, "corelet runs on x86-64 and aarch64"),
    }
}

fn kernel(machine: &Machine) -> Check {
    let name = "kernel";
    let Some(release) = &machine.kernel else {
        return warn(name, "its release cannot be read", "mount /proc; corelet needs Linux 5.19 or newer");
    };
    match version(release) {
        // Releases lie, backports exist: whether the operations are there is for the ring to say.
        Some(version) if version < OLDEST_KERNEL => warn(
            name,
            format!("Linux {release}"),
            "corelet needs Linux 5.19 or newer, unless what it needs was ported back",
        ),
        _ => ok(name, format!("Linux {release}")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn io_uring(machine: &Machine) -> Check {
    let name = "io_uring";
    let switch = match machine.io_uring_disabled {
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "this kernel has no switch for it".into(),
    };
    match &machine.ring {
        Err(StartError::Unsupported) => fail(
            name,
            "this kernel has none, or a seccomp filter says so",
            "use Linux 5.19 or newer with CONFIG_IO_URING; in a container, a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register",
        ),
        Err(StartError::Denied { .. }) => {
            let remedy = match machine.io_uring_disabled {
                Some(2) => "sysctl kernel.io_uring_disabled=0 (and in /etc/sysctl.d, to keep it)".into(),
                Some(1) => "sysctl kernel.io_uring_disabled=0, or run as a member of the group kernel.io_uring_group".into(),
                _ if machine.filtered => {
                    "a seccomp filter is active: allow io_uring_setup, io_uring_enter and io_uring_register in the container's profile \
                     (docker: --security-opt seccomp=PROFILE; systemd: SystemCallFilter=)"
                        .to_owned()
                }
                _ => "look at the security module (SELinux: io_uring permissions; AppArmor: the profile)".into(),
            };
            fail(name, format!("not permitted (EPERM); {switch}"), remedy)
        }
        Err(StartError::MissingOperation { what }) => {
            fail(name, format!("this kernel's has no {what}"), "use Linux 5.19 or newer")
        }
        _ => ok(name, format!("permitted; {switch}")),
    }
}

fn ring(machine: &Machine) -> Check {
    let name = "ring";
    let features = match &machine.ring {
        Ok(features) => features,
        Err(StartError::Ring(cause)) => {
            return fail(name, format!("cannot be made: {cause}"), "report this, with the kernel's release");
        }
        Err(_) => return fail(name, "cannot be made", "see the other checks"),
    };
    let wanted = [
        (features.single_issuer, "single issuer"),
        (features.defer_taskrun, "deferred task run"),
        (features.registered_ring, "registered ring"),
        (features.provided_buffers, "provided buffers"),
        (features.wait_timeout, "time-outs of waits"),
    ];
    let list = |has: bool| {
        let names: Vec<&str> =
            wanted.iter().filter(|(found, _)| *found == has).map(|(_, what)| *what).collect();
        names.join(", ")
    };
    if wanted.iter().all(|(found, _)| *found) {
        ok(name, format!("has {}", list(true)))
    } else {
        warn(name, format!("lacks {}", list(false)), "works, but slower: Linux 6.1 has all of them")
    }
}

fn locked_memory(machine: &Machine) -> Check {
    let name = "locked memory";
    let found = match machine.locked_memory {
        Some(Limit { soft: Some(soft), .. }) => format!("limited to {} KiB", soft / 1024),
        Some(_) => "unlimited".into(),
        None => "its limit cannot be read".into(),
    };
    let runs_out = |outcome: Option<&StartError>| matches!(outcome, Some(StartError::MemoryLock { .. }));
    if runs_out(machine.ring.as_ref().err()) || runs_out(machine.start.as_ref().err()) {
        let remedy = "raise it: `ulimit -l`, LimitMEMLOCK= of systemd, or --ulimit memlock= of a container; or smaller rings";
        return fail(name, format!("{found}, which is too little for the rings"), remedy);
    }
    ok(name, found)
}

fn descriptors(machine: &Machine) -> Check {
    let name = "descriptors";
    let remedy = |hard: Option<u64>| {
        let most = hard.map_or("any number".into(), |hard| format!("up to {hard}"));
        format!(
            "raise it: `ulimit -n` ({most} here), LimitNOFILE= of systemd, or --ulimit nofile= of a container"
        )
    };
    let runs_out = |outcome: Option<&StartError>| matches!(outcome, Some(StartError::Descriptors { .. }));
    let fails = runs_out(machine.ring.as_ref().err()) || runs_out(machine.start.as_ref().err());
    match machine.descriptors {
        Some(Limit { soft, hard }) => {
            let found = soft.map_or("unlimited".into(), |soft| format!("at most {soft} at once"));
            if fails {
                fail(name, format!("{found}, which is too few to start"), remedy(hard))
            } else if soft.is_some_and(|soft| soft < ENOUGH_DESCRIPTORS) {
                warn(name, format!("{found}; every connection takes one"), remedy(hard))
            } else {
                ok(name, found)
            }
        }
        None if fails => fail(name, "too few to start", remedy(None)),
        None => ok(name, "their limit cannot be read"),
    }
}

fn cores(machine: &Machine) -> Check {
    let name = "cores";
    let found = match (machine.allowed_cores, machine.online_cores) {
        (Some(allowed), Some(online)) => format!("{allowed} of {online} may be used"),
        (Some(allowed), None) => format!("{allowed} may be used"),
        _ => "the affinity mask cannot be read".into(),
    };
    match &machine.start {
        Err(StartError::Pin { core }) => {
            let remedy = "look at the affinity mask (`taskset -p`), the cpuset of the control group, and filters of sched_setaffinity; or turn pinning off";
            return fail(name, format!("{found}, and no thread can be pinned to {core}"), remedy);
        }
        Err(StartError::NoCores) => {
            return fail(name, "none can be used", "look at the affinity mask: `taskset -p`");
        }
        _ => {}
    }
    match (machine.quota, machine.allowed_cores) {
        // A pinned core that is stopped for the rest of each period makes everything on it late.
        (Some(quota), Some(allowed)) if quota < allowed as f64 => warn(
            name,
            format!("{found}, with the time of {quota:.1}"),
            "the control group's quota (cpu.max) stops cores for parts of each period: raise it, or use fewer cores",
        ),
        _ => ok(name, found),
    }
}

fn start(machine: &Machine) -> Check {
    let name = "start";
    match &machine.start {
        Ok(1) => ok(name, "a runtime of one core started and ended"),
        Ok(cores) => ok(name, format!("a runtime of {cores} cores started and ended")),
        Err(StartError::Thread(cause)) => fail(
            name,
            format!("a thread cannot be started: {cause}"),
            "raise the limit of processes: `ulimit -u`, TasksMax= of systemd, or pids.max of the control group",
        ),
        Err(error) => fail(name, error.to_string(), "see the other checks"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use corelet::runtime::Features;

    use super::*;

    /// A machine with nothing to complain of. `Features` can only be changed, not made.
    fn sound() -> Machine {
        let mut features = Features::default();
        features.single_issuer = true;
        features.defer_taskrun = true;
        features.registered_ring = true;
        features.provided_buffers = true;
        features.wait_timeout = true;
        Machine {
            architecture: "x86_64",
            kernel: Some("6.1.0-18-amd64".into()),
            io_uring_disabled: Some(0),
            filtered: false,
            locked_memory: Some(Limit { soft: Some(8 << 20), hard: None }),
            descriptors: Some(Limit { soft: Some(65_536), hard: None }),
            allowed_cores: Some(4),
            online_cores: Some(4),
            quota: None,
            ring: Ok(features),
            start: Ok(4),
        }
    }

    /// The statuses that are not ok, by name, when the machine is changed like this.
    fn complaints(change: impl FnOnce(&mut Machine)) -> Vec<(&'static str, Status, String)> {
        let mut machine = sound();
        change(&mut machine);
        let checks = examine(&machine);
        for check in &checks {
            assert_eq!(check.remedy.is_none(), check.status == Status::Ok, "{check:?}");
        }
        let complaints = checks.into_iter().filter(|check| check.status != Status::Ok);
        complaints.map(|check| (check.name, check.status, check.remedy.unwrap())).collect()
    }

    fn only(name: &str, status: Status, remedy: &str, change: impl FnOnce(&mut Machine)) {
        let complaints = complaints(change);
        assert!(
            matches!(&complaints[..], [(found, is, text)] if *found == name && *is == status && text.contains(remedy)),
            "{complaints:?}"
        );
    }

    #[test]
    fn a_sound_machine_gives_no_cause_for_complaint() {
        assert!(complaints(|_| {}).is_empty());
    }

    #[test]
    fn what_makes_corelet_slower_or_runs_out_is_a_warning_with_its_remedy() {
        use Status::Warn;
        only("kernel", Warn, "5.19", |machine| machine.kernel = Some("5.15.0".into()));
        only("kernel", Warn, "5.19", |machine| machine.kernel = None);
        only("ring", Warn, "6.1", |machine| machine.ring.as_mut().unwrap().defer_taskrun = false);
        only("cores", Warn, "cpu.max", |machine| machine.quota = Some(1.5));
        only("descriptors", Warn, "up to 9999", |machine| {
            machine.descriptors = Some(Limit { soft: Some(1024), hard: Some(9999) });
        });
    }

    #[test]
    fn what_keeps_corelet_from_starting_fails_where_the_cause_is() {
        type Error = fn() -> StartError;
        type Case = (&'static str, &'static str, Error, fn(&mut Machine));
        let denied: Error = || StartError::Denied { sysctl: Some(2) };
        let descriptors: Error = || StartError::Descriptors { limit: Some(8) };
        let memory: Error = || StartError::MemoryLock { limit: Some(65_536) };
        let cases: [Case; 7] = [
            ("io_uring", "CONFIG_IO_URING", || StartError::Unsupported, |_| {}),
            ("io_uring", "sysctl", denied, |machine| machine.io_uring_disabled = Some(2)),
            ("io_uring", "io_uring_group", denied, |machine| machine.io_uring_disabled = Some(1)),
            ("io_uring", "seccomp", denied, |machine| machine.filtered = true),
            ("descriptors", "ulimit -n", descriptors, |_| {}),
            ("locked memory", "LimitMEMLOCK", memory, |_| {}),
            ("ring", "report", || StartError::Ring(io::ErrorKind::Other.into()), |_| {}),
        ];
        for (name, remedy, error, change) in cases {
            let complaints = complaints(|machine| {
                change(machine);
                machine.ring = Err(error());
                machine.start = Err(error());
            });
            // What follows from the cause is told, too, and points there.
            let (cause, rest): (Vec<_>, Vec<_>) = complaints.iter().partition(|(found, ..)| *found == name);
            assert!(
                matches!(&cause[..], [(_, Status::Fail, text)] if text.contains(remedy)),
                "{complaints:?}"
            );
            assert!(rest.iter().all(|(_, _, text)| text == "see the other checks"), "{complaints:?}");
        }
    }

    #[test]
    fn what_only_the_whole_runtime_meets_fails_there() {
        use Status::Fail;
        let thread = || StartError::Thread(io::ErrorKind::WouldBlock.into());
        only("start", Fail, "ulimit -u", |machine| machine.start = Err(thread()));
        let pinned = complaints(|machine| machine.start = Err(StartError::Pin { core: 3 }));
        assert!(matches!(pinned[0], ("cores", Fail, _)) && pinned[1].0 == "start", "{pinned:?}");
        only("architecture", Fail, "aarch64", |machine| machine.architecture = "riscv64");
    }
}
