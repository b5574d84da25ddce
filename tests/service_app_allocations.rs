//! A request through four middleware allocates nothing, and a connection costs the same whatever the number of routes.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../benches/common/alloc.rs"]
#[allow(dead_code, reason = "it counts bytes, too")]
mod alloc;
mod support;

use std::cell::Cell;

use bytes::BytesMut;
use corelet::runtime::yield_now;
use corelet::service::app::{
    Caller, Correlation, Data, Frame, Incoming, Middleware, Next, Outcome, Parsed, Response, Session, before,
};
use corelet::service::{App, Prepared, Protocol, RequestError};
use support::on_cores;
use tokio_util::codec::{Decoder, Encoder};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Frames of two numbers: an id, and what it is about.
struct Numbers;

struct NumberCodec;

impl Decoder for NumberCodec {
    type Item = (u32, u64);
    type Error = std::io::Error;

    fn decode(&mut self, _: &mut BytesMut) -> std::io::Result<Option<(u32, u64)>> {
        Ok(None)
    }
}

impl Encoder<u64> for NumberCodec {
    type Error = std::io::Error;

    fn encode(&mut self, _: u64, _: &mut BytesMut) -> std::io::Result<()> {
        Ok(())
    }
}

impl Protocol for Numbers {
    type Codec = NumberCodec;
    type Request = (u32, u64);
    type Response = u64;
    type Id = u32;
    type Session = Cell<u64>;

    fn codec(&self) -> NumberCodec {
        NumberCodec
    }

    fn session(&self) -> Cell<u64> {
        Cell::new(0)
    }

    fn id(&self, request: &(u32, u64)) -> Option<u32> {
        Some(request.0)
    }

    fn correlation(&self, request: &(u32, u64)) -> Option<u64> {
        Some(request.1)
    }
}

/// Adds to what the handler gives, and waits before and after.
struct Adds(u64);

impl Middleware<Numbers> for Adds {
    async fn handle<N: Next<Numbers>>(&self, incoming: &mut Incoming<Numbers>, next: &N) -> Outcome<u64> {
        yield_now().await;
        match next.run(incoming).await? {
            Response::One(sum) => {
                yield_now().await;
                Ok(Response::One(sum + self.0))
            }
            other => Ok(other),
        }
    }
}

struct Half(u64);

impl From<&(u32, u64)> for Half {
    fn from(request: &(u32, u64)) -> Half {
        Half(request.1 / 2)
    }
}

fn app(routes: u32) -> Prepared<Numbers> {
    let app = App::new(Numbers).data(1000_u64).wrap(Adds(1)).wrap(Adds(10)).wrap(Adds(100)).wrap(before(
        async |incoming: &mut Incoming<Numbers>| {
            incoming.request().map(drop).ok_or_else(|| RequestError::failed("taken"))
        },
    ));
    let handler = async |session: Session<Numbers>,
                         data: Data<u64>,
                         Correlation(correlation): Correlation,
                         Parsed(Half(half)): Parsed<Half>,
                         Frame((_, number)): Frame<(u32, u64)>| {
        session.set(session.get() + 1);
        yield_now().await;
        assert_eq!((correlation, half), (number, number / 2));
        *data + number * 10_000
    };
    (0..routes).fold(app, |app, id| app.route(id, handler)).prepare().unwrap()
}

async fn ask(caller: &mut Caller<Numbers>, id: u32, number: u64) {
    let answer = caller.respond((id, number)).await.unwrap();
    let Response::One(sum) = answer else { panic!("{answer:?}") };
    assert_eq!(sum, number * 10_000 + 1111);
}

#[test]
fn requests_allocate_nothing() {
    on_cores(1, async |_, _| {
        let mut caller = app(32).caller();
        ask(&mut caller, 5, 77).await;
        let before = alloc::on_this_thread();
        for round in 0..1000 {
            ask(&mut caller, round % 32, u64::from(round)).await;
        }
        assert_eq!(alloc::on_this_thread() - before, 0);
        assert_eq!(caller.connection().session().get(), 1001);
    });
}

#[test]
fn a_connection_costs_the_same_with_one_route_and_with_a_thousand() {
    on_cores(1, async |_, _| {
        let cost = |app: &Prepared<Numbers>| {
            let before = alloc::on_this_thread();
            let caller = app.caller();
            let cost = alloc::on_this_thread() - before;
            drop(caller);
            cost
        };
        let (one, thousand) = (app(1), app(1000));
        // Whatever the core makes once.
        drop(one.caller());
        let (with_one, with_thousand) = (cost(&one), cost(&thousand));
        assert_eq!(with_one, with_thousand);
        assert!(with_one <= 2, "{with_one} allocations");
        assert_eq!(thousand.transformations(), 4000);
    });
}
