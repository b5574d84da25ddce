//! The gateway example as its users meet it: started as a process, judged by its output.
#![cfg(all(feature = "pool", feature = "service"))]
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

// An example's own tests do not run with `cargo test`, so its modules without any of its own I/O are tested from here.
#[path = "../examples/gateway/front.rs"]
#[allow(dead_code)]
mod front;
#[path = "support/redis.rs"]
mod redis;
#[path = "../examples/gateway/session.rs"]
#[allow(dead_code)]
mod session;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::{Memory, Redis};

/// How long any process may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The example's binary, built now: `cargo test --test gateway` alone builds no examples.
static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let this = std::env::current_exe().unwrap();
    let profile = this.parent().and_then(|deps| deps.parent()).expect("tests lie in <target>/<profile>/deps");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let name = match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") => "dev",
            Some(name) => name,
            None => panic!("{} is no cargo profile", profile.display()),
        };
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--example", "gateway", "--profile", name])
            .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
            .arg("--target-dir")
            .arg(profile.parent().expect("a profile lies in a target directory"))
            .status()
            .unwrap();
        assert!(status.success(), "the example does not build");
    }
    let binary = profile.join("examples/gateway");
    assert!(binary.exists(), "{} is missing: cargo build --example gateway", binary.display());
    binary
});

/// One gateway at a time: two would take each other's cores, and run into time limits by that.
static TURN: Mutex<()> = Mutex::new(());

struct Gateway {
    child: Child,
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    _turn: MutexGuard<'static, ()>,
}

struct Outcome {
    success: bool,
    stdout: Vec<String>,
    stderr: String,
}

fn start(args: &str) -> Gateway {
    start_with(args, |_| {})
}

fn start_with(args: &str, prepare: impl FnOnce(&mut Command)) -> Gateway {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(&*BINARY);
    command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let (sender, stdout) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut errors = child.stderr.take().unwrap();
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    });
    Gateway { child, stdout, stderr: Some(stderr), _turn: turn }
}

impl Gateway {
    fn finish(mut self) -> Outcome {
        let deadline = Instant::now() + LIMIT;
        let mut stdout = Vec::new();
        loop {
            match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => stdout.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the gateway does not end; so far: {stdout:#?}"),
            }
        }
        let success = self.child.wait().unwrap().success();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Outcome { success, stdout, stderr }
    }

