//! What an actor has under way with connections that nobody leases: opening, checking and closing them, and making them
//! fit to leave their core. Each is a future with a time limit, and contains the panics of the code that it calls.
//!
//! Never: a decision.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::carrier::Carrier;
use super::connection::Connection;
use super::connector::Connector;
use super::scheduler::{CloseReason, SlotId};
use super::shard::{Departure, Destination};
use super::shared::{Loan, Shared};
use crate::runtime::executor::panic_message;
use crate::runtime::timeout;

type Errand<T> = Pin<Box<dyn Future<Output = T>>>;

/// The slot, how many refreshes there had been when it was begun, and what came of it.
pub(super) type Opening<C> = Errand<(SlotId, u64, io::Result<<C as Connector>::Connection>)>;
/// The slot, how many refreshes there had been when it was begun, the connection, and whether it passed.
pub(super) type Check<C> = Errand<(SlotId, u64, Box<Carrier<C>>, io::Result<()>)>;
pub(super) type Closing = Errand<SlotId>;
/// A departing connection, once nothing is in flight on it; an unfit one says so.
pub(super) type Leaving<C> = Errand<(Departure<C>, io::Result<()>)>;
pub(super) type ClosedAbroad<C> = Errand<(SlotId, Destination, Loan<C>)>;

pub(super) fn open<C: Connector>(shared: &Arc<Shared<C>>, slot: SlotId, refreshes: u64) -> Opening<C> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let connect = async {
            let mut connection = shared.connector.connect().await?;
            shared.connector.after_connect(&mut connection).await?;
            Ok(connection)
        };
        let limit = shared.settings.connect_timeout;
        (slot, refreshes, within(limit, "the connector panicked", connect).await)
    })
}

/// Checks a connection that is in its carrier and stays there.
pub(super) fn check<C: Connector>(
    shared: &Arc<Shared<C>>,
    slot: SlotId,
    refreshes: u64,
    mut carrier: Box<Carrier<C>>,
) -> Check<C> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        carrier.armed = false;
        let check = async {
            match &mut carrier.connection {
                Some(connection) => shared.connector.check(connection).await,
                None => unreachable!("only a spare carrier is empty"),
            }
        };
        let passed = within(shared.settings.connect_timeout, "the check panicked", check).await;
        (slot, refreshes, carrier, passed)
    })
}

pub(super) fn close<C: Connector>(
    shared: &Arc<Shared<C>>,
    slot: SlotId,
    connection: C::Connection,
    reason: CloseReason,
) -> Closing {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        see_off(&shared, connection, reason).await;
        slot
    })
}

pub(super) fn close_abroad<C: Connector>(
    shared: &Arc<Shared<C>>,
    departure: Departure<C>,
    reason: CloseReason,
) -> ClosedAbroad<C> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let Departure { slot, connection, to, loan } = departure;
        see_off(&shared, connection, reason).await;
        (slot, to, loan)
    })
}

pub(super) fn leave<C: Connector>(shared: &Arc<Shared<C>>, mut departure: Departure<C>) -> Leaving<C> {
    let limit = shared.settings.close_timeout;
    Box::pin(async move {
        let quiesced = timeout(limit, poll_fn(|cx| departure.connection.poll_quiesce(cx))).await;
        (departure, quiesced.unwrap_or_else(|elapsed| Err(io::Error::new(io::ErrorKind::TimedOut, elapsed))))
    })
}

/// Closes a connection. When it takes too long or panics the connection is dropped, and that is all: it must not cost
/// the slot.
async fn see_off<C: Connector>(shared: &Shared<C>, mut connection: C::Connection, reason: CloseReason) {
    let limit = shared.settings.close_timeout;
    let close = async {
        shared.connector.before_close(&mut connection, reason).await;
        connection.close().await;
        Ok(())
    };
    if let Err(error) = within(limit, "closing a connection panicked", close).await {
        tracing::debug!(pool = shared.id, ?reason, %error, "a connection was dropped and not closed");
    }
}

/// Gives `errand` a time limit, and turns its panic into an error.
async fn within<T>(
    limit: Duration,
    panicked: &str,
    errand: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    // Inside, because user code may panic already when it makes its future.
    let limited = async { timeout(limit, errand).await };
    match AssertUnwindSafe(limited).catch_unwind().await {
        Ok(Ok(result)) => result,
        Ok(Err(elapsed)) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        Err(panic) => Err(io::Error::other(format!("{panicked}: {}", panic_message(&*panic)))),
    }
}
