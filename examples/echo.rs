//! The smallest service: lines come in, lines go out, on every core.
//!
//! ```text
//! cargo run --release --example echo
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::runtime::{Cores, Runtime, handle};
use corelet::service::app::Frame;
use corelet::service::codec::{self, LinesCodec};
use corelet::service::{App, BoxError, Protocol, Server};

struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = ();
    type Session = ();

    fn codec(&self) -> LinesCodec {
        codec::lines()
    }

    fn session(&self) {}

    fn id(&self, _line: &String) -> Option<()> {
        Some(())
    }
}

async fn echo(Frame(line): Frame<String>) -> String {
    line
}

async fn serve() -> Result<(), BoxError> {
    let server = Server::new(|| App::new(Lines).route((), echo));
    let server = server.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).start(&handle()).await?;

    let mut client = TcpStream::connect(server.local_addr()).await?;
    client.write_all("hello\nthere\n").await.0?;
    let (read, echoed) = client.read_exact(Vec::with_capacity(12), 12).await;
    read?;
    assert_eq!(echoed, b"hello\nthere\n");

    let drained = server.drain(Duration::from_secs(5)).await?;
    assert_eq!((drained.connections, client.receive().await?.is_none()), (1, true));
    println!("hello was echoed, and the client was seen off");
    Ok(())
}

fn main() -> Result<(), BoxError> {
    Runtime::builder().cores(Cores::All).build()?.block_on(serve)?
}
