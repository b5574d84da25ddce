//! The box that a connection lives in on one core, with what its lease must know.
//!
//! It is one pointer to move, so that granting and giving back touch a word and not the connection.

use std::rc::Rc;

use super::connection::Connection;
use super::connector::Connector;
use super::scheduler::SlotId;
use super::shard::Shard;

pub(crate) struct Carrier<C: Connector> {
    /// The shard of the core that the connection is on. Shard and idle carriers hold each other; the end of the shard
    /// lets go of the carriers.
    pub(crate) shard: Rc<Shard<C>>,
    /// The shard whose slot it is.
    pub(crate) home: usize,
    pub(crate) slot: SlotId,
    /// Absent only while the carrier is a spare one.
    pub(crate) connection: Option<C::Connection>,
    /// Its receive is armed, from when it was idle: no exchange has run since.
    pub(crate) armed: bool,
    /// It was found idle, and has not been used since.
    pub(crate) rested: bool,
    /// No exchange is under way, and the last one ended well.
    pub(crate) clean: bool,
}

impl<C: Connector> Carrier<C> {
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_quiet)
    }

    /// Has the shard told when something arrives.
    pub(crate) fn arm(&mut self) {
        if let Some(connection) = self.connection.as_mut().filter(|_| !self.armed) {
            self.armed = true;
            self.rested = false;
            connection.arm(self.shard.watch().watch(self.slot.to_bits()));
        }
    }
}
