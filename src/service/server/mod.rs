//! A server: an application, made once on each core, and every core accepting.
//!
//! A [`Server`] is told where to listen, whom to admit and what a connection may use; [`start`](Server::start) makes it run, and
//! the [`ServerHandle`] that this gives counts, lists and ends it. Use it for whatever speaks a framed
//! [protocol](crate::service::Protocol) over TCP or Unix sockets. For bytes that are no frames, accept from a
//! [`TcpListener`](crate::net::TcpListener) yourself; for one connection that you have already, there is
//! [`serve`](crate::service::serve).
//!
//! # From where
//!
//! A server is started, asked and ended from any core and any thread. What it serves with stays on its core: the factory runs
//! on each core, so that nothing which an application holds needs to be `Send`.
//!
//! # On every core
//!
//! Each core has a listener of its own at every TCP address (`SO_REUSEPORT`), and the kernel spreads the connections over them by a hash
//! of their addresses. No core waits for another, and a connection stays where it was accepted. The path of a Unix socket
//! can only be bound once: there, the first core accepts and hands on, to each core in turn.
//!
//! Nothing is accepted before all cores are ready, so a start that fails on the last core has served nobody.
//!
//! # Who is admitted
//!
//! - [`max_connections`](Server::max_connections) bounds all cores together, exactly;
//!   [`max_connections_per_core`](Server::max_connections_per_core) each. Beyond, [`WhenFull`] says: refuse or wait.
//! - A [`preamble`](Server::preamble) is spoken before the first frame, by a deadline and with a limit on its bytes, and gives the
//!   connection its session: authentication, a version, a tenant.
//! - Out of descriptors or memory, a listener pauses between attempts (5 ms to 100 ms), and tries as soon as a connection ends.
//! - [`Limits`](crate::service::Limits) cut off who drips, is silent, or does not read.
//!
//! # The end
//!
//! [`drain`](ServerHandle::drain) lets connections finish what they have begun, and has a limit;
//! [`shutdown`](ServerHandle::shutdown) does not wait, nor does dropping the handle. A server that is left running by
//! [`detach`](ServerHandle::detach) ends with its cores. Of a core that ends before, its connections end too, and the others go on.
//!
//! # Compared with
//!
//! With tokio and tokio-util, this is a loop around `accept`, a semaphore, a `JoinSet` or task tracker, a cancellation token, and a pause
//! after `EMFILE`, all brought by hand; connections may move between threads, so what they share is behind `Arc` and locks. actix-server
//! has one thread that accepts and hands on to workers, each with its own copy of the service, made by a factory; a limit on connections per
//! worker; and a shutdown with a time-out. Here the workers accept, the limit may be over all, and a preamble and a list of connections are there
//! besides. The two phases of the end are nginx's.
//!
//! # Example
//!
//! See [`Server`].
//!
//! Never: run what users wrote in the tasks that accept and keep, or let a connection outlive its server's end.

mod accept;
mod address;
mod builder;
mod error;
mod gate;
mod handle;
mod keeper;
mod preamble;
mod settings;
mod share;
mod stats;

pub use address::{Address, Peer};
pub use builder::Server;
pub use error::{DrainTimeout, PreambleError, StartError};
pub use handle::{Drained, ServerHandle};
pub use preamble::Opening;
pub use settings::WhenFull;
pub use stats::{ConnectionInfo, ServerCoreStats, ServerStats};
