//! The ring without a runtime: what the kernel can do, as the mark for everyone else.
//!
//! Send and receive go down together and the send posts nothing when it succeeds, so that at one
//! connection a request costs exactly one kernel entry. Completions are drained in a single pass, and
//! each is answered at once by queueing the next request.
#![allow(unsafe_code)]

use super::{Load, MESSAGE};
use crate::meter::{Latency, LatencyMeter};
use crate::rings::{self, Parts};
use anyhow::{Context, Result, ensure};
use io_uring::{opcode, squeue, types};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Marks completions of sends, which only failures post.
const SENT: u64 = 1 << 32;

/// Two operations a connection, for as many connections as any load has.
const ENTRIES: u32 = 512;

pub fn single(load: &Load, slice: Duration) -> Result<Latency> {
    run(load, slice, squeue::Flags::empty())
}

/// The receive is linked to the send, so that the kernel does not look for the reply before the request
/// has gone out.
pub fn linked(load: &Load, slice: Duration) -> Result<Latency> {
    run(load, slice, squeue::Flags::IO_LINK)
}

fn run(load: &Load, slice: Duration, send_flags: squeue::Flags) -> Result<Latency> {
    Clients::connect(load, [7; MESSAGE])?.exchange(slice, send_flags)
}

struct Connection {
    stream: TcpStream,
    request: [u8; MESSAGE],
    reply: UnsafeCell<[u8; MESSAGE]>,
    began: Instant,
}

/// Connections to one server.
pub struct Clients(Vec<Connection>);

impl Clients {
    /// Connects as many as `load` has; each will send `request` over and over.
    pub fn connect(load: &Load, request: [u8; MESSAGE]) -> Result<Self> {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let stream = TcpStream::connect(load.server).context("cannot connect to the echo server")?;
            stream.set_nodelay(true)?;
            let reply = UnsafeCell::new([0; MESSAGE]);
            connections.push(Connection { stream, request, reply, began: Instant::now() });
        }
        Ok(Self(connections))
    }

    /// Exchanges for a slice, with one request under way on each connection. There are no connections any more after an
    /// error.
    pub fn exchange(&mut self, slice: Duration, send_flags: squeue::Flags) -> Result<Latency> {
        // Leaked when anything fails, because the kernel may then still write into the replies.
        let mut connections = ManuallyDrop::new(std::mem::take(&mut self.0));
        let mut ring = rings::ring(ENTRIES)?;
        let mut parts = Parts::of(&mut ring)?;
        let meter = LatencyMeter::new(slice);
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.began = Instant::now();
            push_exchange(&mut parts, index, connection, send_flags)?;
        }
        let mut in_flight = connections.len();
        while in_flight > 0 {
            parts.wait()?;
            while let Some(completion) = parts.next() {
                let length = rings::outcome(&completion).context("an exchange failed")?;
                ensure!(completion.user_data() & SENT == 0, "a send was cut short after {length} bytes");
                ensure!(length == MESSAGE, super::short(length));
                let index = completion.user_data() as usize;
                let connection = &mut connections[index];
                ensure!(*connection.reply.get_mut() == connection.request, "the reply is not the request");
                match meter.lap(connection.began) {
                    Some(next) => {
                        connection.began = next;
                        push_exchange(&mut parts, index, connection, send_flags)?;
                    }
                    None => in_flight -= 1,
                }
            }
        }
        self.0 = ManuallyDrop::into_inner(connections);
        meter.outcome().context("the slice ended without an outcome")
    }
}

fn push_exchange(
    parts: &mut Parts<'_>,
    index: usize,
    connection: &Connection,
    send_flags: squeue::Flags,
) -> Result<()> {
    let descriptor = types::Fd(connection.stream.as_raw_fd());
    let send = opcode::Send::new(descriptor, connection.request.as_ptr(), MESSAGE as u32)
        .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS | send_flags)
        .user_data(index as u64 | SENT);
    let receive = opcode::Recv::new(descriptor, connection.reply.get().cast(), MESSAGE as u32)
        .flags(libc::MSG_WAITALL)
        .build()
        .user_data(index as u64);
    // SAFETY: the connection stays where it is (its vector is not grown any more), is not freed while
    // anything is in flight (see `exchange`), and nobody looks at the buffers in the meantime: the next
    // exchange starts when this one's receive has completed, which implies that its send has.
    unsafe {
        parts.push(&send)?;
        parts.push(&receive)
    }
}
