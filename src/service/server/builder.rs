//! Settings of a server, and its start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::accept::{self, Settings};
use super::handle::ServerHandle;
use crate::runtime::{RuntimeHandle, UnknownCore};
use crate::service::app::Prepared;
use crate::service::connection::Limits;
use crate::service::protocol::Protocol;
use crate::service::push::PushSettings;

/// Serves an application on every core of a runtime.
pub struct Server<P: Protocol> {
    factory: Arc<dyn Fn() -> Prepared<P> + Send + Sync>,
    settings: Settings<P>,
}

/// A server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address could not be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A core has ended.
    #[error("a core of the runtime has ended")]
    CoreEnded,
}

impl From<UnknownCore> for StartError {
    fn from(_: UnknownCore) -> StartError {
        StartError::CoreEnded
    }
}

impl<P: Protocol> Server<P> {
    /// A server for the application that `factory` makes, once on each core.
    pub fn new<A: Into<Prepared<P>>>(factory: impl Fn() -> A + Send + Sync + 'static) -> Server<P> {
        let settings = Settings {
            limits: Limits::default(),
            pushes: PushSettings::default(),
            max_connections_per_core: 8192,
        };
        Server { factory: Arc::new(move || factory().into()), settings }
    }

    /// What each connection may use.
    pub fn limits(mut self, limits: Limits) -> Server<P> {
        self.settings.limits = limits;
        self
    }

    /// The push queues of each connection.
    pub fn pushes(mut self, pushes: PushSettings<P::Response>) -> Server<P> {
        self.settings.pushes = pushes;
        self
    }

    /// Listens on `address` on every core of `runtime` and serves.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    ///
    /// # Cancel safety
    /// Dropping the future stops what has started.
    pub async fn start(
        self,
        address: SocketAddr,
        runtime: &RuntimeHandle,
    ) -> Result<ServerHandle, StartError> {
        let mut bound = address;
        let mut cores = Vec::new();
        for core in runtime.cores() {
            let (factory, settings) = (Arc::clone(&self.factory), self.settings.clone());
            let started =
                runtime.spawn_on(core, move || async move { accept::start(bound, &*factory, settings) })?;
            let started = started.await.map_err(|_| StartError::CoreEnded)?;
            let (at, acceptor) = started.map_err(|source| StartError::Listen { address: bound, source })?;
            bound = at;
            cores.push(acceptor);
        }
        Ok(ServerHandle::new(bound, cores))
    }
}
