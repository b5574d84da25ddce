//! The kit's looks, as a server that any actor can ask.

use std::convert::Infallible;

use crate::actor::server::{Context, Server};
use crate::actor::{self, ActorInfo, Pid, Reply, Snapshot, Tree, Unanswered};

/// A server that relays what [`actor::snapshot`], [`actor::tree`] and [`actor::actor_info`] say, unchanged, one look at a time:
/// however many ask, the cores are busy with one. Each [`Observer`](super::Observer) has one for those who connect.
///
/// # Examples
/// ```
/// use corelet::actor::{self, server};
/// use corelet::observer::{Inspector, Look, View};
/// use corelet::runtime::{Cores, Runtime};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let inspector = server::start(Inspector);
///     let me = actor::myself().unwrap();
///     let Ok(View::Actor(info)) = inspector.call(Look::Actor(me)).await else { unreachable!() };
///     assert_eq!(info.unwrap().map(|info| info.pid), Some(me));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Inspector;

/// What an [`Inspector`] can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Look {
    /// All actors of the inspector's runtime.
    Snapshot,
    /// Who spawned whom there.
    Tree,
    /// One actor.
    Actor(Pid),
}

/// What an [`Inspector`] answers: to each [`Look`] the variant of the same name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum View {
    /// As [`actor::snapshot`].
    Snapshot(Snapshot),
    /// As [`actor::tree`].
    Tree(Tree),
    /// As [`actor::actor_info`].
    Actor(Result<Option<ActorInfo>, Unanswered>),
}

impl Server for Inspector {
    type Call = Look;
    type Reply = View;
    type Cast = Infallible;
    type Info = Infallible;

    async fn init(&mut self, _: &Context<Self>) {
        actor::set_label("inspector");
    }

    async fn handle_call(&mut self, look: Look, reply: Reply<View>, _: &Context<Self>) {
        reply.send(match look {
            Look::Snapshot => View::Snapshot(actor::snapshot().await),
            Look::Tree => View::Tree(actor::tree().await),
            Look::Actor(pid) => View::Actor(actor::actor_info(pid).await),
        });
    }

    async fn handle_cast(&mut self, never: Infallible, _: &Context<Self>) {
        match never {}
    }
}
