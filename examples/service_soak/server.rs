//! The server, and what is asked of it.

use std::time::{Duration, Instant};

use corelet::runtime::{Cores, Runtime, handle, sleep};
use corelet::service::app::{Frame, Reply};
use corelet::service::connection::EndReason;
use corelet::service::server::ServerCoreStats;
use corelet::service::{App, Limits, Server, ServerHandle};

use crate::process::{Clients, Memory, take_descriptors};
use crate::{Args, Failure, Lines};

/// How long anything may take that should happen soon, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a frame may take to arrive.
const FRAME_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a slow request takes.
const SLOW: Duration = Duration::from_millis(300);
/// Connections that ask something slow when the drain begins, and those that come when there are no descriptors.
pub const FEW: usize = 32;

fn application() -> App<Lines> {
    App::new(Lines).route("echo".into(), async |Frame(line): Frame<String>| Reply(line)).route(
        "slow".into(),
        async |Frame(line): Frame<String>| {
            sleep(SLOW).await;
            Reply(line)
        },
    )
}

async fn sum(server: &ServerHandle, figure: impl Fn(&ServerCoreStats) -> u64) -> u64 {
    server.stats().await.sum(figure)
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !condition().await {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what}: not within {PATIENCE:?}").into());
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn check(right: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if right { Ok(()) } else { Err(what().into()) }
}

pub fn run(args: Args) -> Result<(), Failure> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = Runtime::builder().cores(Cores::Count(args.cores.min(available))).build()?;
    runtime.block_on(move || soak(args))?
}

async fn soak(args: Args) -> Result<(), Failure> {
    let limits = Limits { frame_timeout: Some(FRAME_TIMEOUT), ..Limits::default() };
    let server = Server::new(application).bind(([127, 0, 0, 1], 0).into()).limits(limits);
    let server = server.start(&handle()).await?;
    let mut clients = Clients::start(&args, server.local_addr())?;
    check(clients.answer().await? == "ready", || "the clients did not start".into())?;

    idle(&server, &mut clients, args.connections as u64).await?;
    dripping(&server, &mut clients, args.dripping as u64).await?;
    without_descriptors(&server, &mut clients).await?;
    drain(server, &mut clients, args.connections).await?;
    println!("ok");
    Ok(())
}

/// All connect, are served once, and fall silent.
async fn idle(server: &ServerHandle, clients: &mut Clients, count: u64) -> Result<(), Failure> {
    let (before, begun) = (Memory::now()?, Instant::now());
    clients.order("connect")?;
    until("all connections", async || sum(server, |core| core.open).await >= count).await?;
    let accepted = begun.elapsed();
    println!("{}", clients.answer().await?);
    until("all requests", async || sum(server, |core| core.counts.requests).await >= count).await?;
    let (after, served) = (Memory::now()?, begun.elapsed());
    let each = |before: i64, after: i64| (after - before) as f64 / count as f64;
    println!(
        "server: {count} connections accepted in {accepted:.2?} ({:.0} a second), each served once after {served:.2?}",
        count as f64 / accepted.as_secs_f64()
    );
    println!(
        "server: an idle connection takes {:.0} bytes of heap, {:.0} bytes resident",
        each(before.heap, after.heap),
        each(before.resident, after.resident)
    );
    let spread: Vec<_> = server.stats().await.cores.iter().map(|core| core.open).collect();
    println!("server: connections on each core: {spread:?}");
    check(each(before.heap, after.heap) < 8192.0, || "an idle connection holds a buffer".into())
}

/// Some send a byte now and then and never a line; the others are served, and those are cut off.
async fn dripping(server: &ServerHandle, clients: &mut Clients, count: u64) -> Result<(), Failure> {
    let cut_off = |core: &ServerCoreStats| core.counts.closed_for(EndReason::FrameTimeout);
    clients.order("drip")?;
    println!("{}", clients.answer().await?);
    let cut = sum(server, cut_off).await;
    println!("server: {cut} that dripped were cut off");
    check(cut == count, || format!("{count} dripped"))
}

/// There are no descriptors: those who are connected are served, nothing spins, and who comes is served afterwards.
async fn without_descriptors(server: &ServerHandle, clients: &mut Clients) -> Result<(), Failure> {
    let taken = take_descriptors();
    let accepted = sum(server, |core| core.accepted).await;
    clients.order("come")?;
    println!("{}", clients.answer().await?);
    let errors = sum(server, |core| core.accept_errors).await;
    println!("server: {errors} accepts failed without descriptors");
    check(sum(server, |core| core.accepted).await == accepted, || "there were descriptors after all".into())?;
    check((1..1000).contains(&errors), || format!("{errors} failed accepts: it spins"))?;
    let freed = Instant::now();
    drop(taken);
    println!("{}", clients.answer().await?);
    println!("server: all were served {:.2?} after there were descriptors again", freed.elapsed());
    check(sum(server, |core| core.accepted).await == accepted + FEW as u64, || "somebody was lost".into())
}

/// What is under way is finished, and all end.
async fn drain(server: ServerHandle, clients: &mut Clients, connections: usize) -> Result<(), Failure> {
    let requests = sum(&server, |core| core.counts.requests).await;
    clients.order("slow")?;
    until("slow requests", async || sum(&server, |core| core.counts.requests).await >= requests + FEW as u64)
        .await?;
    let begun = Instant::now();
    let drained = server.drain(PATIENCE).await?;
    println!(
        "server: {} connections drained in {:.2?}, the slowest request takes {SLOW:?}",
        drained.connections,
        begun.elapsed()
    );
    println!("{}", clients.answer().await?);
    check(drained.connections >= connections, || format!("of {connections} connections"))
}
