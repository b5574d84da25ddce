//! The embedded upstream: a key-value store that speaks RESP, so that the example needs nothing else to run.
//!
//! It is a runtime of its own with a single core, as if it were another machine. Its state is a plain map: all tasks
//! that touch it run on the one core, and none holds it across an await.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{Cores, JoinHandle, Runtime, interval, spawn};

use crate::error::GatewayError;
use crate::resp::{self, Value};

/// Keys that are stored at most.
const MAX_KEYS: usize = 100_000;

type Store = Rc<RefCell<HashMap<Vec<u8>, Vec<u8>>>>;
/// The open connections. Dropping a task's handle stops the task, and with it goes its socket.
type Connections = Rc<RefCell<Vec<JoinHandle<()>>>>;

/// The running upstream; it ends when this is dropped.
pub struct Upstream {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Upstream {
    /// Starts it on a free port. With `kill_every` all its connections are broken again and again.
    pub fn start(kill_every: Option<Duration>) -> Result<Upstream, GatewayError> {
        // Not pinned: the gateway may have a thread pinned to each core, and the kernel finds the one that is free.
        let runtime =
            Runtime::builder().cores(Cores::Count(1)).pinned(false).thread_name("upstream").build()?;
        let address = runtime.block_on(move || async move { listen(kill_every) })?;
        Ok(Upstream { address: address.map_err(GatewayError::Listen)?, _runtime: runtime })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn listen(kill_every: Option<Duration>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    let connections = Connections::default();
    spawn(accept(listener, Rc::clone(&connections))).detach();
    if let Some(period) = kill_every {
        spawn(kill(period, connections)).detach();
    }
    Ok(address)
}

async fn accept(mut listener: TcpListener, connections: Connections) {
    let store = Store::default();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let store = Rc::clone(&store);
                let connection = spawn(async move {
                    // A gateway that goes away is no event.
                    let _ = serve(stream, store).await;
                });
                let mut connections = connections.borrow_mut();
                connections.retain(|connection| !connection.is_finished());
                connections.push(connection);
            }
            Err(error) => eprintln!("upstream: a connection could not be accepted: {error}"),
        }
    }
}

async fn kill(period: Duration, connections: Connections) {
    let mut ticks = interval(period);
    loop {
        ticks.tick().await;
        connections.borrow_mut().clear();
    }
}

async fn serve(mut stream: TcpStream, store: Store) -> io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    while let Some(received) = stream.receive().await? {
        input.extend_from_slice(&received);
        drop(received);
        let mut taken = 0;
        while let Some((command, len)) = resp::decode(&input[taken..])? {
            execute(&command, &mut store.borrow_mut(), &mut output);
            taken += len;
        }
        input.drain(..taken);
        let result;
        (result, output) = stream.write_all(output).await;
        result?;
        output.clear();
    }
    Ok(())
}

/// Does what `command` says and appends the reply to `output`.
fn execute(command: &Value<'_>, store: &mut HashMap<Vec<u8>, Vec<u8>>, output: &mut Vec<u8>) {
    let words = match command {
        Value::Array(words) => words.as_slice(),
        _ => &[],
    };
    let reply = match words {
        [b"PING"] => Value::Simple(b"PONG"),
        [b"GET", key] => store.get(*key).map_or(Value::Null, |value| Value::Bulk(value)),
        [b"SET", key, _] if store.len() >= MAX_KEYS && !store.contains_key(*key) => {
            Value::Error(b"OOM too many keys")
        }
        [b"SET", key, value] => {
            store.insert(key.to_vec(), value.to_vec());
            Value::Simple(b"OK")
        }
        [b"DEL", key] => Value::Integer(store.remove(*key).is_some().into()),
        _ => Value::Error(b"ERR unknown command"),
    };
    resp::encode(&reply, output);
}
