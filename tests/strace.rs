//! The gateway example under `strace`: its cores do all their I/O, and all their waiting, by their rings.
#![cfg(all(feature = "pool", feature = "service"))]
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Waiting for readiness by another way than a ring. Some exist on some architectures only, which the question mark
/// allows for; and the fewer calls are traced, the less `strace` slows the run.
const WAITS: &str = "?epoll_create,epoll_create1,?epoll_wait,epoll_pwait,?epoll_pwait2,epoll_ctl,?poll,ppoll,?select,\
                     pselect6";
/// Moving bytes, or connections, by another way than a ring.
const TRANSFERS: &str = "read,readv,pread64,write,writev,pwrite64,recvfrom,recvmsg,?recvmmsg,sendto,sendmsg,?sendmmsg,\
                         connect,accept,accept4";
const RINGS: &str = "io_uring_setup,io_uring_enter,?eventfd,eventfd2";

/// One system call of the trace.
#[derive(Debug)]
struct Call<'a> {
    thread: u32,
    name: &'a str,
    /// The arguments as `strace` prints them, descriptors with what is behind them, and what follows: the result, or
    /// that another thread's line interrupts.
    rest: &'a str,
}

impl Call<'_> {
    /// The beginning of a call; none for the rest of an interrupted one, a signal or an exit.
    fn parse(line: &str) -> Option<Call<'_>> {
        let (thread, call) = line.trim_start().split_once(' ')?;
        let (name, rest) = call.trim_start().split_once('(')?;
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        is_name.then_some(Call { thread: thread.parse().ok()?, name, rest })
    }

    fn is_one_of(&self, names: &str) -> bool {
        names.split(',').any(|name| name.trim_start_matches('?') == self.name)
    }

    /// On a doorbell or a standard stream, where a core need not go by its ring.
    fn is_on_doorbell_or_terminal(&self) -> bool {
        let descriptor = self.rest.split(',').next().unwrap_or_default();
        let (number, behind) = descriptor.split_once('<').unwrap_or((descriptor, ""));
        behind.contains("eventfd") || matches!(number, "0" | "1" | "2")
    }
}

/// How many calls of this name gave a descriptor.
fn successes(trace: &str, name: &str) -> usize {
    let begun = format!(" {name}(");
    let resumed = format!("<... {name} resumed>");
    trace
        .lines()
        .filter(|line| line.contains(&begun) || line.contains(&resumed))
        .filter_map(|line| line.rsplit_once(" = "))
        .filter(|(_, result)| result.starts_with(|digit: char| digit.is_ascii_digit()))
        .count()
}

/// The example's binary, built now: `cargo test --test strace` alone builds no examples.
fn gateway() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let profile = this.parent().and_then(Path::parent).expect("tests lie in <target>/<profile>/deps");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let name = profile.file_name().and_then(|name| name.to_str()).unwrap();
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--example", "gateway"])
            .args(["--profile", if name == "debug" { "dev" } else { name }])
            .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
            .arg("--target-dir")
            .arg(profile.parent().expect("a profile lies in a target directory"))
            .status()
            .unwrap();
        assert!(status.success(), "the example does not build");
    }
    profile.join("examples/gateway")
}

/// Whether `strace` is there and may trace.
fn can_trace() -> bool {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("skipped: strace fails: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            println!("skipped: strace does not start: {error}");
            false
        }
    }
}

