//! The front: a small line-protocol server, on each core for itself.
//!
//! Every core has a listener of its own on the same address (`SO_REUSEPORT`); the kernel deals the clients out. A
//! client's whole life, its socket, its session, its leases, then stays on the core that accepted it, and nothing in
//! here is shared, locked or counted between cores.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use corelet::actor;
use corelet::net::{ListenerOptions, TcpListener, TcpStream};
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::{CoreId, spawn, timeout};

use crate::lines::Lines;
use crate::session::Session;

/// Clients that one core serves at the same time. Those beyond it are told so instead of slowing down the rest.
const MAX_CLIENTS_PER_CORE: usize = 8192;
/// How long a client that is hung up on may go on talking.
const LINGER: Duration = Duration::from_secs(1);
const TOO_MANY_CLIENTS: &[u8] = b"ERROR too many clients\n";

/// Listens on `address` on the current core and serves whoever comes until the runtime ends; gives the address, which
/// is chosen here when the port is zero. Sessions lease from the shards of `shards` in turn.
pub async fn listen(
    address: SocketAddr,
    pool: Pool<TcpConnector>,
    shards: Vec<CoreId>,
) -> io::Result<SocketAddr> {
    let options = ListenerOptions { reuse_port: true, ..ListenerOptions::default() };
    let listener = TcpListener::bind_with(address, options)?;
    let address = listener.local_addr()?;
    spawn(accept(listener, pool, shards)).detach();
    Ok(address)
}

async fn accept(mut listener: TcpListener, pool: Pool<TcpConnector>, shards: Vec<CoreId>) {
    actor::set_label("listener");
    // Each client's task holds a clone, so the count goes down however the task ends.
    let places = Rc::new(());
    loop {
        let mut stream = match listener.accept().await {
            Ok(stream) => stream,
            // Out of descriptors, most likely. The next accept waits a little by itself.
            Err(error) => {
                eprintln!("gateway: a client could not be accepted: {error}");
                continue;
            }
        };
        if Rc::strong_count(&places) > MAX_CLIENTS_PER_CORE {
            // So short a write does not wait, and what was written is sent though the stream is dropped.
            let _ = stream.write_all(TOO_MANY_CLIENTS).await;
            continue;
        }
        let place = Rc::clone(&places);
        let session = match Session::new(&pool, &shards) {
            Ok(session) => session,
            Err(error) => unreachable!("the shards are those of the pool's own runtime: {error}"),
        };
        spawn(async move {
            actor::set_label("session");
            // A client that goes away, however rudely, is no event: its session ends with it.
            let _ = serve(stream, session).await;
            drop(place);
        })
        .detach();
    }
}

/// Serves one client until it leaves.
async fn serve(mut stream: TcpStream, mut session: Session) -> io::Result<()> {
    let mut lines = Lines::default();
    let mut answer = Vec::new();
    // While a client is silent, waiting for it holds no buffer.
    while let Some(received) = stream.receive().await? {
        lines.push(&received);
        // The buffer is the core's; other connections can have it while the requests are answered.
        drop(received);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => session.answer(line, &mut answer).await,
                Ok(None) => break,
                Err(too_long) => return hang_up(stream, format!("ERROR {too_long}\n")).await,
            }
            // One write for each reply costs no system call each: short writes wait for the core's next kernel entry
            // and leave together. A client that does not read stops here, and so is not read from either.
            let result;
            (result, answer) = stream.write_all(answer).await;
            result?;
        }
    }
    Ok(())
}

/// Ends a connection on which more may be coming, with a last word that arrives. Closed with bytes unread, the kernel
/// would reset the connection, and the reset overtakes the word; so what still comes is read and thrown away, for a
/// while.
async fn hang_up(mut stream: TcpStream, last_word: String) -> io::Result<()> {
    stream.write_all(last_word.into_bytes()).await.0?;
    stream.shutdown(Shutdown::Write).await?;
    let rest = async { while let Ok(Some(_)) = stream.receive().await {} };
    // Whether the client has ended its side or the time is over: that was it.
    let _ = timeout(LINGER, rest).await;
    Ok(())
}
