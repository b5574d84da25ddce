//! What a server was told, as every core of it has it.

use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::preamble::{ErasedPreamble, Witness};
use crate::net::ListenerOptions;
use crate::service::app::Prepared;
use crate::service::connection::Limits;
use crate::service::error::PrepareError;
use crate::service::protocol::Protocol;
use crate::service::push::PushSettings;

/// What becomes of a connection for which there is no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is accepted and closed at once, after the [refusal](super::Server::refusal) if there is one. Its client knows
    /// where it is.
    #[default]
    Refuse,
    /// It waits for a place. Up to 65 of each listener wait accepted, with a descriptor each, the others in the kernel's backlog; what does
    /// not fit there is dropped by the kernel and tried again by the client's.
    Wait,
}

pub(super) type Factory<P> = dyn Fn() -> Result<Prepared<P>, PrepareError> + Send + Sync;

pub(super) struct Settings<P: Protocol> {
    pub(super) factory: Arc<Factory<P>>,
    pub(super) addresses: Vec<Bind>,
    pub(super) listener: ListenerOptions,
    pub(super) limits: Limits,
    pub(super) pushes: PushSettings<P::Response>,
    pub(super) when_full: WhenFull,
    pub(super) refusal: Arc<[u8]>,
    pub(super) preamble: Option<Arc<dyn ErasedPreamble<P>>>,
    pub(super) preamble_timeout: Duration,
    pub(super) preamble_limit: usize,
    pub(super) witness: Option<Arc<Witness<P::Session>>>,
}

/// Where to listen.
#[derive(Clone)]
pub(super) struct Bind {
    pub(super) address: Address,
    /// Of a Unix socket's file.
    pub(super) mode: u32,
}

impl<P: Protocol> Clone for Settings<P> {
    fn clone(&self) -> Settings<P> {
        Settings {
            factory: Arc::clone(&self.factory),
            addresses: self.addresses.clone(),
            listener: self.listener,
            limits: self.limits,
            pushes: self.pushes.clone(),
            when_full: self.when_full,
            refusal: Arc::clone(&self.refusal),
            preamble: self.preamble.clone(),
            preamble_timeout: self.preamble_timeout,
            preamble_limit: self.preamble_limit,
            witness: self.witness.clone(),
        }
    }
}
