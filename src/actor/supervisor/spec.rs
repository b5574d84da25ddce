//! What a supervisor has to know of a child to start it again and again.

use std::fmt;
use std::future::{Future, Ready};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::Supervisor;
use super::builder::SupervisorBuilder;
use super::launch::Cradle;
use super::policy::{Restart, Shutdown};
use crate::actor::channel::{Queue, Receiver};
use crate::actor::pid::{Addressable, Pid};
use crate::actor::process::Process;
use crate::actor::spawn::exit;
use crate::runtime::{CoreId, RawPid, context};

/// A child of a supervisor: how it is started, on which core, and what happens when it ends. Erlang's *child specification*.
///
/// # Init
/// The function that a child is made of is called for each of its lives, on the child's core and in the child's own task. It
/// may be all of the child, and give nothing: then the child counts as started at once. Or it is only the child's *init*, and
/// gives `Ok` with the rest of the child, a future, or `Err`, which is a failure. Then whoever waits for the start waits for that, and children
/// that are started after this one find it ready.
///
/// A child that ends before it has started, in whatever way, has failed to start. Later it fails by a panic or by
/// [`exit`](crate::actor::exit).
///
/// ```
/// use std::future::pending;
/// use corelet::actor::supervisor::{ChildSpec, Restart};
///
/// let simple = ChildSpec::new("clock", async || pending::<()>().await);
/// let port = "7000";
/// let careful = ChildSpec::new("listener", async move || {
///     let port: u16 = port.parse()?;
///     Ok::<_, std::num::ParseIntError>(async move {
///         println!("listening on {port}");
///         pending::<()>().await
///     })
/// })
/// .restart(Restart::Transient);
/// # let _ = (simple, careful);
/// ```
pub struct ChildSpec {
    pub(super) id: Arc<str>,
    pub(super) core: Option<CoreId>,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) kind: ChildKind,
    pub(super) start: Arc<dyn Start>,
}

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildKind {
    /// An actor that does the work.
    Worker,
    /// A supervisor with children of its own.
    Supervisor,
}

impl ChildSpec {
    /// A child without an address.
    pub fn new<F, Out>(id: impl Into<Arc<str>>, start: F) -> ChildSpec
    where
        F: AsyncFn() -> Out + Send + Sync + 'static,
        Out: ChildOutput,
    {
        ChildSpec::made(id.into(), ChildKind::Worker, Arc::new(Plain(Arc::new(start))))
    }

    /// A child with an address and a mailbox without a bound, which is there before the child runs. Each life has a mailbox
    /// of its own; `place` knows the pid of the present one.
    pub fn addressed<A, F, Out>(id: impl Into<Arc<str>>, place: &ChildRef<A>, start: F) -> ChildSpec
    where
        A: Addressable,
        F: AsyncFn(Receiver<A::Msg>) -> Out + Send + Sync + 'static,
        Out: ChildOutput,
    {
        let start = Addressed { start: Arc::new(start), place: place.clone() };
        ChildSpec::made(id.into(), ChildKind::Worker, Arc::new(start))
    }

    /// A supervisor. `builder` is called for each of its lives. Its start is over when its own children have started, and its
    /// end may take as long as theirs.
    pub fn supervisor<F>(id: impl Into<Arc<str>>, place: &ChildRef<Supervisor>, builder: F) -> ChildSpec
    where
        F: Fn() -> SupervisorBuilder + Send + Sync + 'static,
    {
        let builder = Arc::new(builder);
        let start = async move |inbox| super::nursery::begin(builder(), inbox, None).await;
        let start = Addressed { start: Arc::new(start), place: place.clone() };
        ChildSpec::made(id.into(), ChildKind::Supervisor, Arc::new(start)).shutdown(Shutdown::Unlimited)
    }

    pub(in crate::actor) fn made(id: Arc<str>, kind: ChildKind, start: Arc<dyn Start>) -> ChildSpec {
        let (restart, shutdown) = (Restart::default(), Shutdown::default());
        ChildSpec { id, core: None, restart, shutdown, kind, start }
    }

