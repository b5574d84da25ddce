//! A call through a lease with a ready codec allocates what its frame is made of, and nothing else.
#![cfg(all(feature = "framed", feature = "service"))]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "service_codec/held.rs"]
mod held;
mod support;

use std::io::{Read, Write};

use bytes::Bytes;
use corelet::pool::{FramedConnector, Pool, TcpConnector};
use corelet::service::codec::{self, ByteLinesCodec, RespCodec, Value};
use support::{Upstream, on_cores};

#[global_allocator]
static ALLOCATOR: held::Counting = held::Counting;

const WARM_UP: usize = 100;
const CALLS: u64 = 1000;

/// Answers each request, of `request` bytes, with `reply`.
fn upstream(request: usize, reply: &'static [u8]) -> Upstream {
    Upstream::start(move |mut socket, _| {
        let mut buffer = vec![0; request];
        while socket.read_exact(&mut buffer).is_ok() && socket.write_all(reply).is_ok() {}
    })
}

macro_rules! allocations {
    ($runtime:expr, $upstream:expr, $codec:expr, $request:expr, $reply:expr) => {{
        let connector = FramedConnector::new(TcpConnector::new($upstream.address), $codec);
        let pool = Pool::builder(connector).slots_per_core(1).build(&$runtime).unwrap();
        let session = pool.handle();
        let mut before = 0;
        for call in 0..WARM_UP + CALLS as usize {
            if call == WARM_UP {
                before = held::allocations();
            }
            let mut lease = session.acquire().await.unwrap();
            assert_eq!(lease.call($request).await.unwrap(), $reply);
        }
        let allocations = held::allocations() - before;
        pool.close().await;
        allocations
    }};
}

#[test]
fn a_reply_that_is_a_part_of_the_buffer_costs_no_allocation() {
    on_cores(1, async move |runtime, _| {
        let resp = upstream(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".len(), b"$5\r\nvalue\r\n");
        let value = Value::bulk("value");
        assert_eq!(allocations!(runtime, resp, RespCodec::new, ["GET", "key"], value), 0, "RESP");

        let lines = upstream(b"a line\n".len(), b"another\r\n");
        assert_eq!(allocations!(runtime, lines, ByteLinesCodec::new, "a line", "another"), 0, "lines");

        let frames = upstream(b"\0\0\0\x04ping".len(), b"\0\0\0\x04pong");
        let ping = || Bytes::from_static(b"ping");
        assert_eq!(allocations!(runtime, frames, codec::length_delimited, ping(), "pong"), 0, "frames");
    });
}

#[test]
fn an_array_costs_one_allocation() {
    on_cores(1, async move |runtime, _| {
        let resp = upstream(b"*1\r\n$4\r\nTIME\r\n".len(), b"*2\r\n:1\r\n$1\r\n2\r\n");
        let value = Value::Array(vec![Value::Integer(1), Value::bulk("2")]);
        assert_eq!(allocations!(runtime, resp, RespCodec::new, ["TIME"], value), CALLS);
    });
}
