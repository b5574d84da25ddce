//! One pinned, single-threaded io_uring runtime per core, with an actor kit, a sharded connection pool and a layer for services
//! that speak in frames.
//!
//! # When not to use it
//!
//! - On anything but 64-bit Linux, 5.19 or newer; or where io_uring is forbidden, as in many containers.
//! - For work that is CPU-bound or unevenly spread: a task never leaves its core, and nobody steals it.
//! - Together with libraries that need tokio's reactor, unless its cores run inside tokio: see [features](#features).
//! - For TLS, UDP or files: there are TCP and Unix streams. Those take addresses; a pool resolves names.
//! - With blocking calls in tasks: one of them stops its whole core.
//! - With `panic = "abort"`: that a panic ends one task only rests on unwinding.
//!
//! # What it is
//!
//! A service that accepts on every core, and asks an upstream on every core, wants a request to stay on the core where
//! it arrived. So each core here has its own ring, executor, timers and shard of the connection pool, and the path of a
//! request crosses to another core only when you tell it to.
//!
//! | module | has |
//! |---|---|
//! | [`runtime`] | cores and the threads that turn them, tasks, time, and [`Simulation`](runtime::Simulation): whole runs that replay from a seed |
//! | [`actor`] | addresses, mailboxes, monitors, links, supervisors, servers, state machines: Erlang's kit for tasks, the same on one core and across cores |
//! | [`observer`] | a socket, opened on request, by which `corelet top` looks into the running process |
//! | [`net`] | TCP and Unix streams and listeners: owned buffers in, owned buffers out |
//! | [`pool`] | leases of upstream connections: one shard and one scheduler per core, bounded queues, fairness, deadlines |
//! | [`service`] | servers of framed protocols: codecs, routes and middleware, pushes, deadlines, an end in good order |
//!
//! # A tour
//!
//! A [`Runtime`](runtime::Runtime) starts a pinned thread per core. Code on a core calls free functions such as
//! [`runtime::spawn`] and [`runtime::sleep`]; a [`RuntimeHandle`](runtime::RuntimeHandle) starts tasks on other cores
//! from anywhere. Tasks may be `!Send`, for they stay where they were spawned.
//!
//! ```
//! use std::rc::Rc;
//! use std::time::Duration;
//! use corelet::runtime::{Cores, Runtime, sleep, spawn};
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! let sum = runtime.block_on(|| async {
//!     let shared = Rc::new(20);
//!     let theirs = Rc::clone(&shared);
//!     let task = spawn(async move {
//!         sleep(Duration::from_millis(1)).await;
//!         *theirs + 1
//!     });
//!     *shared + task.await.expect("it does not panic")
//! })?;
//! assert_eq!(sum, 41);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each task is an actor: whoever has its [`Pid`](actor::Pid) may send to it, monitor it, link to it and stop it, on whatever
//! core. On that rest [servers](actor::server), [state machines](actor::machine) and [supervisors](actor::supervisor).
//!
//! ```
//! use corelet::actor::{self, Addressable, ExitReason};
//! use corelet::runtime::{Cores, Runtime};
//!
//! enum Printer {}
//! impl Addressable for Printer {
//!     type Msg = String;
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let printer = actor::spawn_addr::<Printer, _, _>(async |mut inbox| {
//!         while let Ok(line) = inbox.recv().await {
//!             println!("{line}");
//!         }
//!     });
//!     actor::send_to(printer, "hello".to_owned()).unwrap();
//!     let end = actor::monitor(printer);
//!     actor::request_stop(printer);
//!     assert_eq!(end.await.reason, ExitReason::Stopped);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Streams take buffers by value and give them back, because the kernel works on them while the task is parked:
//! `let (result, buffer) = stream.read(buffer).await`. Every future of [`net`] may be dropped at any await; what the
//! kernel still uses then stays with the core's driver until it is done.
//!
//! A [`Pool`](pool::Pool) is built once and cloned to where it is used. On a core, a [`Handle`](pool::Handle) is bound
//! to one shard, usually the core's own; [`acquire`](pool::Handle::acquire) leases a connection of that shard, and
//! [`exchange`](pool::Lease::exchange) uses it. A connection goes to the next user only when its last exchange returned
//! `Ok` with nothing unread and nothing in flight; otherwise it is closed.
//!
//! ```
//! # #[cfg(feature = "pool")]
//! # mod with_the_pool {
//! use corelet::net::TcpListener;
//! use corelet::pool::{Pool, TcpConnector};
//! use corelet::runtime::{Cores, Runtime, handle, spawn};
//!
//! # pub fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
//!     let address = listener.local_addr().unwrap();
//!     let _echo = spawn(async move {
//!         let mut stream = listener.accept().await.unwrap();
//!         while let Some(bytes) = stream.receive().await.unwrap() {
//!             stream.write_all(bytes.to_vec()).await.0.unwrap();
//!         }
//!     });
//!
//!     let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(1).build(&handle()).unwrap();
//!     let session = pool.handle();
//!     let mut lease = session.acquire().await.unwrap();
//!     let reply = lease
//!         .exchange(async |stream| {
//!             stream.write_all("hello").await.0?;
//!             let (result, reply) = stream.read_exact(Vec::with_capacity(5), 5).await;
//!             result.map(|()| reply)
//!         })
//!         .await
//!         .unwrap();
//!     assert_eq!(reply, b"hello");
//!     drop(lease);
//!     pool.close().await;
//! })?;
//! # Ok(())
//! # }
//! # }
//! # fn main() {
//! #     #[cfg(feature = "pool")]
//! #     with_the_pool::main().unwrap();
//! # }
//! ```
//!
//! A [`Server`](service::Server) accepts on every core and speaks whatever a codec of `tokio-util`'s traits cuts into frames.
//! Each connection is an actor that answers requests in order and takes [pushes](service::push) from every core; routes,
//! middleware and data are [put together](service::App) once on each core, and connections share them.
//!
//! ```
//! # #[cfg(feature = "service")]
//! # mod with_services {
//! use corelet::net::TcpStream;
//! use corelet::runtime::{Cores, Runtime, handle};
//! use corelet::service::app::Frame;
//! use corelet::service::codec::{self, LinesCodec};
//! use corelet::service::{App, Protocol, Server};
//!
//! struct Lines;
//!
//! impl Protocol for Lines {
//!     type Codec = LinesCodec;
//!     type Request = String;
//!     type Response = String;
//!     type Id = ();
//!     type Session = ();
//!
//!     fn codec(&self) -> LinesCodec {
//!         codec::lines()
//!     }
//!     fn session(&self) {}
//!     fn id(&self, _line: &String) -> Option<()> {
//!         Some(())
//!     }
//! }
//!
//! # pub fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let app = || App::new(Lines).route((), async |Frame(line): Frame<String>| line.to_uppercase());
//!     let server = Server::new(app).bind(([127, 0, 0, 1], 0).into()).start(&handle()).await.unwrap();
//!
//!     let mut client = TcpStream::connect(server.local_addr()).await.unwrap();
//!     client.write_all("hello\n").await.0.unwrap();
//!     let (read, line) = client.read_exact(Vec::with_capacity(6), 6).await;
//!     read.unwrap();
//!     assert_eq!(line, b"HELLO\n");
//!     server.shutdown().await;
//! })?;
//! # Ok(())
//! # }
//! # }
//! # fn main() {
//! #     #[cfg(feature = "service")]
//! #     with_services::main().unwrap();
//! # }
//! ```
//!
//! Programs that decide nothing by real time run unchanged in a [`Simulation`](runtime::Simulation), which plays the
//! kernel, the network and the clock on one thread, and repeats a failed run from its seed.
//!
//! # Features
//!
//! Each only adds.
//!
//! | feature | default | has |
//! |---|---|---|
//! | `pool` | yes | the module `pool` |
//! | `service` | yes | the module `service` |
//! | `metrics` | no | the figures of pools and servers for the `metrics` facade; their names are in [`pool::METRICS`] and [`service::METRICS`]; includes `pool` |
//! | `framed` | no | in `pool`: connections that speak in frames of a `tokio-util` codec, and sockets that several leases share, in turn or pipelined; includes `pool` |
//! | `observer` | no | `observer`: a Unix socket by which `corelet top` looks into the running process |
//! | `cycles` | no | counts the CPU's ticks that each task uses, for [`actor::ActorInfo::cycles`] |
//! | `console` | no | while a `tracing` subscriber listens, each task runs in a span named as tokio's console expects it |
//! | `tokio` | no | `runtime::host`: cores inside a tokio runtime, so that tasks use tokio's timers, channels and sockets too |
//! | `tokio-uring` | no | `runtime::host::tokio_uring`: the same inside tokio-uring; includes `tokio` |
#![deny(missing_docs)]
// The front page speaks of all there is, whether it is there or not.
#![cfg_attr(
    not(all(feature = "pool", feature = "service", feature = "observer")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]

pub mod actor;
mod lock;
#[cfg(any(feature = "pool", feature = "service"))]
mod metric;
pub mod net;
#[cfg(feature = "observer")]
#[cfg_attr(docsrs, doc(cfg(feature = "observer")))]
pub mod observer;
#[cfg(feature = "pool")]
pub mod pool;
pub mod runtime;
#[cfg(feature = "service")]
#[cfg_attr(docsrs, doc(cfg(feature = "service")))]
pub mod service;
mod sync;

/// The programs of the README, compiled and run.
#[cfg(all(doctest, feature = "pool", feature = "service"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs of the guide to actors, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/actors.md")]
struct Actors;

/// The programs of the guide, compiled and run.
#[cfg(all(doctest, feature = "framed"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// The programs of the guide to services, compiled and run.
#[cfg(all(doctest, feature = "service"))]
#[doc = include_str!("../docs/services.md")]
struct Services;
