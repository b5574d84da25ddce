//! Echoing on one ring.
//!
//! Made for clients that wait for a reply before they send again, as all the subjects do: a connection
//! has two buffers in turn, one being sent while the other receives.
#![allow(unsafe_code)]

use crate::rings::{self, Parts};
use anyhow::{Context, Result};
use io_uring::{cqueue, opcode, squeue, types};
use std::cell::UnsafeCell;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};

const ENTRIES: u32 = 1024;
const BUFFER: usize = 4096;

// What a completion is about, in the upper half of its user data; below it, the connection's index.
const ACCEPTED: u64 = 0;
const INPUT_CLOSED: u64 = 1;
const RECEIVED: u64 = 2;
const SENT: u64 = 3;

type Buffer = UnsafeCell<[u8; BUFFER]>;

/// A place for one connection, kept and used again rather than freed, so that no operation that is
/// still ending can find its buffer gone. The box keeps it where the kernel was told it is.
struct Place {
    stream: Option<TcpStream>,
    buffers: [Buffer; 2],
    /// Which of the two receives.
    receiving: usize,
}

/// Echoes whatever arrives until `input` closes.
pub fn serve(listener: &TcpListener, input: &impl AsRawFd) -> Result<()> {
    let mut ring = rings::ring(ENTRIES)?;
    let mut parts = Parts::of(&mut ring)?;
    // Leaked on purpose: when this returns, the ring may still be receiving, and the process ends anyway.
    let places: &mut Vec<Box<Place>> = Box::leak(Box::default());
    let nothing: &'static Buffer = Box::leak(Box::new(Buffer::new([0; BUFFER])));

    let input = opcode::Read::new(types::Fd(input.as_raw_fd()), nothing.get().cast(), BUFFER as u32)
        .build()
        .user_data(INPUT_CLOSED << 32);
    // SAFETY: the buffer is leaked and nobody else uses it.
    unsafe { parts.push(&input)? };
    push_accept(&mut parts, listener)?;
    loop {
        parts.wait()?;
        while let Some(completion) = parts.next() {
            let index = (completion.user_data() & u64::from(u32::MAX)) as usize;
            match completion.user_data() >> 32 {
                INPUT_CLOSED => return Ok(()),
                ACCEPTED => {
                    accepted(&mut parts, places, &completion)?;
                    if !cqueue::more(completion.flags()) {
                        push_accept(&mut parts, listener)?;
                    }
                }
                RECEIVED => match rings::outcome(&completion) {
                    Ok(length) if length > 0 => echo(&mut parts, index, &mut places[index], length)?,
                    // The client has gone, one way or another.
                    _ => places[index].stream = None,
                },
                // A send that failed: the receive of the same connection fails as well, and ends it.
                _ => {}
            }
        }
    }
}

fn push_accept(parts: &mut Parts<'_>, listener: &TcpListener) -> Result<()> {
    let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).build().user_data(ACCEPTED << 32);
    // SAFETY: the entry points to no memory.
    unsafe { parts.push(&entry) }
}

fn accepted(parts: &mut Parts<'_>, places: &mut Vec<Box<Place>>, completion: &cqueue::Entry) -> Result<()> {
    let descriptor = rings::outcome(completion).context("accept")?;
    // SAFETY: accept has just made this descriptor, and nobody else has seen it.
    let stream = unsafe { TcpStream::from_raw_fd(descriptor as i32) };
    stream.set_nodelay(true)?;
    let index = places.iter().position(|place| place.stream.is_none()).unwrap_or_else(|| {
        let buffers = [Buffer::new([0; BUFFER]), Buffer::new([0; BUFFER])];
        places.push(Box::new(Place { stream: None, buffers, receiving: 0 }));
        places.len() - 1
    });
    places[index].stream = Some(stream);
    push_receive(parts, index, &places[index])
}

/// Sends back what the receiving buffer holds and receives into the other one.
fn echo(parts: &mut Parts<'_>, index: usize, place: &mut Place, length: usize) -> Result<()> {
    let stream = place.stream.as_ref().context("a completion for a connection that is closed")?;
    let received = place.buffers[place.receiving].get().cast::<u8>();
    let send = opcode::Send::new(types::Fd(stream.as_raw_fd()), received, length as u32)
        .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(SENT << 32 | index as u64);
    // SAFETY: places are never freed or moved (see `Place`), and the buffer is not received into before
    // the client has the reply that this send is.
    unsafe { parts.push(&send)? };
    place.receiving = 1 - place.receiving;
    push_receive(parts, index, place)
}

fn push_receive(parts: &mut Parts<'_>, index: usize, place: &Place) -> Result<()> {
    let stream = place.stream.as_ref().context("a receive for a connection that is closed")?;
    let buffer = place.buffers[place.receiving].get().cast::<u8>();
    let receive = opcode::Recv::new(types::Fd(stream.as_raw_fd()), buffer, BUFFER as u32)
        .build()
        .user_data(RECEIVED << 32 | index as u64);
    // SAFETY: as in `echo`: the place stays, and only this receive uses the buffer until it completes.
    unsafe { parts.push(&receive) }
}

#[cfg(test)]
mod tests {
    use crate::rtt::server::Server;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn what_is_sent_comes_back_on_every_connection_also_on_a_place_used_again() {
        let server = Server::in_this_process().unwrap();
        for round in 0..2_u8 {
            let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                for message in 0..3 {
                    let sent = [number as u8 + 10 * message + 100 * round; 64];
                    client.write_all(&sent).unwrap();
                    let mut received = [0; 64];
                    client.read_exact(&mut received).unwrap();
                    assert_eq!(received, sent);
                }
            }
        }
    }
}
