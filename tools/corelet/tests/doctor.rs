//! The real command, as its users run it, on this machine and with its limits lowered.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `corelet doctor` after `prepare` in its process.
fn doctor(args: &[&str], prepare: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelet"));
    command.arg("doctor").args(args);
    // SAFETY: between fork and exec the closures of these tests only make system calls and touch their own stack.
    unsafe { command.pre_exec(prepare) };
    command.output().unwrap()
}

fn report(prepare: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) -> (i32, Value) {
    let output = doctor(&["--json"], prepare);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()
}

fn checked(done: libc::c_int) -> std::io::Result<()> {
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: reads the structure it is given.
    checked(unsafe { libc::setrlimit(resource, &limit) })
}

/// From now on `syscall` fails with `errno`.
fn forbid(syscall: libc::c_long, errno: i32) -> std::io::Result<()> {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // Load the number of the call; if it is the one, refuse it, otherwise allow it.
        instruction((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        instruction((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, syscall as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions are alive for the length of the calls, which only restrict this thread.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        checked(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    }
}

#[test]
fn a_machine_that_runs_corelet_is_found_well() {
    let (status, report) = report(|| Ok(()));
    assert_eq!((status, &report["well"], &report["format"]), (0, &Value::Bool(true), &Value::from(1)));
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    let all =
        ["architecture", "kernel", "io_uring", "ring", "locked memory", "descriptors", "cores", "start"];
    assert_eq!(names, all);

    let output = doctor(&[], || Ok(()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.lines().last().unwrap().starts_with("corelet starts here"),
        "{text}"
    );
}

#[test]
fn too_few_descriptors_are_told_with_limit_and_remedy() {
    // Room for the standard streams, the file being read and little else.
    let (status, report) = report(|| set_limit(libc::RLIMIT_NOFILE, 4));
    assert_eq!((status, &report["well"]), (1, &Value::Bool(false)));
    let check = check(&report, "descriptors");
    assert_eq!(
        (&check["status"], &check["found"]),
        (&"fail".into(), &"at most 4 at once, which is too few to start".into())
    );
    assert!(check["remedy"].as_str().unwrap().contains("LimitNOFILE="), "{check}");
}

#[test]
fn descriptors_that_soon_run_out_are_a_warning() {
    let (status, report) = report(|| set_limit(libc::RLIMIT_NOFILE, 1024));
    let check = check(&report, "descriptors");
    assert_eq!((status, &check["status"]), (0, &"warn".into()));
}

#[test]
fn rings_that_the_limit_on_locked_memory_refuses_are_told_with_limit_and_remedy() {
    let (status, report) = report(|| {
        set_limit(libc::RLIMIT_MEMLOCK, 65_536)?;
        // As kernels answer that count rings against the limit.
        forbid(libc::SYS_io_uring_setup, libc::ENOMEM)
    });
    let check = check(&report, "locked memory");
    assert_eq!((status, &check["status"]), (1, &"fail".into()));
    assert!(check["found"].as_str().unwrap().contains("limited to 64 KiB"), "{check}");
    assert!(check["remedy"].as_str().unwrap().contains("LimitMEMLOCK="), "{check}");
}

#[test]
fn a_forbidden_io_uring_is_told_with_who_forbids_it() {
    let (status, report) = report(|| forbid(libc::SYS_io_uring_setup, libc::EPERM));
    let check = check(&report, "io_uring");
    assert_eq!((status, &check["status"]), (1, &"fail".into()));
    assert!(check["remedy"].as_str().unwrap().contains("seccomp"), "{check}");

    let output = doctor(&[], || forbid(libc::SYS_io_uring_setup, libc::EPERM));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAIL  io_uring") && text.ends_with("corelet does not start here\n"), "{text}");
}

#[test]
fn a_kernel_without_io_uring_is_told_with_what_is_needed() {
    let (status, report) = report(|| forbid(libc::SYS_io_uring_setup, libc::ENOSYS));
    let check = check(&report, "io_uring");
    assert_eq!((status, &check["status"]), (1, &"fail".into()));
    assert!(check["remedy"].as_str().unwrap().contains("CONFIG_IO_URING"), "{check}");
}

#[test]
fn a_wrong_command_line_is_neither_well_nor_unwell() {
    assert_eq!(doctor(&["--no-such-flag"], || Ok(())).status.code(), Some(2));
}