#[test]
fn the_cores_do_all_their_io_and_all_their_waiting_by_their_rings() {
    if !can_trace() {
        return;
    }
    let cores = std::thread::available_parallelism().unwrap().get().min(2);
    let file = std::env::temp_dir().join(format!("corelet-strace-{}", std::process::id()));
    let output = Command::new("strace")
        .args(["-f", "-y", "-s", "8", "-o"])
        .arg(&file)
        .args(["-e", &format!("trace={WAITS},{TRANSFERS},{RINGS}")])
        .arg(gateway())
        .args(["--seconds", "1", "--clients", "8", "--cores", &cores.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let trace = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let trace = String::from_utf8_lossy(&trace);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    println!("{stdout}");
    assert!(stdout.lines().last().unwrap().starts_with("requests="), "{stdout}");

    let calls: Vec<Call<'_>> = trace.lines().filter_map(Call::parse).collect();
    let made = |names: &str| calls.iter().filter(|call| call.is_one_of(names)).count();
    // The embedded upstream has a core of its own.
    let rings = cores + 1;
    assert_eq!(successes(&trace, "io_uring_setup"), rings, "rings");
    assert_eq!(
        successes(&trace, "eventfd2"),
        rings,
        "each core has one doorbell, and nothing else is an eventfd"
    );
    assert_eq!(made("eventfd,eventfd2"), rings, "eventfds");

    // A core is the thread that makes a ring.
    let of_cores: HashSet<u32> =
        calls.iter().filter(|call| call.name == "io_uring_setup").map(|call| call.thread).collect();
    assert_eq!(of_cores.len(), rings, "one thread each");
    for thread in &of_cores {
        let entries =
            calls.iter().filter(|call| call.thread == *thread && call.name == "io_uring_enter").count();
        println!("core on thread {thread}: {entries} kernel entries");
        assert!(entries > 10, "thread {thread} entered its ring {entries} times only");
    }

    // Before `main`, the standard library looks once whether the standard streams are open, by `poll`.
    assert_eq!(made("epoll_create,epoll_create1,epoll_ctl"), 0, "no thread has an epoll instance");
    let core_calls = || calls.iter().filter(|call| of_cores.contains(&call.thread));
    let waits: Vec<&Call<'_>> = core_calls().filter(|call| call.is_one_of(WAITS)).collect();
    assert!(waits.is_empty(), "a core waits outside its ring: {waits:#?}");
    let transfers: Vec<&Call<'_>> =
        core_calls().filter(|call| call.is_one_of(TRANSFERS) && !call.is_on_doorbell_or_terminal()).collect();
    assert!(transfers.is_empty(), "a core transfers outside its ring: {transfers:#?}");
    let sockets: Vec<&Call<'_>> =
        calls.iter().filter(|call| call.is_one_of(TRANSFERS) && call.rest.contains("<socket:")).collect();
    assert!(sockets.is_empty(), "a socket is used outside the rings: {sockets:#?}");
}

#[test]
fn a_transfer_on_a_socket_is_told_from_a_rung_doorbell() {
    let read = |line| {
        let call = Call::parse(line).unwrap();
        (call.thread, call.name, call.is_one_of(TRANSFERS), call.is_on_doorbell_or_terminal())
    };
    let received = r#"12 recvfrom(7<socket:[81]>, "a, <eventfd>"..., 8, 0, NULL, NULL) = 8"#;
    assert_eq!(read(received), (12, "recvfrom", true, false));
    let interrupted = r#"1312  write(9<socket:[82]>, "b", 1 <unfinished ...>"#;
    assert_eq!(read(interrupted), (1312, "write", true, false));
    let rung = r#"12 write(7<anon_inode:[eventfd]>, "\1\0\0\0\0\0\0\0", 8) = 8"#;
    assert_eq!(read(rung), (12, "write", true, true));
    assert_eq!(read(r#"12 write(1<pipe:[5]>, "c", 1) = 1"#), (12, "write", true, true));
    let waited = Call::parse("12 epoll_wait(4<anon_inode:[eventpoll]>,  <unfinished ...>").unwrap();
    assert!(waited.is_one_of(WAITS) && !waited.is_one_of(TRANSFERS));

    for other in ["12 <... write resumed>) = 1", "12 +++ exited with 0 +++", "12 --- SIGINT {si_pid=(3)} ---"]
    {
        assert!(Call::parse(other).is_none(), "{other}");
    }
    let trace = "1 eventfd2(0, 0) = -1 EMFILE (Too many)\n1 eventfd2(0, 0) = 4<anon_inode:[eventfd]>\n\
                 2 eventfd2(0, 0 <unfinished ...>\n2 <... eventfd2 resumed>) = 5<anon_inode:[eventfd]>\n";
    assert_eq!(successes(trace, "eventfd2"), 2);
}