    /// A client's connection, to the address in the first line of output.
    fn connect(&self) -> TcpStream {
        let line = self.stdout.recv_timeout(LIMIT).unwrap();
        let address = line.split_once(" on ").unwrap().1.split_once(',').unwrap().0;
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn interrupt(&self) {
        // SAFETY: the call takes numbers only, and the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) }, 0);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Both fail when the process has ended as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// The counts in the last line, after a run that went well.
    fn counts(&self) -> HashMap<&str, u64> {
        assert!(self.success && self.stderr.is_empty(), "{:#?}\n{}", self.stdout, self.stderr);
        let fields: Vec<_> =
            self.stdout.last().unwrap().split(' ').map(|field| field.split_once('=').unwrap()).collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        let expected =
            ["requests", "errors", "mismatched", "forwards", "opens", "closes", "p50_us", "p99_us"];
        assert_eq!(names[..expected.len()], expected);
        fields.into_iter().map(|(name, value)| (name, value.parse().unwrap())).collect()
    }

    /// The one line that a run which could not begin leaves behind.
    fn refusal(&self) -> &str {
        assert!(!self.success, "{:#?}", self.stdout);
        let mut lines = self.stderr.lines();
        let line = lines.next().unwrap_or_default();
        assert!(!line.is_empty() && lines.next().is_none(), "expected one line, got {:?}", self.stderr);
        line
    }
}

fn has_two_cores() -> bool {
    let enough = std::thread::available_parallelism().unwrap().get() >= 2;
    if !enough {
        println!("skipped: this needs two cores");
    }
    enough
}

#[test]
fn every_reply_fits_its_request() {
    let outcome = start("--seconds 1").finish();
    let counts = outcome.counts();
    assert!(counts["requests"] > 0);
    assert_eq!((counts["errors"], counts["mismatched"], counts["forwards"]), (0, 0, 0));
    assert!(counts["opens"] > 0 && counts["opens"] == counts["closes"]);
}

#[test]
fn broken_connections_cost_errors_and_never_a_wrong_reply() {
    for more in ["", "--skew --slots 2"] {
        if !more.is_empty() && !has_two_cores() {
            continue;
        }
        let outcome = start(&format!("--seconds 1 --kill-upstream-every 50 {more}")).finish();
        let counts = outcome.counts();
        assert!(counts["requests"] > counts["errors"] && counts["errors"] > 0);
        assert_eq!(counts["mismatched"], 0);
        assert!(counts["opens"] > 8 && counts["opens"] == counts["closes"]);
    }
}

#[test]
fn a_loaded_core_borrows_the_connections_of_a_cold_one() {
    if !has_two_cores() {
        return;
    }
    let outcome = start("--seconds 1 --cores 2 --skew").finish();
    let counts = outcome.counts();
    assert!(counts["requests"] > 0 && counts["forwards"] > 0);
    assert_eq!((counts["errors"], counts["mismatched"]), (0, 0));
}

#[test]
fn a_spinning_core_with_few_slots_serves_many_clients() {
    let outcome = start("--seconds 1 --cores 1 --slots 1 --clients 100 --busy-poll 20").finish();
    let counts = outcome.counts();
    assert!(counts["requests"] > 0);
    assert_eq!((counts["errors"], counts["mismatched"], counts["opens"]), (0, 0, 1));
}

#[test]
fn what_cannot_be_run_is_refused_in_one_line() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases = [
        ("--no-such-flag", "--no-such-flag"),
        ("--seconds soon", "invalid value 'soon'"),
        ("--seconds 0", "--seconds"),
        ("--slots 0", "slots_per_core"),
        ("--cores 1 --skew", "--skew needs at least two cores"),
        ("--cores 1000", "1000 cores were asked for"),
        ("--upstream 127.0.0.1:1 --kill-upstream-every 5", "--kill-upstream-every"),
        ("--upstream nowhere", "--upstream nowhere"),
        (&format!("--upstream {closed}"), "Connection refused"),
    ];
    for (args, expected) in cases {
        let outcome = start(args).finish();
        assert!(outcome.refusal().contains(expected), "{args}: {}", outcome.stderr);
    }
}

#[test]
fn an_upstream_that_does_not_answer_is_found_out_before_the_run() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let outcome = start(&format!("--upstream {}", silent.local_addr().unwrap())).finish();
    assert!(outcome.refusal().contains("timed out"), "{}", outcome.stderr);
}

#[test]
fn a_machine_without_io_uring_is_named_as_the_cause() {
    for (errno, expected) in [(libc::EPERM, "io_uring is not permitted"), (libc::ENOSYS, "no io_uring")] {
        let outcome = start_with("--seconds 1", |command| {
            // SAFETY: between fork and exec the closure only makes system calls and reads its own stack.
            unsafe { command.pre_exec(move || refuse_io_uring(errno)) };
        })
        .finish();
        assert!(outcome.refusal().contains(expected), "{}", outcome.stderr);
    }
}

