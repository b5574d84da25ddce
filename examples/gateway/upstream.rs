//! The embedded upstream: a key-value store that speaks RESP, so that the example needs nothing else to run.
//!
//! It is a runtime of its own with a single core, as if it were another machine. Its state is a plain map: all that touch
//! it run on the one core, and none holds it across an await.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelet::runtime::{Cores, Runtime, interval, spawn};
use corelet::service::app::{Data, Frame};
use corelet::service::codec::{RespCodec, Value};
use corelet::service::{App, Connection, Limits, Protocol, Server, ServerHandle};

use crate::error::GatewayError;
use crate::front::MAX_LINE;

/// Keys that are stored at most.
const MAX_KEYS: usize = 100_000;

type Store = RefCell<HashMap<Bytes, Bytes>>;

/// The running upstream; it ends when this is dropped.
pub struct Upstream {
    server: ServerHandle,
    _runtime: Runtime,
}

impl Upstream {
    /// Starts it on a free port. With `kill_every` all its connections are broken again and again.
    pub fn start(kill_every: Option<Duration>) -> Result<Upstream, GatewayError> {
        // Not pinned: the gateway may have a thread pinned to each core, and the kernel finds the one that is free.
        let runtime =
            Runtime::builder().cores(Cores::Count(1)).pinned(false).thread_name("upstream").build()?;
        let limits = Limits { max_frame: 2 * MAX_LINE, ..Limits::default() };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::new(move || app(kill_every)).bind(anywhere).limits(limits);
        let handle = runtime.handle();
        let server = runtime.block_on(move || async move { server.start(&handle).await })??;
        Ok(Upstream { server, _runtime: runtime })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }
}

fn app(kill_every: Option<Duration>) -> App<Resp> {
    let victims = kill_every.map(|period| {
        let victims = Victims::default();
        spawn(kill(period, Rc::clone(&victims))).detach();
        victims
    });
    App::new(Resp { victims }).data(Store::default()).route((), execute)
}

/// Connections that will be broken.
type Victims = Rc<RefCell<Vec<Connection<Resp>>>>;

async fn kill(period: Duration, victims: Victims) {
    let mut ticks = interval(period);
    loop {
        ticks.tick().await;
        victims.take().iter().for_each(Connection::shut_down);
    }
}

struct Resp {
    victims: Option<Victims>,
}

impl Protocol for Resp {
    type Codec = RespCodec;
    type Request = Value;
    type Response = Value;
    type Id = ();
    type Session = ();

    fn codec(&self) -> RespCodec {
        RespCodec::new().max_frame(2 * MAX_LINE).max_items(4)
    }

    fn session(&self) {}

    fn id(&self, _: &Value) -> Option<()> {
        Some(())
    }

    fn connected(&self, connection: &Connection<Resp>) {
        if let Some(victims) = &self.victims {
            victims.borrow_mut().push(connection.clone());
        }
    }
}

/// Does what `command` says.
async fn execute(Frame(command): Frame<Value>, store: Data<Store>) -> Value {
    let mut store = store.borrow_mut();
    let [Value::Bulk(name), words @ ..] = command.items() else { return Value::error("ERR no command") };
    match (&name[..], words) {
        (b"PING", []) => Value::simple("PONG"),
        (b"GET", [Value::Bulk(key)]) => {
            store.get(key).map_or(Value::Null, |value| Value::Bulk(value.clone()))
        }
        (b"SET", [Value::Bulk(key), Value::Bulk(value)]) => {
            // Copies, as all that was received along with them would be kept otherwise.
            let value = Bytes::copy_from_slice(value);
            if let Some(stored) = store.get_mut(key) {
                *stored = value;
            } else if store.len() < MAX_KEYS {
                store.insert(Bytes::copy_from_slice(key), value);
            } else {
                return Value::error("OOM too many keys");
            }
            Value::simple("OK")
        }
        (b"DEL", [Value::Bulk(key)]) => Value::Integer(store.remove(key).is_some().into()),
        _ => Value::error("ERR unknown command"),
    }
}
