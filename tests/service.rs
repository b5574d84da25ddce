//! A whole service over real sockets.
#![cfg(feature = "service")]

mod support;

use corelet::net::TcpStream;
use corelet::service::app::{Data, Frame, Incoming, Middleware, Next, Outcome, Reply, Respond, Streamed};
use corelet::service::{App, Connection, End, Protocol, RequestError, Server, Verdict};
use futures_util::stream;
use support::on_cores;
use tokio_util::codec::LinesCodec;

struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = String;
    type Session = std::cell::Cell<u32>;

    fn codec(&self) -> LinesCodec {
        LinesCodec::new_with_max_length(1024)
    }

    fn session(&self) -> std::cell::Cell<u32> {
        std::cell::Cell::new(0)
    }

    fn id(&self, line: &String) -> Option<String> {
        line.split(' ').next().map(str::to_owned)
    }

    fn failed(&self, error: &RequestError, _connection: &Connection<Lines>) -> Verdict<String> {
        Verdict { reply: Some(error.to_string()), close: false }
    }

    fn malformed(&self, end: &End, _connection: &Connection<Lines>) -> Option<String> {
        Some(end.to_string())
    }
}

#[derive(Clone)]
struct Shout;

impl Middleware<Lines> for Shout {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        let outcome = next.run(incoming).await?;
        match outcome {
            corelet::service::app::Response::One(line) => {
                Respond::<Lines>::respond(Reply(line.to_uppercase()))
            }
            other => Ok(other),
        }
    }
}

fn app() -> App<Lines, impl corelet::service::app::Layer<Lines>> {
    App::new(Lines)
        .data("shared".to_owned())
        .wrap(Shout)
        .route("echo".into(), async |Frame(line): Frame<String>| line)
        .route("data".into(), async |data: Data<String>| Reply(data.to_string()))
        .route("count".into(), async |connection: Connection<Lines>| {
            let count = connection.session();
            count.set(count.get() + 1);
            Reply(count.get().to_string())
        })
        .route("many".into(), async || {
            Streamed(stream::iter(["one", "two"].map(|word| Ok::<_, std::io::Error>(word.to_owned()))))
        })
        .route("push".into(), async |connection: Connection<Lines>| {
            connection.push_handle().high("pushed".to_owned()).unwrap();
        })
        .route("panic".into(), async || -> Reply<String> { panic!("on purpose") })
        .route("fail".into(), async || Err::<Reply<String>, _>("it does not work"))
}

async fn talk(stream: &mut TcpStream, request: &str, reply: &str) {
    stream.write_all(format!("{request}\n").into_bytes()).await.0.unwrap();
    let wanted = format!("{reply}\n");
    let (read, got) = stream.read_exact(Vec::with_capacity(wanted.len()), wanted.len()).await;
    read.unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), wanted);
}

#[test]
fn requests_find_their_handlers() {
    on_cores(2, async |runtime, _| {
        let server = Server::new(app).bind(([127, 0, 0, 1], 0).into()).start(&runtime).await.unwrap();
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        talk(&mut stream, "echo a", "ECHO A").await;
        talk(&mut stream, "data", "SHARED").await;
        talk(&mut stream, "count", "1").await;
        talk(&mut stream, "count", "2").await;
        talk(&mut stream, "many", "one\ntwo").await;
        talk(&mut stream, "push", "pushed").await;
        talk(&mut stream, "panic", "the handler of \"panic\" panicked: on purpose").await;
        talk(&mut stream, "fail", "the handler of \"fail\" failed").await;
        talk(&mut stream, "what", "there is no route \"what\"").await;
        server.stop();
    });
}

#[test]
fn a_peer_that_breaks_the_protocol_is_told_so_before_the_connection_ends() {
    on_cores(1, async |runtime, _| {
        let server = Server::new(app).bind(([127, 0, 0, 1], 0).into()).start(&runtime).await.unwrap();
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        // More than the server reads before it has seen enough, behind a request that is answered.
        stream.write_all([b"echo a\n".as_slice(), &[b'x'; 4096]].concat()).await.0.unwrap();
        let mut told = Vec::new();
        while let Some(bytes) = stream.receive().await.unwrap() {
            told.extend_from_slice(&bytes);
        }
        assert_eq!(String::from_utf8(told).unwrap(), "ECHO A\nthe peer sent no valid frame\n");
        server.shutdown().await;
    });
}
