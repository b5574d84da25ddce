//! The real command, looking into the real gateway under load.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take that should happen soon.
const PATIENCE: Duration = Duration::from_secs(30);

/// The gateway with its observer, built now: tests of this package build no examples of another.
static GATEWAY: LazyLock<PathBuf> = LazyLock::new(|| {
    let this = std::env::current_exe().unwrap();
    let profile = this.parent().and_then(Path::parent).expect("tests lie in <target>/<profile>/deps");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("{} is no cargo profile", profile.display()),
    };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--example", "gateway", "--features", "observer", "--profile", name])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")])
        .arg("--target-dir")
        .arg(profile.parent().expect("a profile lies in a target directory"))
        .status()
        .unwrap();
    assert!(status.success(), "the gateway does not build");
    profile.join("examples/gateway")
});

/// A running gateway, and the socket by which it is looked into.
struct Gateway {
    child: Child,
    socket: PathBuf,
}

impl Gateway {
    fn start(socket: PathBuf) -> Gateway {
        let mut child = Command::new(&*GATEWAY)
            .args(["--seconds", "600", "--clients", "8", "--slots", "2", "--observe"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        // Its first line says that it serves.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("8 clients"), "{line:?}");
        Gateway { child, socket }
    }

    fn kill(&mut self) {
        // Fails when it has ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
        // A killed process leaves it behind.
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn socket() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("corelet-top-{}-{number}.sock", std::process::id()))
}

fn top(socket: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelet")).arg("top").arg(socket).args(args).output().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_loaded_gateway_is_seen_with_its_cores_pools_and_actors() {
    let gateway = Gateway::start(socket());
    let mode = std::fs::metadata(&gateway.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let look = |interval| {
        let output = top(&gateway.socket, &["--once", "--json", "--interval", interval]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaint.is_empty(), "{complaint}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let labelled = |seen: &Value, label: &str| {
        let actors = seen["actors"].as_array().unwrap();
        actors.iter().filter(|actor| actor["label"] == label).count()
    };
    // Its clients come after it has said that it serves.
    let begun = Instant::now();
    while labelled(&look("0.05"), "session") < 8 {
        assert!(begun.elapsed() < PATIENCE, "the clients do not come");
    }
    let seen = look("0.5");
    assert_eq!((&seen["format"], &seen["program"]), (&1.into(), &"gateway".into()));
    assert_eq!(seen["process"], gateway.child.id());

    let cores = seen["cores"].as_array().unwrap();
    assert!(!cores.is_empty() && seen["missing"].as_array().unwrap().is_empty());
    for core in cores {
        let busy = number(&core["busy"]);
        assert!(busy > 0.0 && busy <= 1.0, "{core}");
        assert!(number(&core["polls_per_s"]) > 0.0 && number(&core["in_flight"]) > 0.0, "{core}");
    }
    let [pool] = &seen["pools"].as_array().unwrap()[..] else { panic!("{}", seen["pools"]) };
    let shards = pool["shards"].as_array().unwrap();
    assert_eq!((shards.len(), &pool["slots"]), (cores.len(), &2.into()));
    assert!(shards.iter().map(|shard| number(&shard["acquires_per_s"])).sum::<f64>() > 0.0, "{pool}");
    assert!(shards.iter().map(|shard| number(&shard["opens"])).sum::<f64>() > 0.0, "{pool}");

    let actors = seen["actors"].as_array().unwrap();
    assert_eq!(seen["actors_in_all"], actors.len());
    assert_eq!(["session", "client 7", "observer"].map(|label| labelled(&seen, label)), [8, 1, 1]);
    assert_eq!(labelled(&seen, &format!("scheduler of pool {}", pool["pool"])), cores.len());
    let rates: Vec<f64> = actors.iter().filter_map(|actor| actor["polls_per_s"].as_f64()).collect();
    assert!(rates[0] > 0.0 && rates.is_sorted_by(|one, other| one >= other), "{rates:?}");

    let output = top(&gateway.socket, &["--once", "--interval", "0.1", "--sort", "pid", "--actors", "3"]);
    let screen = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with(&format!("gateway (process {})", gateway.child.id())), "{screen}");
    let heading = lines.iter().position(|line| line.starts_with("ACTOR")).unwrap();
    assert_eq!(lines.len(), heading + 1 + 3, "{screen}");
    assert!(lines[heading + 1].starts_with('<'), "{screen}");
}

#[test]
fn where_nobody_can_be_seen_that_is_told_in_one_line() {
    let nowhere = socket();
    let refusal = |args: &[&str]| {
        let output = top(&nowhere, args);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty() && text.lines().count() == 1, "{text}");
        text
    };
    assert!(refusal(&["--once"]).contains("no process has opened an observer there"));
    assert!(refusal(&[]).contains(nowhere.to_str().unwrap()));

    assert_eq!(top(&nowhere, &["--json"]).status.code(), Some(2), "one screen only is JSON");
}

/// What the command says of a process that greets by `greeting`, answers one question by `answer`, and ends.
fn judged(greeting: &str, answer: &str) -> String {
    let path = socket();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (greeting, answer) = (greeting.to_owned(), answer.to_owned());
    let process = std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        if greeting.is_empty() {
            return;
        }
        client.write_all(greeting.as_bytes()).unwrap();
        // The command may have heard enough.
        if BufReader::new(&client).read_line(&mut String::new()).unwrap() > 0 {
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    let output = top(&path, &["--once", "--interval", "0.05"]);
    process.join().unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len(), text.lines().count()), (Some(1), 0, 1), "{text}");
    text
}

#[test]
fn a_process_that_ends_or_speaks_otherwise_is_told_in_one_line() {
    let hello = "{\"hello\":{\"format\":1,\"process\":7,\"program\":\"brief\"}}\n";
    let empty =
        "{\"snapshot\":{\"format\":1,\"at_ns\":5,\"cores\":[],\"missing\":[],\"pools\":[],\"actors\":0}}\n";
    let ended = "brief (process 7) has ended";
    assert!(judged(hello, empty).contains(ended), "between two looks");
    assert!(judged(hello, &empty[..20]).contains(ended), "in the middle of a line");
    assert!(judged(hello, &empty.replace(":0}", ":9}")).contains(ended), "before the last actor");
    assert!(judged(hello, "").contains(ended), "without an answer");
    assert!(judged(hello, "{\"refused\":{\"why\":\"no time\"}}\n").contains("refused: no time"));
    assert!(judged(&hello.replace(":1,", ":2,"), empty).contains("speaks format 2"));
    assert!(judged("220 mail.example ESMTP\r\n", "").contains("this is no observer"));
    assert!(judged("", "").contains("no process has opened an observer there"));
}

/// A terminal: what the command is given, and what it has written.
struct Screen {
    master: File,
    written: Arc<Mutex<String>>,
}

impl Screen {
    /// Both ends of a new terminal of 120 times 40 characters.
    fn open() -> (Screen, OwnedFd) {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the call fills the two numbers, and reads the size; both descriptors are new and nobody else's.
        let (master, slave) = unsafe {
            let opened =
                libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size);
            assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
            (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let master = File::from(master);
        let written = Arc::new(Mutex::new(String::new()));
        let (mut reader, into) = (master.try_clone().unwrap(), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with the last user of the other end.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        (Screen { master, written }, slave)
    }

    fn wait_for(&self, text: &str) {
        let begun = Instant::now();
        loop {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if written.contains(text) {
                return;
            }
            let last = String::from_utf8_lossy(&written.as_bytes()[written.len().saturating_sub(1000)..]);
            assert!(begun.elapsed() < PATIENCE, "{text:?} does not appear; the last that did is {last:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The command with a terminal, which ends with its test also when that fails.
struct View(Child);

impl Drop for View {
    fn drop(&mut self) {
        // Fails when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_live_view_survives_the_end_of_the_process_and_finds_the_next_one() {
    let mut gateway = Gateway::start(socket());
    let (mut screen, terminal) = Screen::open();
    assert!(terminal.as_raw_fd() > 2);
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let view = Command::new(env!("CARGO_BIN_EXE_corelet"))
        .arg("top")
        .arg(&gateway.socket)
        .args(["--interval", "0.1"])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn();
    let mut view = View(view.unwrap());
    drop(terminal);
    screen.wait_for("CORE");
    screen.wait_for("TcpConnector");
    screen.master.write_all(b"s").unwrap();
    screen.wait_for("messages");

    gateway.kill();
    // Only what has changed is written, so one word at a time.
    screen.wait_for("has");
    screen.wait_for("ended");
    let next = Gateway::start(gateway.socket.clone());
    // The line with the trouble is wiped.
    screen.wait_for(&" ".repeat(100));

    screen.master.write_all(b"q").unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = view.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not quit");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
    drop(next);
}
