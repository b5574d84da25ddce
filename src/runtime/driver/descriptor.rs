//! Descriptors that close when their last user is done: the handle that owns one, and every operation in flight on it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::sim::SimDescriptor;

/// A descriptor shared by its owner and by the operations in flight. Closing waits for the last of them, so that no
/// queued entry ever meets a number that was closed and given to somebody else.
#[derive(Debug, Clone)]
pub(crate) struct Descriptor(Rc<Kind>);

#[derive(Debug)]
enum Kind {
    Kernel(OwnedFd),
    Simulated(SimDescriptor),
}

impl Descriptor {
    pub(crate) fn kernel(fd: OwnedFd) -> Descriptor {
        Descriptor(Rc::new(Kind::Kernel(fd)))
    }

    pub(crate) fn simulated(fd: SimDescriptor) -> Descriptor {
        Descriptor(Rc::new(Kind::Simulated(fd)))
    }

    /// The number that the driver's requests carry.
    pub(crate) fn number(&self) -> RawFd {
        match &*self.0 {
            Kind::Kernel(fd) => fd.as_raw_fd(),
            Kind::Simulated(fd) => fd.number(),
        }
    }

    /// The kernel's descriptor, for the few synchronous calls (options, addresses); none in a simulation.
    pub(crate) fn as_kernel(&self) -> Option<&OwnedFd> {
        match &*self.0 {
            Kind::Kernel(fd) => Some(fd),
            Kind::Simulated(_) => None,
        }
    }

    /// Whether no operation in flight uses it.
    pub(crate) fn is_unique(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// The descriptor by value, when nobody else uses it.
    pub(crate) fn into_owned(self) -> Result<DetachedDescriptor, Descriptor> {
        match Rc::try_unwrap(self.0) {
            Ok(Kind::Kernel(fd)) => Ok(DetachedDescriptor::Kernel(fd)),
            Ok(Kind::Simulated(fd)) => Ok(DetachedDescriptor::Simulated(fd)),
            Err(shared) => Err(Descriptor(shared)),
        }
    }
}

/// A descriptor between two cores: nobody uses it, no ring knows it.
#[derive(Debug)]
pub(crate) enum DetachedDescriptor {
    Kernel(OwnedFd),
    Simulated(SimDescriptor),
}

impl DetachedDescriptor {
    pub(crate) fn attach(self) -> Descriptor {
        match self {
            DetachedDescriptor::Kernel(fd) => Descriptor::kernel(fd),
            DetachedDescriptor::Simulated(fd) => Descriptor::simulated(fd),
        }
    }
}
