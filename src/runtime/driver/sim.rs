//! The simulated backend. (Placeholder types until the simulation lands in this commit series.)

use std::os::fd::RawFd;
use std::time::Instant;

use super::DriverStats;
use super::op::{OpKey, Ops, Request};

#[derive(Debug)]
pub(crate) enum SimDescriptor {}

impl SimDescriptor {
    pub(crate) fn number(&self) -> RawFd {
        match *self {}
    }
}

pub(crate) enum SimPort {}

#[allow(unsafe_code)]
impl SimPort {
    pub(crate) unsafe fn push(&mut self, _key: OpKey, _fd: RawFd, _request: Request) {
        match *self {}
    }
    pub(crate) fn push_cancel(&mut self, _key: OpKey) {
        match *self {}
    }
    pub(crate) fn pushed(&self) -> u64 {
        match *self {}
    }
    pub(crate) fn consumed(&mut self) -> u64 {
        match *self {}
    }
    pub(crate) fn descriptor(&self, _result: i32) -> SimDescriptor {
        match *self {}
    }
    pub(crate) fn open_stream(&self) -> SimDescriptor {
        match *self {}
    }
    pub(crate) fn listen(&self, _address: &socket2::SockAddr) -> std::io::Result<SimDescriptor> {
        match *self {}
    }
    pub(crate) fn local_address(&self, _number: RawFd) -> std::io::Result<socket2::SockAddr> {
        match *self {}
    }
    pub(crate) fn peer_address(&self, _number: RawFd) -> std::io::Result<socket2::SockAddr> {
        match *self {}
    }
    pub(crate) fn reap(&mut self, _ops: &mut Ops, _stats: &mut DriverStats) {
        match *self {}
    }
    pub(crate) fn submit(&mut self, _stats: &mut DriverStats) {
        match *self {}
    }
    pub(crate) fn has_news(&mut self) -> bool {
        match *self {}
    }
    pub(crate) fn now(&self) -> Instant {
        match *self {}
    }
    pub(crate) fn close(&mut self, _ops: &mut Ops) {
        match *self {}
    }
}
