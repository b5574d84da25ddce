//! The one task of a pipelined socket: it writes what the sessions have encoded, receives, and hands the replies out.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::ops::DerefMut;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio_util::codec::Decoder;

use super::matching::Matching;
use super::pipe::Pipe;
use crate::net::{ReadHalf, Stream, WriteHalf};
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::framed::FramedConnection;
use crate::pool::lease::Lease;
use crate::pool::sharing::error::SocketFailure;
use crate::runtime::Sleep;

/// A buffer larger than this is not kept for the next write.
const KEPT_CAPACITY: usize = 64 * 1024;

type Failure<K> = SocketFailure<<K as Decoder>::Error>;

/// Serves the sessions of `pipe` on the leased socket until the last of them is gone or the socket has failed; then
/// gives the socket back.
pub(super) async fn serve<C, S, K, M>(mut lease: Lease<C>, pipe: Rc<Pipe<K, M>>)
where
    C: Connector<Connection = FramedConnection<S, K>>,
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
    M: Matching<K::Item>,
{
    // Also when this task is dropped, or the codec panics.
    let _end = End(&pipe);
    let mut failed = false;
    let _ = lease
        .exchange(async |connection| {
            let driven = drive(&pipe, connection.stream_mut()).await;
            let clean = matches!(driven, Ok(true));
            if let Err(cause) = driven {
                failed = true;
                pipe.fail(cause);
            }
            connection.return_codec(pipe.take_codec(), clean);
            if clean { Ok(()) } else { Err(()) }
        })
        .await;
    if failed {
        lease.mark_broken();
    }
    drop(lease);
}

struct End<'a, K, M>(&'a Pipe<K, M>)
where
    K: Decoder + 'static,
    M: Matching<K::Item>;

impl<K, M> Drop for End<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn drop(&mut self) {
        self.0.fail(SocketFailure::Stopped);
        self.0.end();
    }
}

/// True when the sessions are gone and nothing is left on the socket.
async fn drive<K, M>(pipe: &Pipe<K, M>, stream: &mut Stream) -> Result<bool, Failure<K>>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    let (reader, writer) = stream.split();
    let within_frame = Cell::new(false);
    let mut reading = pin!(read(pipe, reader, &within_frame));
    let mut writing = pin!(write(pipe, writer));
    let mut overdue = Overdue(None);
    let mut told = Vec::new();
    poll_fn(|cx| {
        pipe.watch.take_fired(&mut told);
        if !told.is_empty() {
            told.clear();
            pipe.wind_up();
        }
        if let Poll::Ready(cause) = reading.as_mut().poll(cx) {
            return Poll::Ready(Err(cause));
        }
        if let Poll::Ready(cause) = writing.as_mut().poll(cx) {
            return Poll::Ready(Err(cause));
        }
        if pipe.is_over() {
            return Poll::Ready(Err(SocketFailure::Stopped));
        }
        if pipe.is_retired() {
            return Poll::Ready(Ok(pipe.is_drained() && !within_frame.get()));
        }
        overdue.poll(pipe, cx).map(Err)
    })
    .await
}

/// Writes what the sessions have encoded, all of it at once.
async fn write<K, M>(pipe: &Pipe<K, M>, mut writer: WriteHalf<'_>) -> Failure<K>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    let mut spare = BytesMut::new();
    loop {
        // The task is woken by whoever makes the first request of a batch.
        let batch = poll_fn(|_| pipe.take_batch(&mut spare).map_or(Poll::Pending, Poll::Ready)).await;
        let (result, batch) = writer.write_all(batch).await;
        if let Err(error) = result {
            return SocketFailure::Io(error);
        }
        pipe.wrote();
        spare = if batch.capacity() > KEPT_CAPACITY { BytesMut::new() } else { batch };
        spare.clear();
    }
}

/// Receives, and hands out whole frames.
async fn read<K, M>(pipe: &Pipe<K, M>, mut reader: ReadHalf<'_>, within_frame: &Cell<bool>) -> Failure<K>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    let mut received = BytesMut::new();
    loop {
        let ended = match reader.receive().await {
            Ok(Some(bytes)) => {
                received.extend_from_slice(&bytes);
                within_frame.set(true);
                false
            }
            Ok(None) => true,
            Err(error) => return SocketFailure::Io(error),
        };
        while !received.is_empty() || ended {
            match pipe.decode(&mut received, ended) {
                Ok(Some(frame)) => {
                    within_frame.set(!received.is_empty());
                    if let Err(cause) = pipe.deliver(frame) {
                        return cause;
                    }
                }
                Err(cause) if !ended => return cause,
                _ => break,
            }
        }
        if ended {
            return if within_frame.get() { SocketFailure::ClosedMidFrame } else { SocketFailure::Closed };
        }
        pipe.admit();
    }
}

/// Looks after the oldest reply. A timer that was set for an earlier request stays: most replies come in time, and
/// looking once in vain costs less than setting it anew each time.
struct Overdue(Option<Sleep>);

impl Overdue {
    fn poll<K, M>(&mut self, pipe: &Pipe<K, M>, cx: &mut Context<'_>) -> Poll<Failure<K>>
    where
        K: Decoder + 'static,
        M: Matching<K::Item>,
    {
        let Some(limit) = pipe.reply_timeout else { return Poll::Pending };
        loop {
            if let Some(timer) = &mut self.0 {
                if Pin::new(timer).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.0 = None;
            }
            let Some(due) = pipe.oldest_since().and_then(|since| since.checked_add(limit)) else {
                return Poll::Pending;
            };
            if due <= pipe.local().now() {
                return Poll::Ready(SocketFailure::Overdue { after: limit });
            }
            self.0 = Some(Sleep::on(pipe.local(), due));
        }
    }
}
