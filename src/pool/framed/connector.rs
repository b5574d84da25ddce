//! Where framed connections come from.

use std::fmt;
use std::io;
use std::ops::DerefMut;

use tokio_util::codec::Decoder;

use super::connection::FramedConnection;
use crate::net::Stream;
use crate::pool::connector::Connector;
use crate::pool::scheduler::CloseReason;
use crate::pool::shared::Refresh;

/// Opens connections by another connector and gives each a codec of its own.
///
/// A protocol with a greeting has a connector of its own, which makes [`FramedConnection`]s and
/// [calls](FramedConnection::call) before it returns them.
#[derive(Clone)]
pub struct FramedConnector<C, F> {
    connector: C,
    codec: F,
}

impl<C, F, K> FramedConnector<C, F>
where
    C: Connector,
    F: Fn() -> K + Send + Sync + 'static,
{
    /// Frames what `connector` opens by what `codec` makes. How large a frame may be is for the codec to say.
    pub fn new(connector: C, codec: F) -> FramedConnector<C, F> {
        FramedConnector { connector, codec }
    }
}

impl<C, F, K> Connector for FramedConnector<C, F>
where
    C: Connector<Connection: DerefMut<Target = Stream>>,
    F: Fn() -> K + Send + Sync + 'static,
    K: Decoder + Send + 'static,
{
    type Connection = FramedConnection<C::Connection, K>;

    async fn connect(&self) -> io::Result<Self::Connection> {
        let mut stream = self.connector.connect().await?;
        self.connector.after_connect(&mut stream).await?;
        Ok(FramedConnection::new(stream, (self.codec)()))
    }

    #[inline]
    fn before_lease(&self, connection: &mut Self::Connection) -> bool {
        self.connector.before_lease(connection.stream_mut())
    }

    #[inline]
    fn after_return(&self, connection: &mut Self::Connection) -> bool {
        self.connector.after_return(connection.stream_mut())
    }

    async fn before_close(&self, connection: &mut Self::Connection, reason: CloseReason) {
        self.connector.before_close(connection.stream_mut(), reason).await;
    }

    async fn check(&self, connection: &mut Self::Connection) -> io::Result<()> {
        self.connector.check(connection.stream_mut()).await
    }

    fn is_current(&self, connection: &Self::Connection) -> bool {
        self.connector.is_current(connection.stream())
    }

    fn attached(&self, refresh: Refresh) {
        self.connector.attached(refresh);
    }

    async fn close(&self) {
        self.connector.close().await;
    }
}

impl<C: fmt::Debug, F> fmt::Debug for FramedConnector<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramedConnector").field("connector", &self.connector).finish_non_exhaustive()
    }
}
