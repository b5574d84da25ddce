//! One core's share of a server.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use super::handle::Acceptor;
use crate::actor::channel;
use crate::actor::{Arm, select};
use crate::net::{ListenerOptions, TcpListener};
use crate::runtime::spawn;
use crate::service::app::Prepared;
use crate::service::connection::{Connection, Limits, serve_connection};
use crate::service::protocol::Protocol;
use crate::service::push::PushSettings;

pub(super) struct Settings<P: Protocol> {
    pub(super) limits: Limits,
    pub(super) pushes: PushSettings<P::Response>,
    pub(super) max_connections_per_core: usize,
}

impl<P: Protocol> Clone for Settings<P> {
    fn clone(&self) -> Settings<P> {
        Settings { limits: self.limits.clone(), pushes: self.pushes.clone(), ..*self }
    }
}

/// What a server's handle says to its cores.
pub(super) enum Command {
    Stop,
}

/// Listens on the current core.
pub(super) fn start<P: Protocol>(
    address: SocketAddr,
    factory: &dyn Fn() -> Prepared<P>,
    settings: Settings<P>,
) -> io::Result<(SocketAddr, Acceptor)> {
    let options = ListenerOptions { reuse_port: true, ..ListenerOptions::default() };
    let listener = TcpListener::bind_with(address, options)?;
    let address = listener.local_addr()?;
    let (commands, receiver) = channel::unbounded();
    spawn(accept(listener, factory(), settings, receiver)).detach();
    Ok((address, Acceptor { commands }))
}

async fn accept<P: Protocol>(
    mut listener: TcpListener,
    app: Prepared<P>,
    settings: Settings<P>,
    mut commands: channel::Receiver<Command>,
) {
    let open = Rc::new(Cell::new(0_usize));
    loop {
        let stream = match select((commands.recv(), listener.accept())).await {
            Arm::First(_) => return,
            Arm::Second(Ok(stream)) => stream,
            // Out of descriptors, most likely. The next accept waits a little by itself.
            Arm::Second(Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                continue;
            }
        };
        if open.get() >= settings.max_connections_per_core {
            continue;
        }
        let place = Place::take(&open);
        let connection = Connection::new(&app, settings.pushes.clone());
        let serving = serve_connection(stream, connection, settings.limits.clone());
        spawn(async move {
            let _place = place;
            serving.await;
        })
        .detach();
    }
}

/// Counts a connection for as long as it lives.
struct Place(Rc<Cell<usize>>);

impl Place {
    fn take(open: &Rc<Cell<usize>>) -> Place {
        open.set(open.get() + 1);
        Place(Rc::clone(open))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
