//! A stream with a codec, and the count of the replies that are still to come.

use std::fmt;
use std::io;
use std::mem;
use std::ops::DerefMut;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use super::call::{Call, Correlated};
use super::error::FramedError;
use crate::net::{POST_CAPACITY, Stream};
use crate::pool::connection::Connection;
use crate::runtime::Watch;

/// Room made for the next receive.
const RECEIVE_SIZE: usize = 4096;
/// An idle connection keeps no buffer larger than this.
const KEPT_CAPACITY: usize = 16 * 1024;

/// A stream that speaks in frames of the codec `K`: requests are encoded by it and replies decoded. `S` is
/// [`TcpStream`](crate::net::TcpStream), [`UnixStream`](crate::net::UnixStream) or what is built upon them.
///
/// It knows how many replies are still to come, and is fit for its next user only when none is: a request whose reply
/// was not received makes it dirty, also if nothing has failed. Any error that leaves the stream in an unknown state,
/// and a receive or send that was dropped, does so too.
///
/// # Drop
/// As for the stream.
pub struct FramedConnection<S, K> {
    stream: S,
    /// Lent to a pipeline for as long as that uses the stream.
    codec: Option<K>,
    received: BytesMut,
    to_send: BytesMut,
    /// Replies that requests have called for and that have not been received.
    outstanding: usize,
    /// Bytes have come since the last whole frame. The codec may have taken them out of `received` already.
    within_frame: bool,
    /// The latest request left by a posted send, all of it.
    posted: bool,
    broken: bool,
}

