//! A service on tokio, one loop per core, whose requests to its upstream go over corelet's pool.
//!
//! ```text
//! cargo run --release --features tokio --example tokio_service
//! ```
//!
//! Everything that faces clients is tokio's: listeners, sockets, timers, channels, tasks. Each core's shard of the pool
//! is used from those tasks by [`Hosted::on_core`]; every fourth request leases from the next core's shard instead. One
//! line, [`inside`](corelet::runtime::RuntimeBuilder::inside), starts a thread with a tokio runtime for each core.
//!
//! The example brings its upstream and its clients, checks every reply, and ends with status 0 if all was well.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corelet::pool::{Handle, Pool, TcpConnector};
use corelet::runtime::host::{Host, Hosted, here};
use corelet::runtime::{Cores, Runtime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

const CORES: usize = 2;
const CLIENTS: usize = 8;
const REQUESTS: u64 = 200;
/// Every so many requests one goes to the next core's shard.
const ABROAD: u64 = 4;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let upstream = upstream()?;
    let pinned = std::thread::available_parallelism()?.get() >= CORES;
    let runtime = Runtime::builder().cores(Cores::Count(CORES)).pinned(pinned).inside(Host::Tokio).build()?;
    let pool = Pool::builder(TcpConnector::new(upstream)).slots_per_core(2).build(&runtime.handle())?;

    let cores = runtime.cores();
    let theirs = pool.clone();
    // A root task on every core. It is one of corelet's, and uses tokio as if it were tokio's.
    let answered = runtime.run(move || serve(theirs.clone(), cores.clone()))?;
    for (core, outcome) in answered.into_iter().enumerate() {
        let Served { answered, abroad, ticks } = outcome?;
        println!(
            "core {core}: {answered} answered, {abroad} of them from another core's shard; {ticks} ticks"
        );
        assert_eq!((answered, abroad), (CLIENTS as u64 * REQUESTS, CLIENTS as u64 * REQUESTS / ABROAD));
        assert!(ticks > 0);
    }
    Ok(())
}

struct Served {
    answered: u64,
    abroad: u64,
    ticks: u64,
}

/// One core's service and its clients.
async fn serve(
    pool: Pool<TcpConnector>,
    cores: Vec<corelet::runtime::CoreId>,
) -> Result<Served, Box<dyn Error + Send + Sync>> {
    let core = here();
    let next = cores.iter().position(|id| *id == core.id()).map_or(0, |place| (place + 1) % cores.len());
    let session = Rc::new(Session {
        near: pool.handle(),
        far: pool.handle_on(cores[next])?,
        core,
        abroad: Cell::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accepting = spawn_local(accept(listener, Rc::clone(&session)));

    // The clients report over a channel, and a timer ticks beside them.
    let (report, mut reports) = mpsc::channel(CLIENTS);
    for client in 0..CLIENTS {
        let report = report.clone();
        spawn_local(async move { report.send(ask(address, client).await).await });
    }
    drop(report);
    let mut beat = tokio::time::interval(Duration::from_millis(1));
    let (mut answered, mut ticks) = (0, 0);
    loop {
        tokio::select! {
            outcome = reports.recv() => match outcome {
                Some(count) => answered += count?,
                None => break,
            },
            _ = beat.tick() => ticks += 1,
        }
    }
    accepting.abort();
    Ok(Served { answered, abroad: session.abroad.get(), ticks })
}

struct Session {
    core: Hosted,
    near: Handle<TcpConnector>,
    far: Handle<TcpConnector>,
    abroad: Cell<u64>,
}

async fn accept(listener: TcpListener, session: Rc<Session>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        spawn_local(answer(stream, Rc::clone(&session)));
    }
}

/// Answers each line by what the upstream makes of it. A task of tokio's.
async fn answer(stream: TcpStream, session: Rc<Session>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            break;
        }
        let handle = if number % ABROAD == 0 {
            session.abroad.set(session.abroad.get() + 1);
            &session.far
        } else {
            &session.near
        };
        // From here to the reply it is corelet's: the wait for a connection, and the exchange.
        let reply = session.core.on_core(ask_upstream(handle, line.as_bytes())).await??;
        stream.write_all(&reply).await?;
    }
    Ok(())
}

async fn ask_upstream(
    handle: &Handle<TcpConnector>,
    request: &[u8],
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let mut lease = handle.acquire().await?;
    let exchange = lease.exchange(async |stream| {
        stream.write_all(request.to_vec()).await.0?;
        let (result, reply) = stream.read_exact(Vec::with_capacity(request.len()), request.len()).await;
        result.map(|()| reply)
    });
    Ok(exchange.await?)
}

/// Sends requests one after the other, and checks each reply.
async fn ask(address: SocketAddr, client: usize) -> io::Result<u64> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    for number in 0..REQUESTS {
        let request = format!("request {number} of client {client}\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_line(&mut reply).await?;
        assert_eq!(reply, request.to_uppercase());
    }
    Ok(REQUESTS)
}

/// A server that answers in capitals, with a thread for each connection.
fn upstream() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    buffer[..count].make_ascii_uppercase();
                    if stream.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(address)
}
