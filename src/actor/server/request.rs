//! What lies in a server's mailbox.

use std::fmt;

use super::Server;
use crate::actor::{Addressable, Reply};

/// What a server is sent: a call with the slip for its answer, or a cast. Made to be sent to a [`Pid`](crate::actor::Pid) of
/// the server, by what sends to actors of any kind; a [`ServerRef`](super::ServerRef) makes its own.
///
/// ```
/// use corelet::actor::server::{self, Request};
/// use corelet::actor;
/// # use corelet::actor::Reply;
/// # use corelet::actor::server::{Context, Server};
/// # use corelet::runtime::{Cores, Runtime};
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
/// let sum = server::start(Sum(0));
/// let pid = sum.pid();
/// actor::send_to(pid, Request::cast(3)).unwrap();
/// assert_eq!(actor::call(pid, |reply| Request::call((), reply)).await, Ok(3));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Request<S: Server>(pub(super) Kind<S>);

pub(super) enum Kind<S: Server> {
    Call(S::Call, Reply<S::Reply>),
    Cast(S::Cast),
}

impl<S: Server> Request<S> {
    /// A question, to be answered on `reply`.
    #[inline]
    pub fn call(call: S::Call, reply: Reply<S::Reply>) -> Request<S> {
        Request(Kind::Call(call, reply))
    }

    /// A message without an answer.
    #[inline]
    pub fn cast(cast: S::Cast) -> Request<S> {
        Request(Kind::Cast(cast))
    }

    /// What was asked, of a request that came back.
    #[cold]
    pub(super) fn into_call(self) -> S::Call {
        match self.0 {
            Kind::Call(call, _) => call,
            Kind::Cast(_) => unreachable!("what was sent comes back"),
        }
    }

    /// What was told, of a request that came back.
    #[cold]
    pub(super) fn into_cast(self) -> S::Cast {
        match self.0 {
            Kind::Cast(cast) => cast,
            Kind::Call(..) => unreachable!("what was sent comes back"),
        }
    }
}

impl<S: Server> fmt::Debug for Request<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Call(..) => "Request::call(..)",
            Kind::Cast(_) => "Request::cast(..)",
        })
    }
}

// A kind that is neither is told to implement `Addressable`, not `Server`.
#[diagnostic::do_not_recommend]
impl<S: Server> Addressable for S {
    type Msg = Request<S>;
}
