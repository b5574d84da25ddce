//! The application: routes, middleware and shared data, put together once for each core.
//!
//! An [`App`] says which handler answers which request, what stands around the handlers, and what they share.
//! [`App::prepare`], which a [`Server`](crate::service::Server) calls once on each of its cores, makes a [`Prepared`] of it:
//! each route with its middleware becomes one value of one type, behind one pointer, and all connections of the core share it. A connection
//! builds nothing but its own state, whatever the number of routes; and what cannot work (two handlers for an id, data that nobody has given, a
//! handler that takes the request twice) is a [`PrepareError`](crate::service::PrepareError), and not the first request's.
//!
//! # A whole application
//! ```
//! use std::cell::Cell;
//! use corelet::runtime::Runtime;
//! use corelet::service::app::{Data, Frame, Incoming, Session, before};
//! use corelet::service::{App, Connection, PrepareError, Prepared, Protocol, RequestError, Verdict};
//! use tokio_util::codec::LinesCodec;
//!
//! /// Lines, whose first word chooses the route.
//! struct Lines;
//!
//! impl Protocol for Lines {
//!     type Codec = LinesCodec;
//!     type Request = String;
//!     type Response = String;
//!     type Id = Verb;
//!     type Session = Cell<bool>;
//!
//!     fn codec(&self) -> LinesCodec {
//!         LinesCodec::new_with_max_length(1024)
//!     }
//!
//!     fn session(&self) -> Cell<bool> {
//!         Cell::new(false)
//!     }
//!
//!     fn id(&self, line: &String) -> Option<Verb> {
//!         match line.split(' ').next()? {
//!             "login" => Some(Verb::Login),
//!             "greet" => Some(Verb::Greet),
//!             _ => None,
//!         }
//!     }
//!
//!     fn failed(&self, error: &RequestError, _: &Connection<Lines>) -> Verdict<String> {
//!         Verdict { reply: Some(error.to_string()), close: false }
//!     }
//! }
//!
//! #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
//! enum Verb {
//!     Login,
//!     Greet,
//! }
//!
//! struct Password(&'static str);
//!
//! async fn login(password: Data<Password>, known: Session<Lines>, Frame(line): Frame<String>) -> Result<String, &'static str> {
//!     if line.split(' ').nth(1) != Some(password.0) {
//!         return Err("wrong password");
//!     }
//!     known.set(true);
//!     Ok("welcome".to_owned())
//! }
//!
//! async fn greet(Frame(line): Frame<String>) -> String {
//!     line.replace("greet", "hello")
//! }
//!
//! fn app() -> Result<Prepared<Lines>, PrepareError> {
//!     App::new(Lines)
//!         .data(Password("secret"))
//!         .route(Verb::Login, login)
//!         .wrap(before(async |incoming: &mut Incoming<Lines>| match incoming.connection().session().get() {
//!             true => Ok(()),
//!             false => Err(RequestError::failed("log in first")),
//!         }))
//!         .route(Verb::Greet, greet)
//!         .prepare()
//! }
//!
//! // A server is `Server::new(app).bind(address).start(&runtime).await?`. Without a socket:
//! Runtime::builder().build()?.block_on(|| async {
//!     let mut caller = app().unwrap().caller();
//!     let refused = caller.call("greet me".to_owned()).await.unwrap_err();
//!     assert_eq!(refused.to_string(), "the handler of Greet failed");
//!     assert_eq!(caller.call("login secret".to_owned()).await.unwrap(), ["welcome"]);
//!     assert_eq!(caller.call("greet me".to_owned()).await.unwrap(), ["hello me"]);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Routes
//! [`Protocol::id`](crate::service::Protocol::id) finds the id of each request, by which its route is looked up. Ids that are numbers or enums cost
//! no allocation; a `String` does. What has no route goes to the [`fallback`](App::fallback), if there is one. A [`group`](App::group) has
//! middleware of its own.
//!
//! # Handlers
//! A handler is an `async fn` or an asynchronous closure, which may own what it captures. Its arguments are made from the
//! request by [`Extract`]:
//!
//! | argument | is |
//! |---|---|
//! | [`Frame<R>`](Frame) | the request itself |
//! | [`Message<T>`](Message) | the request as a `T`, by `TryFrom<R>` |
//! | [`Parsed<T>`](Parsed) | a `T` by `TryFrom<&R>`, of which there may be several, left of the request |
//! | [`Data<T>`](Data) | what all handlers share |
//! | [`Connection<P>`](crate::service::Connection), [`Session<P>`](Session), [`PeerAddr`] | the connection, its state, where it comes from |
//! | [`PushHandle<F>`](crate::service::push::PushHandle) | what pushes to it |
//! | [`Correlation`] | what ties the response to the request |
//! | `Option<E>`, `Result<E, Rejection>` | another argument that may be missing |
//!
//! What it gives is made into frames by [`Respond`]: nothing for `()`, one frame for the protocol's response or a [`Reply`], several for
//! [`Frames`] and [`Streamed`]; for a `Result`, those or an error, of which [`Protocol::failed`](crate::service::Protocol::failed) makes
//! the answer.
//!
//! # Errors and panics
//! Whatever of these panics, be it an extractor, a middleware, a handler's poll or its drop, or what the protocol says of the request,
//! is the error of its request: [`RequestError::Panicked`](crate::service::RequestError::Panicked). The connection goes on, unless
//! `failed` has it end; other connections and the core notice nothing.
//!
//! # Where it may be used
//! An application belongs to the core that made it, and so do its data: plain `Cell`s and `Rc`s will do. What cores
//! share is an `Arc` that each of them is given.
//!
//! # Compared
//! With `tokio-util`'s `Framed` there is a stream and a sink, and the match on the request, what stands around it, and its error handling are
//! written by hand. With actix, handlers, extractors and middleware look much like these; there an application factory runs once per worker as well,
//! but the futures of middleware are as a rule boxed for each request, and missing data is found by a request.

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
