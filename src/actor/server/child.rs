//! Servers that a supervisor starts, again and again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::Server;
use super::builder::Builder;
use super::named::Naming;
use crate::actor::supervisor::{ChildKind, ChildRef, ChildSpec, Cradle, Start};
use crate::actor::{exit, spawn};
use crate::runtime::RawPid;

/// A server as a child of a supervisor: `build` is called for each of its lives, on the child's core. It has started when
/// its [`init`](Server::init) has returned, and lives until it is told to end, whoever refers to it. Then it
/// [terminates](Server::terminate) in good order, if that takes no longer than the child's
/// [limit](ChildSpec::shutdown).
///
/// Clients reach the present life by `place`, or by a [name](Builder::named). A name that is taken fails the start.
///
/// ```
/// use corelet::actor::server::{self, Request};
/// use corelet::actor::supervisor::{ChildRef, Supervisor};
/// use corelet::actor;
/// # use corelet::actor::Reply;
/// # use corelet::actor::server::{Context, Server};
/// # use corelet::runtime::{Cores, Runtime};
/// # #[derive(Default)]
/// # struct Sum(u64);
/// # impl Server for Sum {
/// #     type Call = ();
/// #     type Reply = u64;
/// #     type Cast = u64;
/// #     type Info = std::convert::Infallible;
/// #     async fn handle_call(&mut self, _: (), reply: Reply<u64>, _: &Context<Self>) {
/// #         reply.send(self.0);
/// #     }
/// #     async fn handle_cast(&mut self, summand: u64, _: &Context<Self>) {
/// #         self.0 += summand;
/// #     }
/// # }
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(|| async {
/// let sum = ChildRef::new();
/// let child = server::child("sum", &sum, || server::build(Sum::default()).bounded(64));
/// let supervisor = Supervisor::builder().child(child).start().await.unwrap();
/// let pid = sum.pid().unwrap();
/// assert_eq!(actor::call(pid, |reply| Request::call((), reply)).await, Ok(0));
/// supervisor.shutdown().await;
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn child<S: Server, N: Naming<S>>(
    id: impl Into<Arc<str>>,
    place: &ChildRef<S>,
    build: impl Fn() -> Builder<S, N> + Send + Sync + 'static,
) -> ChildSpec {
    ChildSpec::made(id.into(), ChildKind::Worker, Arc::new(Again { build, place: place.clone() }))
}

struct Again<S, F> {
    build: F,
    place: ChildRef<S>,
}

impl<S: Server, N: Naming<S>, F: Fn() -> Builder<S, N> + Send + Sync> Start for Again<S, F> {
    fn spawn(&self, cradle: Cradle) -> RawPid {
        let place = self.place.clone();
        let begun = move || {
            place.set_to_myself();
            cradle.started();
        };
        let child = match catch_unwind(AssertUnwindSafe(&self.build)) {
            Ok(builder) => match builder.outliving().launch(begun) {
                Ok(server) => server.pid().erase(),
                Err(error) => spawn(exit(error.to_string())),
            },
            // The child's panic, not its supervisor's.
            Err(payload) => spawn(async move { resume_unwind(payload) }),
        };
        child.raw()
    }

    fn ended(&self) {
        self.place.clear();
    }
}
