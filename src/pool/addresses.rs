//! Where a connector finds its peers: a list that stays, or a name that is resolved again and again.
//!
//! A resolver may block for as long as it likes: it runs on a thread of its own. Each answer replaces the one before it,
//! unless it is an error or empty; a resolver that fails now and then must not take the addresses away that are known.
//!
//! Never: a name resolved on a core.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::shared::Refresh;
use crate::lock::{Guard, Lock, Rank};

/// Finds the present addresses of a peer. Any `FnMut() -> io::Result<Vec<SocketAddr>>` does.
pub trait Resolve: Send + 'static {
    /// The addresses, as they are now. May block; called on a thread of its own. A panic counts as an error.
    ///
    /// # Errors
    /// When they could not be found out. The known ones stay in use then.
    fn resolve(&mut self) -> io::Result<Vec<SocketAddr>>;
}

impl<F: FnMut() -> io::Result<Vec<SocketAddr>> + Send + 'static> Resolve for F {
    fn resolve(&mut self) -> io::Result<Vec<SocketAddr>> {
        self()
    }
}

/// The addresses of one peer. Clones are the same list.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::pool::{Addresses, Pool, TcpConnector};
///
/// # use corelet::runtime::{Cores, Runtime, handle};
/// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
/// # let port = server.local_addr()?.port();
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(move || async move {
/// let addresses = Addresses::resolved("127.0.0.1", port, Duration::from_secs(30))?;
/// let pool = Pool::builder(TcpConnector::to(addresses.clone())).build(&handle())?;
/// let lease = pool.acquire().await?;
/// assert_eq!(addresses.known()[0].port(), port);
/// # drop(lease);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # })?.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Drop
/// With the last clone ends the resolver's thread, when the resolver returns.
#[derive(Clone)]
pub struct Addresses(Arc<Book>);

struct Book {
    /// Where the next connect begins.
    next: AtomicUsize,
    /// Asks the resolver's thread, if there is one.
    ask: Option<Sender<()>>,
    page: Lock<Page>,
}

struct Page {
    known: Arc<[SocketAddr]>,
    /// Answers there have been, errors included.
    answers: u64,
    /// Why the latest answer was none.
    error: Option<Arc<io::Error>>,
    waiting: Vec<Waker>,
    pools: Vec<Refresh>,
}

impl Addresses {
    /// A list that stays as it is. A connector without any address fails to connect.
    pub fn fixed(addresses: impl IntoIterator<Item = SocketAddr>) -> Addresses {
        Addresses(Arc::new(Book::new(addresses.into_iter().collect(), None)))
    }

    /// What the system's resolver says of `host`, now and again after `every` from each answer. Starts a thread.
    ///
    /// # Errors
    /// The system's, when there can be no further thread.
    pub fn resolved(host: impl Into<String>, port: u16, every: Duration) -> io::Result<Addresses> {
        let host = host.into();
        Addresses::resolved_by(every, move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
    }

    /// What `resolver` says, now and again after `every` from each answer. Starts a thread.
    ///
    /// # Errors
    /// The system's, when there can be no further thread.
    pub fn resolved_by(every: Duration, resolver: impl Resolve) -> io::Result<Addresses> {
        let (ask, asked) = channel();
        let book = Arc::new(Book::new(Vec::new(), Some(ask)));
        let theirs = Arc::downgrade(&book);
        std::thread::Builder::new()
            .name("corelet-resolve".to_owned())
            .spawn(move || keep_resolving(&theirs, &asked, every, resolver))?;
        Ok(Addresses(book))
    }

    /// The addresses known now; none before the first answer.
    pub fn known(&self) -> Vec<SocketAddr> {
        self.0.page().known.to_vec()
    }

    /// Has the name resolved again, soon. Does nothing for a fixed list.
    pub fn resolve_now(&self) {
        if let Some(ask) = &self.0.ask {
            // Refused only when the resolver's thread has ended, which nobody who could ask outlives.
            let _ = ask.send(());
        }
    }

    /// The addresses known now, or what the next answer brings if there are none.
    pub(super) async fn get(&self) -> io::Result<Arc<[SocketAddr]>> {
        let seen = {
            let page = self.0.page();
            // The first answer is under way from the beginning.
            if page.known.is_empty() && page.answers > 0 {
                self.resolve_now();
            }
            page.answers
        };
        poll_fn(|cx| {
            let mut page = self.0.page();
            if !page.known.is_empty() {
                return Poll::Ready(Ok(Arc::clone(&page.known)));
            }
            if self.0.ask.is_none() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::NotFound, "no address is given")));
            }
            if page.answers > seen {
                let cause =
                    page.error.as_ref().map_or("there are none".to_owned(), |cause| cause.to_string());
                let kind = page.error.as_ref().map_or(io::ErrorKind::NotFound, |cause| cause.kind());
                return Poll::Ready(Err(io::Error::new(kind, format!("no address is known: {cause}"))));
            }
            page.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Where to begin among the addresses this time: each one's turn comes.
    pub(super) fn turn(&self) -> usize {
        self.0.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a connection to this peer is one that would be made today.
    pub(super) fn is_current(&self, peer: SocketAddr) -> bool {
        let same = |known: &SocketAddr| (known.ip(), known.port()) == (peer.ip(), peer.port());
        self.0.ask.is_none() || self.0.page().known.iter().any(same)
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.0.ask.is_none()
    }

    /// Has this pool told of each new answer.
    pub(super) fn tell(&self, pool: Refresh) {
        let mut page = self.0.page();
        page.pools.retain(|pool| !pool.is_stale());
        page.pools.push(pool);
    }
}

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Addresses {
        Addresses::fixed([address])
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").field("fixed", &self.is_fixed()).field("known", &self.known()).finish()
    }
}

impl Book {
    fn new(known: Vec<SocketAddr>, ask: Option<Sender<()>>) -> Book {
        let page =
            Page { known: known.into(), answers: 0, error: None, waiting: Vec::new(), pools: Vec::new() };
        Book { next: AtomicUsize::new(0), ask, page: Lock::new(Rank::Pool, page) }
    }

    fn page(&self) -> Guard<'_, Page> {
        self.page.lock()
    }

    /// Takes an answer. The pools are told when it brings or takes an address.
    fn file(&self, answer: io::Result<Vec<SocketAddr>>) {
        let mut page = self.page();
        page.answers += 1;
        let mut told = Vec::new();
        match answer {
            Ok(found) if !found.is_empty() => {
                page.error = None;
                let same = found.iter().all(|address| page.known.contains(address))
                    && page.known.iter().all(|address| found.contains(address));
                if !same {
                    tracing::debug!(?found, "a peer has other addresses");
                    page.known = found.into();
                    told.clone_from(&page.pools);
                }
            }
            Ok(_) => page.error = None,
            Err(error) => {
                tracing::debug!(%error, "a peer's addresses could not be found out");
                page.error = Some(Arc::new(error));
            }
        }
        let waiting = std::mem::take(&mut page.waiting);
        drop(page);
        waiting.into_iter().for_each(Waker::wake);
        told.iter().for_each(Refresh::notify);
    }
}

fn keep_resolving(book: &Weak<Book>, asked: &Receiver<()>, every: Duration, mut resolver: impl Resolve) {
    loop {
        let answer = catch_unwind(AssertUnwindSafe(|| resolver.resolve()))
            .unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")));
        match book.upgrade() {
            Some(book) => book.file(answer),
            None => return,
        }
        if asked.recv_timeout(every) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // One answer is enough for all who have asked.
        while asked.try_recv().is_ok() {}
    }
}
