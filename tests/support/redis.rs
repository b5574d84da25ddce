//! A real Redis on a free loopback port, to be killed, stopped and started again.
#![allow(dead_code, unsafe_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start, or to answer a command.
const LIMIT: Duration = Duration::from_secs(30);
/// Where the ports are looked for: below those that the kernel gives to clients. A client that connects to a dead
/// server's port again and again could otherwise be given that very port, and would talk to itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// Set where Redis must not be missing, such as in CI.
const REQUIRED: &str = "CORELET_REQUIRE_REDIS";

/// What a server remembers after it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Nothing,
    /// All that it has ever answered for.
    Everything,
}

/// A running server with nothing in it; killed when dropped.
pub struct Redis {
    address: SocketAddr,
    directory: PathBuf,
    memory: Memory,
    child: Child,
}

impl Redis {
    /// Starts one. None, after saying so, when `redis-server` is not installed and need not be.
    pub fn start(memory: Memory) -> Option<Redis> {
        for _ in 0..10 {
            let address = free_address();
            let directory =
                std::env::temp_dir().join(format!("corelet-redis-{}-{}", std::process::id(), address.port()));
            std::fs::create_dir_all(&directory).unwrap();
            let child = match launch(address, &directory, memory) {
                Ok(child) => child,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let _ = std::fs::remove_dir_all(&directory);
                    assert!(std::env::var_os(REQUIRED).is_none(), "redis-server is not installed");
                    println!("left out: redis-server is not installed");
                    return None;
                }
                Err(error) => panic!("redis-server does not start: {error}"),
            };
            let mut redis = Redis { address, directory, memory, child };
            // Somebody else may have taken the port meanwhile.
            if redis.listens() {
                return Some(redis);
            }
        }
        panic!("redis-server finds no port");
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, after a [`kill`](Redis::kill).
    pub fn restart(&mut self) {
        self.child = launch(self.address, &self.directory, self.memory).unwrap();
        assert!(self.listens(), "redis-server does not come back on {}", self.address);
    }

    /// Has it do nothing until [`resume`](Redis::resume): the kernel still takes connections and bytes for it.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the call takes numbers only, and the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Has it execute a command without spaces in its arguments, over a connection made for that; gives the first line
    /// of the reply, or the text of a bulk string.
    pub fn command(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        match first.trim_end().strip_prefix('$') {
            Some(length) => {
                let mut text = vec![0; length.parse().unwrap()];
                reader.read_exact(&mut text).unwrap();
                String::from_utf8(text).unwrap()
            }
            None => first.trim_end().to_owned(),
        }
    }

    /// How many clients are connected, not counting the one that asks.
    pub fn clients(&self) -> usize {
        self.command("CLIENT LIST").lines().count() - 1
    }

    /// How often it has executed a command, named in small letters, since it was started.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.command("INFO commandstats");
        let prefix = format!("cmdstat_{command}:calls=");
        let count = stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Waits until it answers; false when it ends before, as it does on a port that somebody else has.
    fn listens(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        // Refused at first, and then answered by an error while it loads what it remembers.
        while TcpStream::connect(self.address).is_err() || self.command("PING") != "+PONG" {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail when it has been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn launch(address: SocketAddr, directory: &Path, memory: Memory) -> std::io::Result<Child> {
    let journal: &[&str] = match memory {
        Memory::Nothing => &["--appendonly", "no"],
        Memory::Everything => &["--appendonly", "yes", "--appendfsync", "always"],
    };
    Command::new("redis-server")
        .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--save", ""])
        .args(journal)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn free_address() -> SocketAddr {
    // Not the same for all the tests that look at the same time.
    let begin = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() as u16 ^ std::process::id() as u16;
    let count = PORTS.end - PORTS.start;
    (0..count)
        .map(|step| SocketAddr::from(([127, 0, 0, 1], PORTS.start + begin.wrapping_add(step) % count)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("one of so many ports is free")
}
