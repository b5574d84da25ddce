//! A service under thousands of connections: what an idle one costs, how fast they are accepted, and that it serves on while
//! others drip, while there are no descriptors, and while it drains.
//!
//! `cargo run --release --example service_soak -- --connections 10000` is the whole; by default it is a small one of a few
//! seconds. What is not as it should be fails the run.
//!
//! The server runs in this process, so that its memory can be told from its clients'; those are a second process, which
//! this one starts and talks to by lines on its standard input and output.
#![allow(unsafe_code)] // The allocator that counts, and the limit on descriptors.

mod clients;
mod process;
mod server;

use std::error::Error;
use std::net::SocketAddr;

use clap::Parser;
use corelet::service::Protocol;
use corelet::service::codec::LinesCodec;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Parser)]
struct Args {
    /// Connections that are idle most of the time.
    #[arg(long, default_value_t = 300)]
    connections: usize,
    /// Connections that drip.
    #[arg(long, default_value_t = 100)]
    dripping: usize,
    /// Cores of the server.
    #[arg(long, default_value_t = 2)]
    cores: usize,
    /// Be the clients of that server.
    #[arg(long, hide = true)]
    clients_of: Option<SocketAddr>,
}

#[global_allocator]
static ALLOCATOR: process::Counting = process::Counting;

/// Lines, of which the first word chooses the route.
struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = String;
    type Session = ();

    fn codec(&self) -> LinesCodec {
        LinesCodec::new_with_max_length(256)
    }

    fn session(&self) {}

    fn id(&self, line: &String) -> Option<String> {
        line.split(' ').next().map(str::to_owned)
    }
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    process::raise_descriptor_limit()?;
    match args.clients_of {
        Some(address) => clients::run(address, &args),
        None => server::run(args),
    }
}
