//! The smallest service: lines come in, lines go out, on every core.
//!
//! ```text
//! cargo run --release --example echo
//! ```

use std::net::{Ipv4Addr, SocketAddr};

use corelet::net::TcpStream;
use corelet::runtime::{Cores, Runtime, handle};
use corelet::service::app::{Frame, Reply};
use corelet::service::{App, Protocol, Server};
use tokio_util::codec::LinesCodec;

struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = ();
    type Session = ();

    fn codec(&self) -> LinesCodec {
        LinesCodec::new_with_max_length(1024)
    }

    fn session(&self) {}

    fn id(&self, _line: &String) -> Option<()> {
        Some(())
    }
}

async fn echo(Frame(line): Frame<String>) -> Reply<String> {
    Reply(line)
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let runtime = Runtime::builder().cores(Cores::All).build()?;
    runtime.block_on(|| async {
        let server = Server::new(|| App::new(Lines).route((), echo));
        let server = server.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).start(&handle()).await?;

        let mut client = TcpStream::connect(server.local_addr()).await?;
        client.write_all("hello\nthere\n").await.0?;
        let (read, echoed) = client.read_exact(Vec::with_capacity(12), 12).await;
        read?;
        assert_eq!(echoed, b"hello\nthere\n");
        println!("{} echoes", server.local_addr());
        server.stop();
        Ok(())
    })?
}
