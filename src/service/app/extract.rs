//! Arguments of handlers.

use std::ops::Deref;
use std::rc::Rc;

use crate::service::connection::Connection;
use crate::service::error::Rejection;
use crate::service::protocol::Protocol;

/// A request on its way to its handler.
pub struct Incoming<P: Protocol> {
    request: Option<P::Request>,
    connection: Connection<P>,
}

impl<P: Protocol> Incoming<P> {
    pub(super) fn new(request: P::Request, connection: Connection<P>) -> Incoming<P> {
        Incoming { request: Some(request), connection }
    }

    /// The request, unless an extractor has taken it.
    pub fn request(&self) -> Option<&P::Request> {
        self.request.as_ref()
    }

    /// Takes the request.
    pub fn take_request(&mut self) -> Option<P::Request> {
        self.request.take()
    }

    /// The connection it came by.
    pub fn connection(&self) -> &Connection<P> {
        &self.connection
    }
}

/// What can be an argument of a handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler of `{P}`",
    label = "this is no extractor",
    note = "arguments are `Frame`, `Data<T>`, `Connection<{P}>` and whatever else implements `Extract<{P}>`"
)]
pub trait Extract<P: Protocol>: Sized {
    /// Makes it from the request.
    ///
    /// # Errors
    /// A [`Rejection`], which ends the request.
    fn extract(incoming: &mut Incoming<P>) -> Result<Self, Rejection>;
}

/// The request itself. One argument can have it.
pub struct Frame<R>(pub R);

impl<P: Protocol<Request = R>, R> Extract<P> for Frame<R> {
    fn extract(incoming: &mut Incoming<P>) -> Result<Frame<R>, Rejection> {
        let taken = Rejection { what: "Frame, which another argument has taken,", source: None };
        incoming.take_request().map(Frame).ok_or(taken)
    }
}

/// What was shared by [`App::data`](super::App::data).
pub struct Data<T>(Rc<T>);

impl<T> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<P: Protocol, T: 'static> Extract<P> for Data<T> {
    fn extract(incoming: &mut Incoming<P>) -> Result<Data<T>, Rejection> {
        let data = incoming.connection().app().data();
        data.map(Data).ok_or(Rejection { what: std::any::type_name::<Data<T>>(), source: None })
    }
}

impl<P: Protocol> Extract<P> for Connection<P> {
    fn extract(incoming: &mut Incoming<P>) -> Result<Connection<P>, Rejection> {
        Ok(incoming.connection().clone())
    }
}