impl<S, K> FramedConnection<S, K>
where
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
{
    /// Frames a stream on which nothing is under way.
    pub fn new(stream: S, codec: K) -> FramedConnection<S, K> {
        FramedConnection {
            stream,
            codec: Some(codec),
            received: BytesMut::new(),
            to_send: BytesMut::new(),
            outstanding: 0,
            within_frame: false,
            posted: false,
            broken: false,
        }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    pub(in crate::pool) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The replies that are still to come.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The codec, for settings that change during a connection's life.
    pub fn codec_mut(&mut self) -> &mut K {
        match &mut self.codec {
            Some(codec) => codec,
            None => unreachable!("a pipeline has the connection to itself"),
        }
    }

    /// Hands stream and codec to a pipeline. Until they come back the connection counts as broken.
    pub(in crate::pool) fn lend_codec(&mut self) -> Option<K> {
        self.broken = true;
        self.codec.take()
    }

    /// The pipeline has ended, with nothing left on the stream if it is `clean`.
    pub(in crate::pool) fn return_codec(&mut self, codec: Option<K>, clean: bool) {
        self.broken = !clean || codec.is_none();
        self.codec = codec;
    }

    /// Sends a request that has one reply. Several may be sent before their replies are received, in their order.
    ///
    /// # Errors
    /// [`FramedError`], which says whether the request may have been sent.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the request was sent: the connection is dirty, and further operations are
    /// refused.
    pub async fn send<Request>(&mut self, request: Request) -> Result<(), FramedError<<K as Decoder>::Error>>
    where
        K: Encoder<Request, Error = <K as Decoder>::Error>,
    {
        if self.broken {
            return Err(FramedError::Broken);
        }
        if self.outstanding == 0 && (self.within_frame || self.stream.has_arrived()) {
            return Err(self.explain_arrival().await);
        }
        let mut bytes = mem::take(&mut self.to_send);
        bytes.clear();
        if let Err(error) = self.codec_mut().encode(request, &mut bytes) {
            self.to_send = bytes;
            return Err(FramedError::Encode(error));
        }
        self.posted = bytes.len() <= POST_CAPACITY;
        // Before the send, so that one that is dropped leaves the connection dirty, and no reply is waited for.
        self.outstanding += 1;
        self.broken = true;
        let (result, bytes) = self.stream.write_all(bytes).await;
        self.to_send = bytes;
        self.broken = result.is_err();
        result.map_err(|source| {
            // A small write fails only because an earlier one had failed.
            FramedError::Io { source, sent: !self.posted }
        })
    }

    /// Something arrived that no request called for. It is there, so this does not wait.
    #[cold]
    async fn explain_arrival(&mut self) -> FramedError<<K as Decoder>::Error> {
        self.broken = true;
        if self.within_frame {
            return FramedError::Unsolicited;
        }
        let (result, _) = self.stream.read(Vec::with_capacity(1)).await;
        match result {
            Ok(0) => FramedError::Closed { sent: false },
            Ok(_) => FramedError::Unsolicited,
            Err(source) => FramedError::Io { source, sent: false },
        }
    }

    /// Receives the reply to the earliest request that has none yet.
    ///
    /// # Errors
    /// [`FramedError`].
    ///
    /// # Cancel safety
    /// Dropping the future can lose bytes: the connection is dirty, and further operations are refused.
    pub async fn receive(&mut self) -> Result<K::Item, FramedError<<K as Decoder>::Error>> {
        if self.broken {
            return Err(FramedError::Broken);
        }
        if self.outstanding == 0 {
            return Err(FramedError::NothingOutstanding);
        }
        // Until it has come.
        self.broken = true;
        let frame = self.next_frame().await?;
        self.broken = false;
        self.outstanding -= 1;
        Ok(frame)
    }

    async fn next_frame(&mut self) -> Result<K::Item, FramedError<<K as Decoder>::Error>> {
        loop {
            if !self.received.is_empty()
                && let Some(frame) = self.decode()?
            {
                self.within_frame = !self.received.is_empty();
                return Ok(frame);
            }
            if self.received.capacity() - self.received.len() < RECEIVE_SIZE / 4 {
                self.received.reserve(RECEIVE_SIZE);
            }
            let (result, received) = self.stream.read(mem::take(&mut self.received)).await;
            self.received = received;
            match result {
                Ok(0) => return self.last_frame(),
                Ok(_) => self.within_frame = true,
                Err(source) => return Err(FramedError::Io { source, sent: self.may_be_sent() }),
            }
        }
    }

    fn decode(&mut self) -> Result<Option<K::Item>, FramedError<<K as Decoder>::Error>> {
        let mut received = mem::take(&mut self.received);
        let decoded = self.codec_mut().decode(&mut received);
        self.received = received;
        decoded.map_err(FramedError::Decode)
    }

    /// The peer has ended its side, which ends a frame in some protocols.
    fn last_frame(&mut self) -> Result<K::Item, FramedError<<K as Decoder>::Error>> {
        let mut received = mem::take(&mut self.received);
        match self.codec_mut().decode_eof(&mut received) {
            Ok(Some(frame)) => Ok(frame),
            _ if self.within_frame => Err(FramedError::ClosedMidFrame),
            Err(error) => Err(FramedError::Decode(error)),
            Ok(None) => Err(FramedError::Closed { sent: self.may_be_sent() }),
        }
    }

    /// Whether the peer may have seen any of the requests that have no reply.
    fn may_be_sent(&self) -> bool {
        !(self.outstanding == 1 && self.posted && self.stream.is_unsent())
    }

    /// Sends a request and receives its reply.
    ///
    /// # Errors
    /// [`FramedError`], which says whether the request may have been sent. [`FramedError::Outstanding`] while replies to
    /// earlier requests are still to come.
    ///
    /// # Cancel safety
    /// Dropping the future makes the connection dirty.
    pub async fn call<Request>(
        &mut self,
        request: Request,
    ) -> Result<K::Item, FramedError<<K as Decoder>::Error>>
    where
        K: Encoder<Request, Error = <K as Decoder>::Error>,
    {
        if self.outstanding > 0 && !self.broken {
            return Err(FramedError::Outstanding { replies: self.outstanding });
        }
        self.send(request).await?;
        self.receive().await
    }

    /// As [`call`](FramedConnection::call), for frames that know which request they belong to.
    ///
    /// # Errors
    /// As for [`call`](FramedConnection::call), and [`FramedError::WrongReply`] for a reply with another id than the
    /// request's.
    ///
    /// # Cancel safety
    /// Dropping the future makes the connection dirty.
    pub async fn call_correlated<Request>(
        &mut self,
        request: Request,
    ) -> Result<K::Item, FramedError<<K as Decoder>::Error>>
    where
        Request: Correlated,
        K: Encoder<Request, Error = <K as Decoder>::Error>,
        K::Item: Correlated<Id = Request::Id>,
    {
        let id = request.correlation_id();
        let reply = self.call(request).await?;
        if reply.correlation_id() == id {
            return Ok(reply);
        }
        self.broken = true;
        Err(FramedError::WrongReply)
    }
}

impl<S, K, Request> Call<Request> for FramedConnection<S, K>
where
    S: Connection + DerefMut<Target = Stream>,
    K: Encoder<Request, Error = <K as Decoder>::Error> + Decoder + Send + 'static,
{
    type Reply = K::Item;
    type Error = FramedError<<K as Decoder>::Error>;

    async fn call(&mut self, request: Request) -> Result<Self::Reply, Self::Error> {
        FramedConnection::call(self, request).await
    }
}

/// A framed connection between two cores, with its codec.
pub struct DetachedFramed<D, K> {
    stream: D,
    codec: K,
}

impl<S, K> Connection for FramedConnection<S, K>
where
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
{
    type Detached = DetachedFramed<S::Detached, K>;

    #[inline]
    fn is_quiet(&self) -> bool {
        self.outstanding == 0 && !self.broken && !self.within_frame && Connection::is_quiet(&self.stream)
    }

    fn arm(&mut self, watch: Watch) {
        for buffer in [&mut self.received, &mut self.to_send] {
            if buffer.capacity() > KEPT_CAPACITY {
                *buffer = BytesMut::new();
            }
        }
        Connection::arm(&mut self.stream, watch);
    }

    fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Connection::poll_quiesce(&mut self.stream, cx)
    }

    fn detach(self) -> Result<Self::Detached, Self> {
        if !self.is_quiet() {
            return Err(self);
        }
        let FramedConnection { stream, codec: Some(codec), .. } = self else {
            unreachable!("a connection whose codec is lent is not quiet")
        };
        match Connection::detach(stream) {
            Ok(stream) => Ok(DetachedFramed { stream, codec }),
            Err(stream) => Err(FramedConnection::new(stream, codec)),
        }
    }

    fn attach(detached: Self::Detached) -> Self {
        FramedConnection::new(S::attach(detached.stream), detached.codec)
    }

    async fn close(self) {
        Connection::close(self.stream).await;
    }
}

impl<S: fmt::Debug, K> fmt::Debug for FramedConnection<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramedConnection")
            .field("stream", &self.stream)
            .field("outstanding", &self.outstanding)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl<D, K> fmt::Debug for DetachedFramed<D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedFramed").finish_non_exhaustive()
    }
}