/// Has every `io_uring_setup` of this process fail, as in a container whose seccomp profile forbids it.
fn refuse_io_uring(errno: i32) -> std::io::Result<()> {
    let code = |code: u32| code as u16;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = [
        // The first word of what the filter sees is the number of the call.
        step(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0),
        libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt: 0,
            jf: 1,
            k: libc::SYS_io_uring_setup as u32,
        },
        step(code(libc::BPF_RET | libc::BPF_K), libc::SECCOMP_RET_ERRNO | errno as u32),
        step(code(libc::BPF_RET | libc::BPF_K), libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter outlive the calls, which copy them.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn pipelined_lines_are_answered_in_order_and_an_endless_one_ends_the_connection() {
    let gateway = start("--seconds 50 --clients 1");
    let mut client = gateway.connect();
    // Cut in the middle of a line, and of the pair that ends one.
    for piece in ["PING\r\nSET k a b", " c\nGET k\r", "\nGET none\nnonsense\n\nDEL k\nGET k\n"] {
        client.write_all(piece.as_bytes()).unwrap();
    }
    let mut replies = BufReader::new(client.try_clone().unwrap()).lines().map(Result::unwrap);
    let bad = "ERROR bad request: expected PING, GET key, SET key value or DEL key";
    for expected in ["PONG", "OK", "VALUE a b c", "NONE", bad, bad, "INTEGER 1", "NONE"] {
        assert_eq!(replies.next().as_deref(), Some(expected));
    }

    let value = "v".repeat(front::MAX_VALUE);
    client.write_all(format!("SET k {value}\nGET k\nDEL k\n").as_bytes()).unwrap();
    assert_eq!(replies.next().as_deref(), Some("OK"));
    assert_eq!(replies.next(), Some(format!("VALUE {value}")));
    assert_eq!(replies.next().as_deref(), Some("INTEGER 1"));

    // Far more than the server reads before it has seen enough; its last word arrives all the same.
    client.write_all(&vec![b'x'; 8 * front::MAX_LINE]).unwrap();
    assert!(replies.next().unwrap().starts_with("ERROR a line of more than"));
    assert!(replies.next().is_none());

    gateway.interrupt();
    let outcome = gateway.finish();
    assert_eq!(outcome.counts()["errors"], 0);
}

#[test]
fn clients_that_leave_rudely_harm_nobody() {
    let gateway = start("--seconds 50 --clients 1 --cores 1 --slots 1");
    let mut first = gateway.connect();
    let address = first.peer_addr().unwrap();
    for round in 0..100 {
        let mut client = TcpStream::connect(address).unwrap();
        // Requests whose replies nobody reads, and half of one; then gone, or deaf.
        client.write_all(b"SET k v\nGET k\nGET k\nGET").unwrap();
        if round % 2 == 0 {
            client.shutdown(Shutdown::Both).unwrap();
        }
    }
    first.write_all(b"PING\n").unwrap();
    let mut reply = String::new();
    BufReader::new(&first).read_line(&mut reply).unwrap();
    assert_eq!(reply, "PONG\n");
    gateway.interrupt();
    let outcome = gateway.finish();
    assert_eq!((outcome.counts()["errors"], outcome.counts()["mismatched"]), (0, 0));
}

#[test]
fn the_interrupt_ends_a_run_early_and_in_order() {
    let gateway = start("--seconds 50");
    let begun = Instant::now();
    // The first line tells that it runs.
    gateway.stdout.recv_timeout(LIMIT).unwrap();
    gateway.interrupt();
    let outcome = gateway.finish();
    let counts = outcome.counts();
    assert_eq!((counts["errors"], counts["opens"]), (0, counts["closes"]));
    assert!(begun.elapsed() < Duration::from_secs(25));
}

#[test]
fn a_real_redis_serves_as_the_upstream() {
    let Some(redis) = Redis::start(Memory::Nothing) else { return };
    let outcome = start(&format!("--seconds 1 --upstream localhost:{}", redis.address().port())).finish();
    let counts = outcome.counts();
    assert!(counts["requests"] > 0);
    assert_eq!((counts["errors"], counts["mismatched"]), (0, 0));
    assert_eq!(redis.command("DBSIZE"), ":0", "nothing is left behind there");
}

#[test]
fn a_real_redis_that_crashes_and_comes_back_costs_errors_and_never_a_wrong_reply() {
    for more in ["", "--skew --slots 2"] {
        if !more.is_empty() && !has_two_cores() {
            continue;
        }
        // A value that was stored must be there for its reader, however Redis ended in between.
        let Some(mut redis) = Redis::start(Memory::Everything) else { return };
        let gateway = start(&format!("--seconds 50 --upstream {} {more}", redis.address()));
        for _ in 0..4 {
            serve_more(&redis);
            redis.kill();
            redis.restart();
        }
        // And again, with nobody having told the gateway.
        serve_more(&redis);
        gateway.interrupt();
        let outcome = gateway.finish();
        let counts = outcome.counts();
        assert!(counts["requests"] > counts["errors"] && counts["errors"] > 0);
        assert_eq!(counts["mismatched"], 0);
        assert!(counts["opens"] > 8 && counts["opens"] == counts["closes"]);
    }
}

/// Waits until `redis` has stored some hundreds of values more.
fn serve_more(redis: &Redis) {
    let (stored, deadline) = (redis.calls("set"), Instant::now() + LIMIT);
    while redis.calls("set") < stored + 300 {
        assert!(Instant::now() < deadline, "the gateway does not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
}
