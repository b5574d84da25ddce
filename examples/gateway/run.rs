//! Putting the parts together: upstream, runtime, pool, servers, load; and their end.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use corelet::net::TcpStream;
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::{CoreId, Cores, Runtime, RuntimeHandle, current_core, timeout};
use corelet::service::codec::Value;
use corelet::service::{Limits, Server};

use crate::args::Args;
use crate::error::GatewayError;
use crate::front::{self, MAX_LINE};
use crate::load::{self, Plan, Progress, Tally};
use crate::progress;
use crate::report::Report;
use crate::session::Wire;
use crate::upstream::Upstream;

/// How long the upstream may take to show that it is there.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// How long a request may wait for a connection.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(2);
/// How long the pool may take to close its connections at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Runs everything for as long as `args` say, or until `interrupted` is set.
pub fn run(args: &Args, interrupted: Arc<AtomicBool>) -> Result<Report, GatewayError> {
    // Made first and so dropped last: the upstream outlives the gateway.
    let embedded = match args.upstream {
        Some(_) => None,
        None => Some(Upstream::start(args.kill_every())?),
    };

    let runtime = Runtime::builder()
        .cores(args.cores.map_or(Cores::All, Cores::Count))
        .busy_poll(Duration::from_micros(args.busy_poll))
        .thread_name("gateway")
        .build()?;
    let cores = runtime.cores();
    if args.skew && cores.len() < 2 {
        return Err(GatewayError::OneCore);
    }

    let upstream = match (&embedded, &args.upstream) {
        (Some(embedded), _) => embedded.address(),
        // Better to fail now, with the reason, than to start and answer every request by an error.
        (None, name) => reachable(&runtime, name.as_deref().unwrap_or_default())?,
    };
    let pool = Pool::builder(TcpConnector::new(upstream))
        .slots_per_core(args.slots)
        .max_waiters(args.max_waiters)
        .acquire_timeout(ACQUIRE_LIMIT)
        .build(&runtime.handle())?;

    let counters: Vec<Arc<Progress>> = cores.iter().map(|_| Arc::default()).collect();
    let layout = Layout::new(cores, args.skew);
    // A terminal may be slow, so it gets a thread; the cores never wait for it.
    let line = progress::start(args.seconds, counters.clone());
    let gateway = Gateway {
        args: args.clone(),
        runtime: runtime.handle(),
        pool,
        upstream,
        layout,
        counters,
        interrupted,
    };
    let report = runtime.block_on(move || gateway.run())?;
    drop(line);
    report
}

/// Which core does what.
#[derive(Clone)]
struct Layout {
    all: Vec<CoreId>,
    /// The cores with a listener and clients.
    serving: Vec<CoreId>,
    skew: bool,
}

impl Layout {
    fn new(all: Vec<CoreId>, skew: bool) -> Layout {
        let serving = if skew { vec![all[0]] } else { all.clone() };
        Layout { all, serving, skew }
    }

    /// Whose shards the sessions of the current core lease from: its own, so that no request leaves its core; or, to show what
    /// leaving costs, all of them in turn.
    fn shards_here(&self) -> Vec<CoreId> {
        if self.skew { self.all.clone() } else { current_core().into_iter().collect() }
    }
}

struct Gateway {
    args: Args,
    runtime: RuntimeHandle,
    pool: Pool<TcpConnector>,
    upstream: SocketAddr,
    layout: Layout,
    counters: Vec<Arc<Progress>>,
    interrupted: Arc<AtomicBool>,
}

impl Gateway {
    /// Starts the servers and the load on their cores, waits for the load, and closes the pool.
    async fn run(self) -> Result<Report, GatewayError> {
        #[cfg(feature = "observer")]
        let _observer = self.args.observe.as_ref().map(corelet::observer::Observer::open).transpose()?;

        let (pool, layout) = (self.pool.clone(), self.layout.clone());
        // Each core makes its own; a client's whole life then stays on the core that accepted it.
        let server = Server::new(move || front::app(&pool, layout.shards_here()))
            .bind(self.args.listen)
            .cores(self.layout.serving.clone())
            .limits(Limits { max_frame: 2 * MAX_LINE, ..Limits::default() })
            .refusal("ERROR too many clients\n")
            .start(&self.runtime)
            .await?;
        let address = server.local_addr();

        println!(
            "{} clients for {} s on {address}, served by {} of {} cores with {} connections each to {}",
            self.args.clients,
            self.args.seconds,
            self.layout.serving.len(),
            self.layout.all.len(),
            self.args.slots,
            self.upstream,
        );

        let begun = Instant::now();
        let ends = begun + Duration::from_secs(self.args.seconds);
        let plan = Arc::new(Plan { address, ends, interrupted: self.interrupted });
        let mut loads = Vec::new();
        for (position, core) in self.layout.serving.iter().enumerate() {
            let clients = (0..u64::from(self.args.clients)).skip(position).step_by(self.layout.serving.len());
            let numbers: Vec<u64> = clients.collect();
            let (plan, progress) = (Arc::clone(&plan), Arc::clone(&self.counters[position]));
            loads.push(self.runtime.spawn_on(*core, move || load::run(numbers, plan, progress))?);
        }
        let mut tally = Tally::new();
        for load in loads {
            tally.add(&load.await?);
        }
        let took = begun.elapsed();

        // The clients are gone, so every lease is back, or will be in a moment. The counts after that are the last
        // ones: each connection that was opened shows up among the closed.
        let drained = self.pool.drain(DRAIN_LIMIT).await.is_ok();
        let stats = self.pool.stats().await;
        Ok(Report { tally, took, stats, drained })
    }
}

/// The first address of `name` that answers a PING.
fn reachable(runtime: &Runtime, name: &str) -> Result<SocketAddr, GatewayError> {
    let no_address = |source| GatewayError::Resolve { name: name.into(), source };
    let mut trouble = no_address(io::ErrorKind::NotFound.into());
    for address in name.to_socket_addrs().map_err(no_address)? {
        let probe = move || async move {
            let late = |elapsed| Err(io::Error::new(io::ErrorKind::TimedOut, elapsed));
            timeout(PROBE_LIMIT, ping(address)).await.unwrap_or_else(late)
        };
        match runtime.block_on(probe)? {
            Ok(()) => return Ok(address),
            Err(source) => trouble = GatewayError::Probe { address, source },
        }
    }
    Err(trouble)
}

async fn ping(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let answer = Wire::default().exchange(&mut stream, &[b"PING"]).await?;
    if answer == Value::simple("PONG") {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("it answered PING by {answer:?}")))
}
