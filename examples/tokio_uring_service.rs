//! A service on tokio-uring, with threads and loops of its own, that takes corelet's cores in as guests.
//!
//! ```text
//! cargo run --release --features tokio-uring --example tokio_uring_service
//! ```
//!
//! Each thread runs `tokio_uring::start`, serves clients over tokio-uring's sockets, and reads a file by its ring.
//! Requests to the upstream go over corelet's pool: [`drive`] turns the thread's core beside the service's own tasks, and
//! [`Hosted::on_core`] leads them there. Every fourth request leases from the next core's shard.
//!
//! The example brings its upstream and its clients, checks every reply, and ends with status 0 if all was well.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corelet::pool::{Handle, Pool, TcpConnector};
use corelet::runtime::host::{Hosted, drive};
use corelet::runtime::{Core, CoreId, Cores, Runtime};
use tokio::sync::{mpsc, watch};
use tokio_uring::net::{TcpListener, TcpStream};

const CORES: usize = 2;
const CLIENTS: usize = 8;
const REQUESTS: u64 = 200;
/// Every so many requests one goes to the next core's shard.
const ABROAD: u64 = 4;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let upstream = upstream()?;
    let pinned = std::thread::available_parallelism()?.get() >= CORES;
    let (runtime, guests) = Runtime::builder().cores(Cores::Count(CORES)).pinned(pinned).build_guests()?;
    let pool = Pool::builder(TcpConnector::new(upstream)).slots_per_core(2).build(&runtime)?;

    // A core whose shard others lease from has to stay until all are done.
    let (done, _) = watch::channel(0);
    let threads: Vec<_> = guests
        .into_iter()
        .map(|guest| {
            let (pool, done) = (pool.clone(), done.clone());
            std::thread::spawn(move || -> Outcome<Served> {
                // On its own thread, and pinned if the runtime is.
                let core = guest.start()?;
                tokio_uring::start(live(core, pool, done))
            })
        })
        .collect();
    for (core, thread) in threads.into_iter().enumerate() {
        let Served { answered, abroad, ticks } = thread.join().map_err(|_| "a thread panicked")??;
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

/// The life of a thread: drives the core, serves, and ends the core when nobody needs it any more.
async fn live(core: Core, pool: Pool<TcpConnector>, done: watch::Sender<usize>) -> Outcome<Served> {
    let drive = drive(core)?;
    let core = drive.hosted();
    let driving = tokio_uring::spawn(drive);

    let served = serve(&core, &pool).await;
    done.send_modify(|count| *count += 1);
    done.subscribe().wait_for(|count| *count == CORES).await?;
    core.end();
    driving.await??;
    served
}

/// One core's service and its clients.
async fn serve(core: &Hosted, pool: &Pool<TcpConnector>) -> Outcome<Served> {
    // A file, by the ring of tokio-uring.
    let file = tokio_uring::fs::File::open("/proc/self/comm").await?;
    let (count, name) = file.read_at(vec![0; 16], 0).await;
    assert!(name[..count?].ends_with(b"\n"));
    file.close().await?;

    let cores: Vec<CoreId> = core.runtime().cores();
    let next = cores.iter().position(|id| *id == core.id()).map_or(0, |place| (place + 1) % cores.len());
    let (near, far) = core.enter(|| (pool.handle(), pool.handle_on(cores[next])));
    let session = Rc::new(Session { near, far: far?, core: core.clone(), abroad: Cell::new(0) });
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    let accepting = tokio_uring::spawn(accept(listener, Rc::clone(&session)));

    // The clients report over a channel, and a timer ticks beside them.
    let (report, mut reports) = mpsc::channel(CLIENTS);
    for client in 0..CLIENTS {
        let report = report.clone();
        tokio_uring::spawn(async move { report.send(ask(address, client).await).await });
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
        tokio_uring::spawn(answer(stream, Rc::clone(&session)));
    }
}

/// Answers each message by what the upstream makes of it. A task of tokio-uring's.
async fn answer(stream: TcpStream, session: Rc<Session>) -> Outcome<()> {
    for number in 1_u64.. {
        let (count, message) = stream.read(vec![0; 256]).await;
        let count = count?;
        if count == 0 {
            break;
        }
        let handle = if number % ABROAD == 0 {
            session.abroad.set(session.abroad.get() + 1);
            &session.far
        } else {
            &session.near
        };
        // From here to the reply it is corelet's: the wait for a connection, and the exchange.
        let reply = session.core.on_core(ask_upstream(handle, &message[..count])).await??;
        stream.write_all(reply).await.0?;
    }
    Ok(())
}

async fn ask_upstream(handle: &Handle<TcpConnector>, request: &[u8]) -> Outcome<Vec<u8>> {
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
    let stream = TcpStream::connect(address).await?;
    for number in 0..REQUESTS {
        let request = format!("request {number} of client {client}");
        stream.write_all(request.clone().into_bytes()).await.0?;
        let mut reply = Vec::new();
        while reply.len() < request.len() {
            let (count, piece) = stream.read(vec![0; 256]).await;
            match count? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => reply.extend_from_slice(&piece[..count]),
            }
        }
        assert_eq!(reply, request.to_uppercase().as_bytes());
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
