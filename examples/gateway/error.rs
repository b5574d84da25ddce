//! Why the gateway could not run.

use std::io;
use std::net::SocketAddr;

use corelet::pool::BuildError;
use corelet::runtime::{JoinError, StartError, UnknownCore};

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("the runtime could not be started")]
    Start(#[from] StartError),
    #[error("the pool could not be built")]
    Build(#[from] BuildError),
    #[error("--skew needs at least two cores, one to be loaded and one to stay cold")]
    OneCore,
    #[error("--upstream {name} is no address")]
    Resolve { name: String, source: io::Error },
    #[error("the upstream at {address} cannot be used")]
    Probe { address: SocketAddr, source: io::Error },
    #[error("cannot serve")]
    Serve(#[from] corelet::service::server::StartError),
    #[error("cannot take over signals")]
    Signals(#[source] io::Error),
    #[cfg(feature = "observer")]
    #[error("the gateway cannot be looked into")]
    Observe(#[from] corelet::observer::ObserverError),
    #[error("a task of the gateway failed")]
    Task(#[from] JoinError),
    #[error("a core of the gateway is missing")]
    Core(#[from] UnknownCore),
}

impl GatewayError {
    /// The error and its causes in one line.
    pub fn in_one_line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }
}
