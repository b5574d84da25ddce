//! What the ring driver takes for granted of the kernel, tried on the kernel itself.
//!
//! The driver posts small sends with MSG_DONTWAIT and MSG_WAITALL and asks for no completion on success. It frees their
//! buffers once the entry is consumed, and takes silence for success. That holds only as long as such a send never
//! outlives the submission, and as long as everything short of success says so.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, opcode, squeue, types};

const POSTED: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;

/// A ring with the flags that the driver's ladder begins with, or without any.
fn rings() -> Vec<IoUring> {
    let deferred = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(8);
    deferred.into_iter().chain([IoUring::new(8).unwrap()]).collect()
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Posts a send and gives what it had to say by the time that the submitting call returned.
fn post(ring: &mut IoUring, socket: &impl AsRawFd, bytes: &[u8]) -> Option<i32> {
    let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
        .flags(POSTED)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(7);
    // SAFETY: the bytes outlive the submission, which is the very thing that this file is about; the descriptor is
    // borrowed for as long.
    unsafe { ring.submission().push(&entry).unwrap() };
    // GETEVENTS, as the driver's every entry, and no waiting.
    // SAFETY: no argument is passed.
    let submitted = unsafe { ring.submitter().enter::<libc::sigset_t>(1, 0, 1, None).unwrap() };
    assert_eq!(submitted, 1);
    assert!(ring.submission().is_empty(), "the entry is consumed");
    let completions: Vec<_> = ring.completion().collect();
    assert!(completions.len() <= 1);
    completions.first().map(|completion| {
        assert_eq!(completion.user_data(), 7);
        completion.result()
    })
}

fn nothing_comes_later(ring: &mut IoUring) {
    let timeout = types::Timespec::new().nsec(20_000_000);
    let args = types::SubmitArgs::new().timespec(&timeout);
    // A time-out is what is expected.
    let waited = ring.submitter().submit_with_args(1, &args);
    assert_eq!(waited.unwrap_err().raw_os_error(), Some(libc::ETIME));
    assert!(ring.completion().is_empty());
}

fn try_posting<S: AsRawFd, P: Read>(near: &S, mut far: P) {
    for mut ring in rings() {
        let bytes = [0x42_u8; 4096];
        assert_eq!(post(&mut ring, near, &bytes), None, "success is silent");
        nothing_comes_later(&mut ring);
        far.read_exact(&mut [0; 4096]).unwrap();

        // Until the socket is full, each send either goes out whole and in silence, or tells at once how far it came.
        let mut sent = 0;
        let large = vec![0x42_u8; 50_001];
        let last = loop {
            match post(&mut ring, near, &large) {
                None => sent += large.len(),
                Some(result) => break result,
            }
            assert!(sent < 1 << 28, "the socket is never full");
        };
        match last {
            1.. => sent += last as usize,
            _ => assert_eq!(last, -libc::EAGAIN),
        }
        // The socket is full now, but for a moment's leeway of the kernel's.
        loop {
            match post(&mut ring, near, &large) {
                Some(errno) if errno == -libc::EAGAIN => break,
                Some(count @ 1..) => sent += count as usize,
                Some(errno) => panic!("errno {}", -errno),
                None => sent += large.len(),
            }
        }
        // None of them is sent behind our back when there is room again.
        let mut taken = vec![0; sent];
        far.read_exact(&mut taken).unwrap();
        nothing_comes_later(&mut ring);
        assert!(taken.iter().all(|byte| *byte == 0x42));
        assert_eq!(post(&mut ring, near, b"last"), None);
        let mut four = [0; 4];
        far.read_exact(&mut four).unwrap();
        assert_eq!(&four, b"last", "exactly what was counted was sent");
    }
}

#[test]
fn a_posted_send_over_tcp_is_decided_when_it_is_submitted() {
    let (near, far) = tcp_pair();
    try_posting(&near, far);
}

#[test]
fn a_posted_send_over_a_unix_socket_is_decided_when_it_is_submitted() {
    let (near, far) = UnixStream::pair().unwrap();
    try_posting(&near, far);
}

#[test]
fn a_posted_send_that_fails_says_so() {
    for mut ring in rings() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(post(&mut ring, &near, b"late"), Some(-libc::EPIPE));
        let (near, _far) = tcp_pair();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(post(&mut ring, &near, b"late"), Some(-libc::EPIPE));
        assert_eq!(post(&mut ring, &-1, b"nowhere"), Some(-libc::EBADF));
    }
}

/// The buffer of a posted send may be changed as soon as the submitting call has returned.
#[test]
fn a_posted_sends_buffer_is_free_after_the_submission() {
    for mut ring in rings() {
        for round in 0..200_u32 {
            let (near, mut far) = if round % 2 == 0 {
                let (near, far) = tcp_pair();
                let far: Box<dyn Read> = Box::new(far);
                (std::os::fd::OwnedFd::from(near), far)
            } else {
                let (near, far) = UnixStream::pair().unwrap();
                let far: Box<dyn Read> = Box::new(far);
                (std::os::fd::OwnedFd::from(near), far)
            };
            let mut bytes = [1_u8; 4096];
            assert_eq!(post(&mut ring, &near, &bytes), None);
            bytes.fill(2);
            let mut got = [0; 4096];
            far.read_exact(&mut got).unwrap();
            assert_eq!(got, [1; 4096]);
            assert_eq!(bytes, [2; 4096]);
        }
    }
}
