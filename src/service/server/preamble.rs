//! What a connection says before its first frame.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use bytes::BytesMut;
use tokio_util::codec::Decoder;

use super::address::Peer;
use super::error::PreambleError;
use crate::net::TcpStream;
use crate::service::error::BoxError;
use crate::service::protocol::Protocol;

/// A connection before its first frame: what has arrived, and a way to answer.
///
/// What a preamble leaves in [`input`](Opening::input) belongs to the frames that follow.
#[derive(Debug)]
pub struct Opening {
    /// Of whichever kind: only the options and addresses of the two differ.
    pub(super) stream: TcpStream,
    pub(super) input: BytesMut,
    pub(super) peer: Peer,
    /// The most bytes that are taken in.
    pub(super) limit: usize,
    pub(super) received: usize,
}

impl Opening {
    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What has arrived and was not taken: take from its front what belongs to the preamble.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Waits for more to arrive.
    ///
    /// # Errors
    /// [`PreambleError`]: the peer has ended its side, has sent more than a preamble may have, or is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: what arrives meanwhile is given to the next call.
    pub async fn more(&mut self) -> Result<(), PreambleError> {
        if self.received >= self.limit {
            return Err(PreambleError::TooLong { limit: self.limit });
        }
        let received = self.stream.receive().await?.ok_or(PreambleError::Closed)?;
        self.received += received.len();
        self.input.extend_from_slice(&received);
        Ok(())
    }

    /// Waits for a frame of the preamble's own codec. `decoder` must leave alone what does not belong to the frame, as
    /// decoders do.
    ///
    /// # Errors
    /// The decoder's, and as for [`more`](Opening::more).
    ///
    /// # Cancel safety
    /// Cancel safe, as the decoder is the caller's.
    pub async fn decode<D>(&mut self, decoder: &mut D) -> Result<D::Item, BoxError>
    where
        D: Decoder<Error: Into<BoxError>>,
    {
        loop {
            if let Some(frame) = decoder.decode(&mut self.input).map_err(Into::into)? {
                return Ok(frame);
            }
            self.more().await?;
        }
    }

    /// Answers.
    ///
    /// # Errors
    /// The connection has failed.
    ///
    /// # Cancel safety
    /// When the future is dropped, a part may have been sent.
    pub async fn reply(&mut self, bytes: impl Into<Vec<u8>>) -> Result<(), PreambleError> {
        Ok(self.stream.write_all(bytes.into()).await.0?)
    }
}

type Greeting<'a, S> = Pin<Box<dyn Future<Output = Result<S, PreambleError>> + 'a>>;

/// A preamble, whatever its type is.
pub(super) trait ErasedPreamble<P: Protocol>: Send + Sync {
    fn greet<'a>(&'a self, opening: &'a mut Opening) -> Greeting<'a, P::Session>;
}

/// An async function as a preamble.
pub(super) struct ByFunction<F>(pub(super) F);

impl<P, F, E> ErasedPreamble<P> for ByFunction<F>
where
    P: Protocol,
    F: AsyncFn(&mut Opening) -> Result<P::Session, E> + Send + Sync,
    E: Into<BoxError>,
{
    fn greet<'a>(&'a self, opening: &'a mut Opening) -> Greeting<'a, P::Session> {
        Box::pin(async move { (self.0)(opening).await.map_err(told_apart) })
    }
}

/// What a preamble was given by its opening is what it was; all else is its own refusal.
fn told_apart(error: impl Into<BoxError>) -> PreambleError {
    match error.into().downcast::<PreambleError>() {
        Ok(error) => *error,
        Err(error) => PreambleError::Refused(error),
    }
}

/// Hears how preambles end.
pub(super) type Witness<S> = dyn Fn(Peer, Result<&S, &PreambleError>) + Send + Sync;

/// Tells `witness`; a panic in it is its own affair.
pub(super) fn tell<S>(witness: &Witness<S>, peer: Peer, outcome: Result<&S, &PreambleError>) {
    let told = catch_unwind(AssertUnwindSafe(|| witness(peer, outcome)));
    if told.is_err() {
        tracing::error!("the observer of preambles panicked");
    }
}
