//! Settings of a server, and its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::{Address, Peer};
use super::error::{PreambleError, StartError};
use super::gate::Gate;
use super::handle::ServerHandle;
use super::keeper::{self, Command};
use super::preamble::{ByFunction, Opening};
use super::settings::{Bind, Settings, WhenFull};
use crate::net::ListenerOptions;
use crate::runtime::{CoreId, JoinError, RuntimeHandle};
use crate::service::app::IntoPrepared;
use crate::service::connection::Limits;
use crate::service::error::BoxError;
use crate::service::protocol::Protocol;
use crate::service::push::PushSettings;

/// Who may connect to a Unix socket unless the user says otherwise: this user.
const UNIX_MODE: u32 = 0o600;

/// A server that is being set up: an application, addresses, limits. See the [module](super) for what it does.
///
/// # Examples
/// ```
/// use corelet::net::TcpStream;
/// use corelet::runtime::{Cores, Runtime, handle};
/// use corelet::service::app::{Frame, Reply};
/// use corelet::service::{App, Protocol, Server};
/// use tokio_util::codec::LinesCodec;
///
/// struct Lines;
/// impl Protocol for Lines {
///     type Codec = LinesCodec;
///     type Request = String;
///     type Response = String;
///     type Id = ();
///     type Session = ();
///
///     fn codec(&self) -> LinesCodec {
///         LinesCodec::new_with_max_length(1024)
///     }
///     fn session(&self) {}
///     fn id(&self, _line: &String) -> Option<()> {
///         Some(())
///     }
/// }
///
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let app = || App::new(Lines).route((), async |Frame(line): Frame<String>| Reply(line));
///     let server = Server::new(app)
///         .bind(([127, 0, 0, 1], 0).into())
///         .max_connections(1000)
///         .start(&handle())
///         .await?;
///
///     let mut client = TcpStream::connect(server.local_addr()).await?;
///     client.write_all("hello\n").await.0?;
///     let (read, line) = client.read_exact(Vec::with_capacity(6), 6).await;
///     read?;
///     assert_eq!(line, b"hello\n");
///
///     let ended = server.drain(std::time::Duration::from_secs(5)).await?;
///     assert_eq!(ended.connections, 1);
///     # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// })?.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a server does nothing until it is started"]
pub struct Server<P: Protocol> {
    settings: Settings<P>,
    cores: Option<Vec<CoreId>>,
    max_connections: usize,
    max_connections_per_core: usize,
}

impl<P: Protocol> Server<P> {
    /// A server for the application that `factory` makes, once on each core.
    pub fn new<A: IntoPrepared<P>>(factory: impl Fn() -> A + Send + Sync + 'static) -> Server<P> {
        Server {
            settings: Settings {
                factory: Arc::new(move || factory().into_prepared()),
                addresses: Vec::new(),
                listener: ListenerOptions { reuse_port: true, ..ListenerOptions::default() },
                limits: Limits::default(),
                pushes: PushSettings::default(),
                when_full: WhenFull::default(),
                refusal: Arc::default(),
                preamble: None,
                preamble_timeout: Duration::from_secs(5),
                preamble_limit: 4096,
                witness: None,
            },
            cores: None,
            max_connections: usize::MAX,
            max_connections_per_core: 16_384,
        }
    }

    /// Listens on a TCP address too, on every core. Port zero chooses a free one.
    ///
    /// The cores share the address by `SO_REUSEPORT`, and the kernel spreads the connections over them. Another process of
    /// the same user that asks for the same can share it as well, as a restart without a gap needs it; who starts a service twice
    /// by mistake is not told.
    pub fn bind(mut self, address: SocketAddr) -> Server<P> {
        self.settings.addresses.push(Bind { address: Address::Tcp(address), mode: 0 });
        self
    }

    /// Listens on a Unix socket too, to which this user may connect (and root). The first core accepts and
    /// hands the connections on to all of them in turn. A socket there on which nobody listens any more is replaced; the
    /// file is removed at the end.
    pub fn bind_unix(self, path: impl Into<PathBuf>) -> Server<P> {
        self.bind_unix_with_mode(path, UNIX_MODE)
    }

    /// As [`bind_unix`](Server::bind_unix), with another mode for the file, less the umask: `0o666` for everybody.
    pub fn bind_unix_with_mode(mut self, path: impl Into<PathBuf>, mode: u32) -> Server<P> {
        self.settings.addresses.push(Bind { address: Address::Unix(path.into()), mode });
        self
    }