    /// When it is started again; always, by default.
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// How long it may take to end when it is told to; by default five seconds, and as long as it likes for a supervisor.
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = shutdown;
        self
    }

    /// The core it runs on, of the supervisor's runtime; by default its supervisor's. When that core has ended, each start there
    /// fails.
    pub fn on(mut self, core: CoreId) -> ChildSpec {
        self.core = Some(core);
        self
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("core", &self.core)
            .field("restart", &self.restart)
            .field("shutdown", &self.shutdown)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Where the pid of a child's present life is found, from any thread; given to [`ChildSpec::addressed`].
///
/// It has none before the child has started, and none from when its supervisor has heard of its end until it has started
/// again. A pid that was taken meanwhile names the life that has ended, and sends to it fail.
pub struct ChildRef<A> {
    raw: Arc<ArcSwapOption<RawPid>>,
    kind: PhantomData<fn() -> A>,
}

impl<A> ChildRef<A> {
    /// A place for one child's pid.
    pub fn new() -> ChildRef<A> {
        ChildRef { raw: Arc::new(ArcSwapOption::const_empty()), kind: PhantomData }
    }

    /// The calling actor is the child.
    pub(in crate::actor) fn set_to_myself(&self) {
        self.raw.store(context::current_task().map(Arc::new));
    }

    /// There is no child.
    pub(in crate::actor) fn clear(&self) {
        self.raw.store(None);
    }

    /// The child, as it lives now.
    pub fn pid(&self) -> Option<Pid<A>> {
        self.raw.load().as_deref().map(|raw| Pid::new(*raw))
    }
}

impl<A> Default for ChildRef<A> {
    fn default() -> ChildRef<A> {
        ChildRef::new()
    }
}

// Not derived: a derive would ask the same of `A`.
impl<A> Clone for ChildRef<A> {
    fn clone(&self) -> ChildRef<A> {
        ChildRef { raw: Arc::clone(&self.raw), kind: PhantomData }
    }
}

impl<A> fmt::Debug for ChildRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildRef").field(&self.pid()).finish()
    }
}

/// What the function of a child gives: nothing, when it was all of the child, or the rest of the child after its init. See
/// [`ChildSpec`].
pub trait ChildOutput: Sized + 'static + private::Sealed {
    /// Whether the child has started only when its function has given this.
    #[doc(hidden)]
    const INIT: bool;
    #[doc(hidden)]
    type Rest: Future + 'static;
    #[doc(hidden)]
    fn rest(self) -> Result<Self::Rest, Arc<str>>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for super::Never {}
    impl<Rest, E> Sealed for Result<Rest, E> {}

    /// Gives a name to what a function returns.
    pub trait Returns {
        type Output;
    }
    impl<R> Returns for fn() -> R {
        type Output = R;
    }
}

/// What a child gives that goes on for ever; the type `!`, which has no name of its own yet.
type Never = <fn() -> ! as private::Returns>::Output;

impl ChildOutput for () {
    const INIT: bool = false;
    type Rest = Ready<()>;

    fn rest(self) -> Result<Ready<()>, Arc<str>> {
        Ok(std::future::ready(()))
    }
}

impl ChildOutput for Never {
    const INIT: bool = false;
    type Rest = Ready<()>;

    fn rest(self) -> Result<Ready<()>, Arc<str>> {
        self
    }
}

impl<Rest, E> ChildOutput for Result<Rest, E>
where
    Rest: Future + 'static,
    E: fmt::Display + 'static,
{
    const INIT: bool = true;
    type Rest = Rest;

    fn rest(self) -> Result<Rest, Arc<str>> {
        self.map_err(|error| error.to_string().into())
    }
}

/// Starts a child on the current core, again and again.
pub(in crate::actor) trait Start: Send + Sync {
    fn spawn(&self, cradle: Cradle) -> RawPid;
    /// The life that it started has ended.
    fn ended(&self) {}
}

struct Plain<F>(Arc<F>);

impl<F, Out> Start for Plain<F>
where
    F: AsyncFn() -> Out + Send + Sync + 'static,
    Out: ChildOutput,
{
    fn spawn(&self, cradle: Cradle) -> RawPid {
        let start = Arc::clone(&self.0);
        let task = context::spawn(async move { live(start(), || cradle.started()).await });
        let pid = task.pid();
        task.detach();
        pid
    }
}

struct Addressed<A, F> {
    start: Arc<F>,
    place: ChildRef<A>,
}

impl<A, F, Out> Start for Addressed<A, F>
where
    A: Addressable,
    F: AsyncFn(Receiver<A::Msg>) -> Out + Send + Sync + 'static,
    Out: ChildOutput,
{
    fn spawn(&self, cradle: Cradle) -> RawPid {
        let (start, place) = (Arc::clone(&self.start), self.place.clone());
        let queue = Rc::new(Queue::new(usize::MAX));
        let inbox = Receiver::new(Rc::clone(&queue));
        let task = context::spawn(async move {
            let started = || {
                place.set_to_myself();
                cradle.started();
            };
            live(start(inbox), started).await
        });
        let pid = task.pid();
        task.detach();
        if let Some(process) = Process::of(&context::current(), pid) {
            process.publish(&queue);
        }
        pid
    }

    fn ended(&self) {
        self.place.clear();
    }
}

/// The life of a child, which says when it has started.
async fn live<Out: ChildOutput>(begin: impl Future<Output = Out>, started: impl Fn()) {
    if !Out::INIT {
        started();
    }
    match begin.await.rest() {
        Ok(rest) => {
            if Out::INIT {
                started();
            }
            rest.await;
        }
        Err(text) => exit(text).await,
    }
}
