//! Operations as futures: each owns its buffer while it runs, and leaves it with the driver when it is dropped early.
#![allow(unsafe_code)]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::driver::descriptor::Descriptor;
use super::driver::op::{Completion, OpKey, Request};
use super::driver::owned::{OwnedBuf, OwnedBufMut};
use super::local::Local;

/// An operation that points at no memory of its owner. Dropping it cancels it.
pub(crate) struct PlainOp {
    local: Rc<Local>,
    key: Option<OpKey>,
}

impl PlainOp {
    pub(crate) fn new(local: &Rc<Local>, key: OpKey) -> PlainOp {
        PlainOp { local: Rc::clone(local), key: Some(key) }
    }
}

impl Future for PlainOp {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        let Some(key) = self.key else { panic!("an operation was polled after its end") };
        let polled = self.local.driver().poll(key, cx.waker());
        if polled.is_ready() {
            self.key = None;
        }
        polled
    }
}

impl Drop for PlainOp {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.local.driver().abandon(key, None);
        }
    }
}

/// An operation on memory that `buffer` owns. Dropping it cancels it; the buffer then stays with the driver until the
/// kernel is done with it.
pub(crate) struct BufferOp<B: 'static> {
    local: Rc<Local>,
    key: Option<OpKey>,
    buffer: Option<B>,
    rest: bool,
}

// The buffer is never pinned: what the kernel uses is the memory behind it, which moving the buffer leaves in place.
impl<B> Unpin for BufferOp<B> {}

impl<B: 'static> BufferOp<B> {
    /// # Safety
    /// `request` may point only at memory that stays valid while `buffer` exists unused, wherever it is moved.
    unsafe fn start(local: &Rc<Local>, descriptor: &Descriptor, request: Request, buffer: B) -> BufferOp<B> {
        // SAFETY: the buffer is kept, unused, in the returned value until the completion has been collected, and
        // handed to the driver if that value is dropped before. If it is leaked, so is the buffer.
        let key = unsafe { local.driver().start(descriptor, request, None) };
        BufferOp { local: Rc::clone(local), key: Some(key), buffer: Some(buffer), rest: false }
    }
}

impl<B: 'static> Future for BufferOp<B> {
    type Output = (io::Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(key) = self.key else { panic!("an operation was polled after its end") };
        let Poll::Ready(completion) = self.local.driver().poll(key, cx.waker()) else { return Poll::Pending };
        self.key = None;
        self.rest = completion.rest;
        match self.buffer.take() {
            Some(buffer) => Poll::Ready((completion.into_result(), buffer)),
            None => unreachable!("the buffer leaves with the completion or with the drop"),
        }
    }
}

impl<B: 'static> Drop for BufferOp<B> {
    fn drop(&mut self) {
        if let (Some(key), Some(buffer)) = (self.key.take(), self.buffer.take()) {
            self.local.driver().abandon(key, Some(Box::new(buffer)));
        }
    }
}

/// The kernel takes lengths of 32 bits, and at most this much in one go.
const MAX_LEN: usize = 0x7fff_f000;

/// Receives into the spare room of `buffer`.
pub(crate) fn receive<B: OwnedBufMut>(
    local: &Rc<Local>,
    descriptor: &Descriptor,
    mut buffer: B,
) -> ReceiveOp<B> {
    let (into, len) = buffer.spare();
    let request = Request::Receive { into, len: len.min(MAX_LEN) as u32 };
    // SAFETY: the trait promises that the spare room stays where it is while the buffer is unused.
    ReceiveOp(unsafe { BufferOp::start(local, descriptor, request, buffer) })
}

/// A receive under way; made by [`receive`].
pub(crate) struct ReceiveOp<B: OwnedBufMut>(BufferOp<B>);

impl<B: OwnedBufMut> ReceiveOp<B> {
    /// The operation, for as long as it has not ended.
    pub(crate) fn key(&self) -> Option<OpKey> {
        self.0.key
    }

    /// Whether the socket held more bytes than were taken; known once it has ended.
    pub(crate) fn has_rest(&self) -> bool {
        self.0.rest
    }
}

impl<B: OwnedBufMut> Future for ReceiveOp<B> {
    type Output = (io::Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|(result, mut buffer)| {
            if let Ok(count) = result {
                // SAFETY: the kernel wrote `count` bytes, no more than it was given, to the spare room.
                unsafe { buffer.advance(count) };
            }
            (result, buffer)
        })
    }
}

/// Sends the bytes of `buffer` from `start` on; with `all` until all are sent.
pub(crate) fn send<B: OwnedBuf>(
    local: &Rc<Local>,
    descriptor: &Descriptor,
    buffer: B,
    start: usize,
    all: bool,
) -> BufferOp<B> {
    let bytes = &super::driver::owned::bytes(&buffer)[start..];
    let request = Request::Send { from: bytes.as_ptr(), len: bytes.len().min(MAX_LEN) as u32, all };
    // SAFETY: the trait promises that the bytes stay where they are while the buffer is unused.
    unsafe { BufferOp::start(local, descriptor, request, buffer) }
}

/// A message of several buffers, in the kernel's form.
struct Message<B> {
    buffers: Vec<B>,
    _slices: Vec<libc::iovec>,
    header: Box<libc::msghdr>,
}

/// Sends the bytes of several buffers, as many as the kernel takes at once.
pub(crate) async fn send_vectored<B: OwnedBuf>(
    local: &Rc<Local>,
    descriptor: &Descriptor,
    buffers: Vec<B>,
) -> (io::Result<usize>, Vec<B>) {
    // More slices are an error to the kernel; fewer are only a short write.
    let limit = libc::UIO_MAXIOV as usize;
    let mut slices: Vec<libc::iovec> = buffers
        .iter()
        .take(limit)
        .map(|buffer| libc::iovec {
            iov_base: buffer.stable_ptr().cast_mut().cast(),
            iov_len: buffer.init_len(),
        })
        .collect();
    // SAFETY: all-zero is a valid message header: no name, no slices, no control data.
    let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
    header.msg_iov = slices.as_mut_ptr();
    header.msg_iovlen = slices.len() as _;
    let request = Request::SendVectored { message: &raw const *header };
    let message = Message { buffers, _slices: slices, header };
    // SAFETY: header and slices are heap blocks of the message, and the trait promises the same of the buffers' bytes;
    // all stay in place while the message is unused, wherever it is moved.
    let (result, message) = unsafe { BufferOp::start(local, descriptor, request, message) }.await;
    drop(message.header);
    (result, message.buffers)
}
