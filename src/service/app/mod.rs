//! The application: routes, middleware and shared data, put together once for each core.

mod builder;
mod caller;
mod data;
mod extract;
mod handler;
mod middleware;
mod needs;
mod prepared;
mod respond;

pub use builder::{App, IntoPrepared, Preparations, preparations};
pub use caller::Caller;
pub use data::Data;
pub use extract::{Correlation, Extract, Frame, Incoming, Message, Parsed, PeerAddr, Session};
pub use handler::{Arguments, Callable, Handler};
pub use middleware::{After, Before, Identity, Layer, Middleware, Next, Stack, after, before};
pub use needs::Needs;
pub use prepared::{Outcome, Prepared};
pub use respond::{AsFrame, AsResponse, ByContent, Frames, Reply, Respond, Response, Streamed};
