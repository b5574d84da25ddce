//! Making sockets: the few synchronous calls that never block, and their counterparts in a simulation.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::descriptor::Descriptor;
use super::{Backend, Driver};

/// How a listener is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenOptions {
    pub(crate) backlog: i32,
    pub(crate) reuse_port: bool,
    /// Who may connect to a Unix listener, as the mode of its file, less the umask; everybody by default.
    pub(crate) mode: Option<u32>,
}

impl Driver {
    /// A stream socket, not connected.
    pub(crate) fn open_stream(&self, domain: Domain) -> io::Result<Descriptor> {
        match &self.backend {
            Backend::Ring(_) => {
                let socket = Socket::new_raw(domain, Type::STREAM.cloexec(), None)?;
                Ok(Descriptor::kernel(socket.into()))
            }
            Backend::Sim(port) => Ok(Descriptor::simulated(port.open_stream())),
        }
    }

    /// A listening socket.
    pub(crate) fn listen(&self, address: &SockAddr, options: ListenOptions) -> io::Result<Descriptor> {
        match &self.backend {
            Backend::Ring(_) => {
                let mut socket = Socket::new_raw(address.domain(), Type::STREAM.cloexec(), None)?;
                if let Some(mode) = options.mode {
                    // Before it is bound: the file inherits the mode, and is never there with another one.
                    let file = File::from(OwnedFd::from(socket));
                    file.set_permissions(Permissions::from_mode(mode))?;
                    socket = OwnedFd::from(file).into();
                }
                if !address.is_unix() {
                    socket.set_reuse_address(true)?;
                    socket.set_reuse_port(options.reuse_port)?;
                }
                socket.bind(address)?;
                socket.listen(options.backlog)?;
                Ok(Descriptor::kernel(socket.into()))
            }
            Backend::Sim(port) => Ok(Descriptor::simulated(port.listen(address)?)),
        }
    }

    pub(crate) fn local_address(&self, descriptor: &Descriptor) -> io::Result<SockAddr> {
        match (&self.backend, descriptor.as_kernel()) {
            (_, Some(fd)) => SockRef::from(&fd.as_fd()).local_addr(),
            (Backend::Sim(port), None) => port.local_address(descriptor.number()),
            (Backend::Ring(_), None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn peer_address(&self, descriptor: &Descriptor) -> io::Result<SockAddr> {
        match (&self.backend, descriptor.as_kernel()) {
            (_, Some(fd)) => SockRef::from(&fd.as_fd()).peer_addr(),
            (Backend::Sim(port), None) => port.peer_address(descriptor.number()),
            (Backend::Ring(_), None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
