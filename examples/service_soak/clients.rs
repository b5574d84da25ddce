//! The clients. Each line on standard input is an order; each is answered by a line.

use std::io::{self, BufRead};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use corelet::actor::channel;
use corelet::net::TcpStream;
use corelet::runtime::{Cores, Runtime, sleep, spawn};
use futures_util::StreamExt;
use futures_util::stream;

use crate::server::FEW;
use crate::{Args, Failure};

/// Connections that are being made at a time.
const AT_ONCE: usize = 128;
/// How many of the idle connections are used while others misbehave.
const HONEST: usize = 16;

pub fn run(address: SocketAddr, args: &Args) -> Result<(), Failure> {
    let (count, dripping) = (args.connections, args.dripping);
    let runtime = Runtime::builder().cores(Cores::Count(1)).pinned(false).build()?;
    runtime.block_on(move || async move {
        let (order, mut orders) = channel::unbounded();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if order.send(line).is_err() {
                    break;
                }
            }
        });
        let mut crowd = Crowd { address, streams: Vec::new() };
        println!("ready");
        while let Ok(order) = orders.recv().await {
            match order.as_str() {
                "connect" => crowd.connect(count).await?,
                "drip" => crowd.drip(dripping).await?,
                "come" => crowd.come().await?,
                "slow" => crowd.slow().await?,
                other => return Err(format!("{other} is no order").into()),
            }
        }
        Ok(())
    })?
}

struct Crowd {
    address: SocketAddr,
    streams: Vec<TcpStream>,
}

async fn ask(stream: &mut TcpStream, line: &str) -> Result<(), Failure> {
    stream.write_all(format!("{line}\n").into_bytes()).await.0?;
    let (read, reply) = stream.read_exact(Vec::with_capacity(line.len() + 1), line.len() + 1).await;
    read?;
    match reply.strip_suffix(b"\n") == Some(line.as_bytes()) {
        true => Ok(()),
        false => Err(format!("{reply:?} to {line}").into()),
    }
}

impl Crowd {
    async fn connect(&mut self, count: usize) -> Result<(), Failure> {
        let (begun, address) = (Instant::now(), self.address);
        let connects = stream::iter(0..count).map(|number| async move {
            let mut stream = TcpStream::connect(address).await?;
            ask(&mut stream, &format!("echo {number}")).await?;
            Ok::<_, Failure>(stream)
        });
        let mut connects = connects.buffer_unordered(AT_ONCE);
        while let Some(stream) = connects.next().await {
            self.streams.push(stream?);
        }
        println!("clients: {count} connected and answered in {:.2?}", begun.elapsed());
        Ok(())
    }

    /// Asks by some of the connections, again and again, until `over`. Gives how often, and the longest that an answer took.
    async fn ask_on(&mut self, mut over: impl FnMut() -> bool) -> Result<(usize, Duration), Failure> {
        let (mut asked, mut longest) = (0, Duration::ZERO);
        while !over() {
            for stream in self.streams.iter_mut().take(HONEST) {
                let begun = Instant::now();
                ask(stream, "echo are you there").await?;
                longest = longest.max(begun.elapsed());
                asked += 1;
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok((asked, longest))
    }

    async fn drip(&mut self, count: usize) -> Result<(), Failure> {
        let mut drips = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(self.address).await?;
            drips.push(spawn(async move {
                let (mut reading, mut writing) = stream.split();
                let end = reading.receive();
                let drip = async {
                    while writing.write_all("x").await.0.is_ok() {
                        sleep(Duration::from_millis(100)).await;
                    }
                };
                // Until the server has had enough.
                futures_util::future::select(std::pin::pin!(end), std::pin::pin!(drip)).await;
            }));
        }
        let (asked, longest) = self.ask_on(|| drips.iter().all(|drip| drip.is_finished())).await?;
        println!("clients: {asked} answers while {count} dripped, the slowest after {longest:.2?}");
        Ok(())
    }

    async fn come(&mut self) -> Result<(), Failure> {
        let mut waiting = Vec::new();
        for _ in 0..FEW {
            waiting.push(TcpStream::connect(self.address).await?);
        }
        let begun = Instant::now();
        let (asked, longest) = self.ask_on(|| begun.elapsed() > Duration::from_millis(500)).await?;
        println!("clients: {asked} answers without descriptors, the slowest after {longest:.2?}");
        for stream in &mut waiting {
            ask(stream, "echo at last").await?;
        }
        println!("clients: {FEW} who came meanwhile have been answered");
        Ok(())
    }

    /// Some have asked something slow when the server drains. They get their answer, and then, as all, the end.
    async fn slow(&mut self) -> Result<(), Failure> {
        let slow = FEW.min(self.streams.len());
        for stream in &mut self.streams[..slow] {
            stream.write_all("slow one\n").await.0?;
        }
        let mut answered = 0;
        for (number, mut stream) in self.streams.drain(..).enumerate() {
            let mut received = Vec::new();
            while let Some(bytes) = stream.receive().await? {
                received.extend_from_slice(&bytes);
            }
            match received.as_slice() {
                b"slow one\n" if number < slow => answered += 1,
                b"" if number >= slow => {}
                other => return Err(format!("connection {number} ended with {other:?}").into()),
            }
            // The server has closed already.
            let _ = stream.shutdown(Shutdown::Write).await;
        }
        println!("clients: {answered} slow answers, and then the end on every connection");
        Ok(())
    }
}
