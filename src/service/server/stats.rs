//! What a server counts.

use std::cell::Cell;
use std::time::Instant;

use super::address::Peer;
use crate::actor::Pid;
use crate::runtime::CoreId;
use crate::service::connection::ConnectionId;
use crate::service::counters::Counts;

/// Counts and levels of a server, core by core. Those of one core agree with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// In the order in which the cores were chosen; without those that have ended.
    pub cores: Vec<ServerCoreStats>,
}

impl ServerStats {
    /// Adds a figure up over the cores.
    pub fn sum(&self, figure: impl Fn(&ServerCoreStats) -> u64) -> u64 {
        self.cores.iter().map(figure).sum()
    }
}

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {
        /// Counts and levels of a server on one core.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ServerCoreStats {
            /// The core.
            pub core: CoreId,
            /// What its connections have done.
            pub counts: Counts,
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        /// The cells of one core.
        #[derive(Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Cell<u64>,)*
        }

        impl Counters {
            pub(super) fn read(&self, core: CoreId, counts: Counts) -> ServerCoreStats {
                ServerCoreStats { core, counts, $($name: self.$name.get(),)* }
            }
        }
    };
}

figures! {
    /// How often the factory was called: once.
    factory_calls;
    /// How often a handler was wrapped into a middleware: routes times middleware, whatever the number of connections.
    transformations;
    /// Connections that are open, those in their preamble among them.
    open;
    /// Of those, the ones in their preamble.
    in_preamble;
    /// Connections that were accepted.
    accepted;
    /// Accepts that failed.
    accept_errors;
    /// Connections that were refused because there were as many as there may be.
    refused;
    /// Preambles that were refused, too slow, too long or broken off.
    preambles_failed;
    /// Connections that ended, whatever the reason.
    ended;
    /// Of those, the ones that were dropped because a drain had come to its limit.
    forced;
}

#[inline]
pub(super) fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Its name, which its handlers know too.
    pub id: ConnectionId,
    /// The actor that serves it, by which `corelet top` shows it.
    pub actor: Pid,
    /// Who is at the other end.
    pub peer: Peer,
    /// When it was accepted.
    pub since: Instant,
    /// It has not yet come to the end of its preamble.
    pub in_preamble: bool,
}