    /// Serves on these cores; on all of the runtime's by default.
    pub fn cores(mut self, cores: impl IntoIterator<Item = CoreId>) -> Server<P> {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// Options of the TCP listeners and of what they accept. `reuse_port` is always on.
    pub fn listener(mut self, options: ListenerOptions) -> Server<P> {
        self.settings.listener = ListenerOptions { reuse_port: true, ..options };
        self
    }

    /// What each connection may use.
    pub fn limits(mut self, limits: Limits) -> Server<P> {
        self.settings.limits = limits;
        self
    }

    /// The push queues of each connection.
    pub fn pushes(mut self, pushes: PushSettings<P::Response>) -> Server<P> {
        self.settings.pushes = pushes;
        self
    }

    /// The most connections at a time on all cores together; no such limit by default. It is exact. Choose it below the limit on
    /// descriptors (`ulimit -n`), less what else takes some.
    pub fn max_connections(mut self, count: usize) -> Server<P> {
        self.max_connections = count;
        self
    }

    /// The most connections at a time on each core; 16,384 by default.
    pub fn max_connections_per_core(mut self, count: usize) -> Server<P> {
        self.max_connections_per_core = count;
        self
    }

    /// What becomes of connections above the limits; [`WhenFull::Refuse`] by default.
    pub fn when_full(mut self, when_full: WhenFull) -> Server<P> {
        self.settings.when_full = when_full;
        self
    }

    /// What is sent to a connection that is refused because there are too many, before it is closed: an encoded
    /// frame, of at most 4,096 bytes. A client that has sent something before may lose it: the kernel resets a
    /// connection that is closed with bytes unread.
    pub fn refusal(mut self, bytes: impl Into<Vec<u8>>) -> Server<P> {
        self.settings.refusal = bytes.into().into();
        self
    }

    /// Has `preamble` run on each connection before its first frame. What it gives is the connection's session; if it gives an error, or is
    /// not done in time, the connection is closed. It may await what it likes; a panic in it ends its connection.
    ///
    /// ```
    /// # use corelet::service::{App, BoxError, Protocol, Server};
    /// # use tokio_util::codec::LinesCodec;
    /// # struct Lines;
    /// # impl Protocol for Lines {
    /// #     type Codec = LinesCodec;
    /// #     type Request = String;
    /// #     type Response = String;
    /// #     type Id = ();
    /// #     type Session = String;
    /// #     fn codec(&self) -> LinesCodec { LinesCodec::new() }
    /// #     fn session(&self) -> String { String::new() }
    /// #     fn id(&self, _line: &String) -> Option<()> { None }
    /// # }
    /// use corelet::service::server::Opening;
    ///
    /// let server = Server::new(|| App::new(Lines)).preamble(async |opening: &mut Opening| {
    ///     let hello = opening.decode(&mut LinesCodec::new_with_max_length(100)).await?;
    ///     let name = hello.strip_prefix("I am ").ok_or("who are you?")?;
    ///     opening.reply("welcome\n").await?;
    ///     Ok::<_, BoxError>(name.to_owned())
    /// });
    /// # drop(server);
    /// ```
    pub fn preamble<F, E>(mut self, preamble: F) -> Server<P>
    where
        F: AsyncFn(&mut Opening) -> Result<P::Session, E> + Send + Sync + 'static,
        E: Into<BoxError>,
    {
        self.settings.preamble = Some(Arc::new(ByFunction(preamble)));
        self
    }

    /// How long a preamble may take as a whole; 5 s by default.
    pub fn preamble_timeout(mut self, limit: Duration) -> Server<P> {
        self.settings.preamble_timeout = limit;
        self
    }

    /// How many bytes a preamble may have before no more are taken in; 4,096 by default. It may see one receive buffer more.
    pub fn preamble_limit(mut self, bytes: usize) -> Server<P> {
        self.settings.preamble_limit = bytes;
        self
    }

    /// Has `witness` told how each preamble ends, on the core of its connection. Of one that panics, or that a drain breaks off, it
    /// hears nothing.
    pub fn on_preamble(
        mut self,
        witness: impl Fn(Peer, Result<&P::Session, &PreambleError>) + Send + Sync + 'static,
    ) -> Server<P> {
        self.settings.witness = Some(Arc::new(witness));
        self
    }

    /// Listens on every core, makes the application on every core, and then begins to accept. May be awaited on any core
    /// or thread.
    ///
    /// # Errors
    /// [`StartError`] names the address and the core. Nothing is left running.
    ///
    /// # Cancel safety
    /// Dropping the future stops what has started.
    pub async fn start(mut self, runtime: &RuntimeHandle) -> Result<ServerHandle, StartError> {
        if self.settings.addresses.is_empty() {
            return Err(StartError::NoAddress);
        }
        let Limits { memory, max_frame, send_at, .. } = self.settings.limits;
        let needed = max_frame.saturating_add(send_at);
        if memory < needed {
            return Err(StartError::Limits { memory, needed });
        }
        let cores = self.cores.take().unwrap_or_else(|| runtime.cores());
        if cores.is_empty() {
            return Err(StartError::NoCores);
        }
        let gate = Gate::new(cores.len(), self.max_connections_per_core, self.max_connections);
        let mut handle = ServerHandle::default();
        for (number, core) in cores.into_iter().enumerate() {
            if let Err(error) = self.start_on(core, number, &gate, runtime, &mut handle).await {
                handle.shutdown().await;
                return Err(error);
            }
        }
        handle.begin();
        Ok(handle)
    }

    async fn start_on(
        &mut self,
        core: CoreId,
        number: usize,
        gate: &Arc<Gate>,
        runtime: &RuntimeHandle,
        handle: &mut ServerHandle,
    ) -> Result<(), StartError> {
        let (settings, gate) = (self.settings.clone(), Arc::clone(gate));
        let prepare = move || async move { keeper::start(settings, gate, number) };
        let prepared = runtime.spawn_on(core, prepare).map_err(|_| StartError::UnknownCore { core })?;
        let (addresses, commands) = prepared.await.map_err(|error| not_started(core, error))??;
        // The others share the port that was chosen.
        for (bind, address) in self.settings.addresses.iter_mut().zip(&addresses) {
            bind.address.clone_from(address);
        }
        handle.add(core, addresses, commands);
        Ok(())
    }
}

fn not_started(core: CoreId, error: JoinError) -> StartError {
    match error.panic_text() {
        _ if error.is_cancelled() => StartError::CoreEnded { core },
        text => StartError::Factory { core, message: text.unwrap_or_else(|| "not with a text".to_owned()) },
    }
}

impl ServerHandle {
    fn begin(&self) {
        let siblings: Arc<[_]> = self.commands().cloned().collect();
        for commands in self.commands() {
            // Refused by a core that has ended.
            let _ = commands.send(Command::Begin(Arc::clone(&siblings)));
        }
    }
}
