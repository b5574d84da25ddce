//! Requests with one reply each, made by a lease.

use std::future::Future;
use std::ops::DerefMut;

use tokio_util::codec::{Decoder, Encoder};

use super::connection::FramedConnection;
use super::error::FramedError;
use crate::net::Stream;
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::error::ExchangeError;
use crate::pool::lease::Lease;

/// A frame that says which request or reply it is.
pub trait Correlated {
    /// What a request and its reply have in common.
    type Id: Eq + std::hash::Hash + 'static;

    /// This frame's id.
    fn correlation_id(&self) -> Self::Id;
}

/// A connection on which a request can be made that has one reply.
///
/// Implemented for framed connections of one's own and for shared ones, so that [`Lease::call`] is the same for both.
pub trait Call<Request>: Connection {
    /// What comes back.
    type Reply;
    /// What can go wrong.
    type Error;
    /// Whether the connection keeps its calls apart itself: a call that fails or is dropped then leaves it fit for the
    /// next one, or makes it say that it is not quiet.
    const ISOLATED: bool = false;

    /// Sends `request` and waits for its reply.
    ///
    /// # Errors
    /// The connection's own.
    ///
    /// # Cancel safety
    /// Dropping the future makes the connection dirty unless it is [`ISOLATED`](Call::ISOLATED).
    fn call(&mut self, request: Request) -> impl Future<Output = Result<Self::Reply, Self::Error>>;
}

impl<C: Connector> Lease<C> {
    /// Sends `request` and waits for its reply, as one exchange.
    ///
    /// # Errors
    /// [`ExchangeError::Failed`] with the error of the call: for a connection of one's own a [`FramedError`], which says
    /// whether the request may have been sent. [`ExchangeError::Dirty`] when an earlier exchange left the connection
    /// dirty.
    ///
    /// # Cancel safety
    /// Dropping the future is safe. A connection of one's own is then not used again; on a shared one the late reply is
    /// dropped when it comes.
    ///
    /// # Examples
    /// ```
    /// use corelet::pool::{FramedConnector, Pool, TcpConnector};
    /// use tokio_util::codec::LinesCodec;
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # std::thread::spawn(move || {
    /// #     for stream in server.incoming() {
    /// #         let mut stream = stream.unwrap();
    /// #         std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
    /// #     }
    /// # });
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// // Lines of at most 1,024 bytes, to a server that sends back what it gets.
    /// let connector = FramedConnector::new(TcpConnector::new(address), || LinesCodec::new_with_max_length(1024));
    /// let pool = Pool::builder(connector).build(&handle())?;
    /// let mut lease = pool.acquire().await?;
    /// assert_eq!(lease.call("ping").await?, "ping");
    ///
    /// // Several requests at once are one exchange, too. It must receive what it has asked for.
    /// let replies = lease
    ///     .exchange(async |connection| {
    ///         connection.send("one").await?;
    ///         connection.send("two").await?;
    ///         Ok::<_, corelet::pool::FramedError<_>>([connection.receive().await?, connection.receive().await?])
    ///     })
    ///     .await?;
    /// assert_eq!(replies, ["one", "two"]);
    ///
    /// // A request without its reply leaves the connection dirty, even if all went well.
    /// lease.exchange(async |connection| connection.send("three").await).await?;
    /// assert!(!lease.is_clean());
    /// # drop(lease);
    /// # pool.close().await;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn call<Request>(
        &mut self,
        request: Request,
    ) -> Result<<C::Connection as Call<Request>>::Reply, ExchangeError<<C::Connection as Call<Request>>::Error>>
    where
        C::Connection: Call<Request>,
    {
        let call = async |connection: &mut C::Connection| connection.call(request).await;
        match C::Connection::ISOLATED {
            true => self.isolated(call).await,
            false => self.exchange(call).await,
        }
    }
}

impl<C, S, K> Lease<C>
where
    C: Connector<Connection = FramedConnection<S, K>>,
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
{
    /// As [`call`](Lease::call), for frames that know which request they belong to. A reply that belongs to another one
    /// is an error, and the connection is closed.
    ///
    /// # Errors
    /// As for [`call`](Lease::call), and [`FramedError::WrongReply`].
    ///
    /// # Cancel safety
    /// As for [`call`](Lease::call).
    pub async fn call_correlated<Request>(
        &mut self,
        request: Request,
    ) -> Result<K::Item, ExchangeError<FramedError<<K as Decoder>::Error>>>
    where
        Request: Correlated,
        K: Encoder<Request, Error = <K as Decoder>::Error>,
        K::Item: Correlated<Id = Request::Id>,
    {
        self.exchange(async |connection| connection.call_correlated(request).await).await
    }
}
