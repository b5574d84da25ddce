//! Arguments of handlers.

use std::any::type_name;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

use super::data::Data;
use super::needs::Needs;
use crate::service::connection::Connection;
use crate::service::error::{BoxError, Rejection};
use crate::service::protocol::Protocol;
use crate::service::push::PushHandle;

/// A request on its way to its handler and, for the middleware it passed, on the way back.
pub struct Incoming<P: Protocol> {
    request: Option<P::Request>,
    correlation: Option<u64>,
    /// Its place among the application's names of routes.
    route: usize,
    connection: Connection<P>,
}

impl<P: Protocol> Incoming<P> {
    #[inline]
    pub(super) fn new(
        request: P::Request,
        correlation: Option<u64>,
        route: usize,
        connection: Connection<P>,
    ) -> Incoming<P> {
        Incoming { request: Some(request), correlation, route, connection }
    }

    /// The request, unless an extractor has taken it.
    pub fn request(&self) -> Option<&P::Request> {
        self.request.as_ref()
    }

    /// The request, to be changed, unless an extractor has taken it.
    pub fn request_mut(&mut self) -> Option<&mut P::Request> {
        self.request.as_mut()
    }

    /// Takes the request.
    pub fn take_request(&mut self) -> Option<P::Request> {
        self.request.take()
    }

    /// Puts another request in the place of what is there. A middleware that runs `next` a second time does so before.
    pub fn set_request(&mut self, request: P::Request) {
        self.request = Some(request);
    }

    /// What ties the response to the request, as [`Protocol::correlation`] has it.
    pub fn correlation(&self) -> Option<u64> {
        self.correlation
    }

    /// The id of its route, as `Debug` shows it, or `fallback`.
    pub fn route(&self) -> &str {
        self.connection.app().route_name(self.route)
    }

    /// The application's data of type `T`.
    pub fn data<T: 'static>(&self) -> Option<Data<T>> {
        self.connection.app().data()
    }

    /// The connection it came by.
    pub fn connection(&self) -> &Connection<P> {
        &self.connection
    }
}

impl<P: Protocol> fmt::Debug for Incoming<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("route", &self.route())
            .field("correlation", &self.correlation)
            .field("taken", &self.request.is_none())
            .finish_non_exhaustive()
    }
}

/// What can be an argument of a handler.
///
/// Arguments are made from left to right, before the handler runs; the first that cannot be made ends the request with
/// its [`Rejection`]. Wrapped into an `Option` or a `Result<_, Rejection>` it is the handler who decides.
///
/// # Examples
/// ```
/// use corelet::service::app::{Extract, Incoming, Needs};
/// use corelet::service::{Protocol, Rejection};
///
/// /// How long the request is.
/// struct Length(usize);
///
/// impl<P: Protocol<Request = String>> Extract<P> for Length {
///     fn extract(incoming: &mut Incoming<P>) -> Result<Length, Rejection> {
///         let request = incoming.request().ok_or(Rejection::new("Length, behind what takes the request,"))?;
///         Ok(Length(request.len()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler of `{P}`",
    label = "this is no extractor",
    note = "arguments are the request as `Frame<_>`, `Message<_>` or `Parsed<_>`; `Data<_>`, `Connection<_>`, `Session<_>`, `PushHandle<_>`, `PeerAddr` and `Correlation`; and `Option`s and `Result<_, Rejection>`s of these",
    note = "implement `Extract<{P}>` for a type of your own"
)]
pub trait Extract<P: Protocol>: Sized {
    /// Makes it from the request.
    ///
    /// # Errors
    /// A [`Rejection`], which ends the request.
    fn extract(incoming: &mut Incoming<P>) -> Result<Self, Rejection>;

    /// Says what it needs, once for each handler that has it as an argument.
    fn needs(_needs: &mut Needs<'_>) {}
}

/// Takes the request for `T`.
fn take<P: Protocol, T>(incoming: &mut Incoming<P>) -> Result<P::Request, Rejection> {
    incoming.take_request().ok_or_else(|| Rejection::of::<T>("the request has been taken before"))
}

/// The request itself. One argument can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<R>(pub R);

impl<P: Protocol<Request = R>, R> Extract<P> for Frame<R> {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Frame<R>, Rejection> {
        take::<P, Frame<R>>(incoming).map(Frame)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.request(type_name::<Frame<R>>());
    }
}

/// The request as a `T`, made by `T`'s `TryFrom<Request>`; what that gives as an error is the rejection's source. Takes the
/// request, as [`Frame`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<T>(pub T);

impl<P, T> Extract<P> for Message<T>
where
    P: Protocol,
    T: TryFrom<P::Request, Error: Into<BoxError>>,
{
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Message<T>, Rejection> {
        let request = take::<P, Message<T>>(incoming)?;
        T::try_from(request).map(Message).map_err(Rejection::of::<Message<T>>)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.request(type_name::<Message<T>>());
    }
}

/// A `T` made by its `TryFrom<&Request>`, which leaves the request where it is: a handler can have several, to the left of
/// what takes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<P, T> Extract<P> for Parsed<T>
where
    P: Protocol,
    T: for<'a> TryFrom<&'a P::Request, Error: Into<BoxError>>,
{
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Parsed<T>, Rejection> {
        let request = incoming.request();
        let request =
            request.ok_or_else(|| Rejection::of::<Parsed<T>>("the request has been taken before"))?;
        T::try_from(request).map(Parsed).map_err(Rejection::of::<Parsed<T>>)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.look_at_request(type_name::<Parsed<T>>());
    }
}

/// What ties the response to its request, in protocols that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlation(pub u64);

impl<P: Protocol> Extract<P> for Correlation {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Correlation, Rejection> {
        incoming.correlation().map(Correlation).ok_or(Rejection::new("Correlation"))
    }
}

/// Where the connection comes from, if that has a network address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl<P: Protocol> Extract<P> for PeerAddr {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<PeerAddr, Rejection> {
        incoming.connection().peer_addr().map(PeerAddr).ok_or(Rejection::new("PeerAddr"))
    }
}

impl<P: Protocol> Extract<P> for Connection<P> {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Connection<P>, Rejection> {
        Ok(incoming.connection().clone())
    }
}

/// What the connection keeps of its own.
pub struct Session<P: Protocol>(Connection<P>);

impl<P: Protocol> Deref for Session<P> {
    type Target = P::Session;

    fn deref(&self) -> &P::Session {
        self.0.session()
    }
}

impl<P: Protocol> Extract<P> for Session<P> {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Session<P>, Rejection> {
        Ok(Session(incoming.connection().clone()))
    }
}

/// A handle that pushes to the connection the request came by. The first one makes the connection's push queues.
impl<P: Protocol<Response = F>, F: 'static> Extract<P> for PushHandle<F> {
    fn extract(incoming: &mut Incoming<P>) -> Result<PushHandle<F>, Rejection> {
        Ok(incoming.connection().push_handle())
    }
}

/// None where it cannot be made.
impl<P: Protocol, E: Extract<P>> Extract<P> for Option<E> {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Option<E>, Rejection> {
        Ok(E::extract(incoming).ok())
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.optional(E::needs);
    }
}

/// The rejection where it cannot be made.
impl<P: Protocol, E: Extract<P>> Extract<P> for Result<E, Rejection> {
    #[inline]
    fn extract(incoming: &mut Incoming<P>) -> Result<Result<E, Rejection>, Rejection> {
        Ok(E::extract(incoming))
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.optional(E::needs);
    }
}
