//! A protocol of lines, and clients that speak it.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelet::net::{Stream, TcpStream};
use corelet::runtime::sleep;
use corelet::service::app::{Frame, Reply};
use corelet::service::{App, Connection, Prepared, Protocol, Server, ServerHandle};
use tokio_util::codec::LinesCodec;

use crate::support::{PATIENCE, poll_until, soon};

pub struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = String;
    type Session = String;

    fn codec(&self) -> LinesCodec {
        LinesCodec::new_with_max_length(1024)
    }

    fn session(&self) -> String {
        "nobody".to_owned()
    }

    fn id(&self, line: &String) -> Option<String> {
        line.split(' ').next().map(str::to_owned)
    }
}

/// Opens once, for all handlers that wait for it.
#[derive(Clone, Default)]
pub struct Latch(Arc<AtomicBool>);

impl Latch {
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    async fn opened(self) {
        while !self.0.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// `echo x` and `whoami` at once, `wait x` when the latch is open.
pub fn app(latch: &Latch) -> impl Fn() -> Prepared<Lines> + Send + Sync + 'static {
    let latch = latch.clone();
    move || {
        let latch = latch.clone();
        let wait = move |Frame(line): Frame<String>| {
            let latch = latch.clone();
            async move {
                latch.opened().await;
                Reply(line)
            }
        };
        App::new(Lines)
            .route("echo".into(), async |Frame(line): Frame<String>| Reply(line))
            .route("whoami".into(), async |connection: Connection<Lines>| Reply(connection.session().clone()))
            .route("wait".into(), wait)
            .prepare()
            .unwrap()
    }
}

pub fn server() -> Server<Lines> {
    Server::new(app(&Latch::default())).bind(loopback())
}

pub fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A port that nobody listens on.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind(loopback()).unwrap().local_addr().unwrap()
}

pub async fn connect(server: &ServerHandle) -> TcpStream {
    soon(TcpStream::connect(server.local_addr())).await.unwrap()
}

pub async fn say(stream: &mut Stream, text: &str) {
    soon(stream.write_all(text.as_bytes().to_vec())).await.0.unwrap();
}

/// Asks and hears exactly that line.
pub async fn talk(stream: &mut Stream, request: &str, reply: &str) {
    say(stream, &format!("{request}\n")).await;
    hear(stream, &format!("{reply}\n")).await;
}

pub async fn hear(stream: &mut Stream, wanted: &str) {
    let (read, got) = soon(stream.read_exact(Vec::with_capacity(wanted.len()), wanted.len())).await;
    read.unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), wanted);
}

/// Everything up to the peer's end; what a reset cuts off is not there.
pub async fn hear_all(stream: &mut Stream) -> String {
    let mut all = Vec::new();
    loop {
        match soon(stream.receive()).await {
            Ok(Some(bytes)) => all.extend_from_slice(&bytes),
            Ok(None) | Err(_) => return String::from_utf8(all).unwrap(),
        }
    }
}

pub async fn figure(
    server: &ServerHandle,
    figure: impl Fn(&corelet::service::server::ServerCoreStats) -> u64,
) -> u64 {
    soon(server.stats()).await.sum(figure)
}

pub async fn until_open(server: &ServerHandle, count: u64) {
    poll_until(async || figure(server, |core| core.open - core.in_preamble).await == count).await;
}

/// Waits on a thread that is no core's.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

const CHILD: &str = "CORELET_TEST_CHILD";

/// Runs `body` in a child process: this test's binary again, told to run this test only.
pub fn in_a_child(test: &str, body: impl FnOnce()) {
    if std::env::var(CHILD).as_deref() == Ok(test) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "the child ran another test: {out}");
}

/// Sets the limit on descriptors, at most to what may be set.
pub fn limit_descriptors(wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read and write the live structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = wanted.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}
