//! What handlers need from their application, found out when it is prepared.

use std::any::type_name;

use super::data::DataMap;
use crate::service::error::PrepareError;

/// Takes down what the arguments of one handler need, so that what cannot work is found when the application is
/// prepared and not by its first request.
///
/// Extractors tell it by [`Extract::needs`](super::Extract::needs), middleware by
/// [`Middleware::needs`](super::Middleware::needs).
#[derive(Debug)]
pub struct Needs<'a> {
    data: &'a DataMap,
    route: &'a str,
    /// Whose needs these are: a type's name.
    by: &'static str,
    /// The argument that takes the request.
    taken: Option<&'static str>,
    is_optional: bool,
    problem: Option<PrepareError>,
}

impl<'a> Needs<'a> {
    pub(super) fn new(data: &'a DataMap, route: &'a str) -> Needs<'a> {
        Needs { data, route, by: "", taken: None, is_optional: false, problem: None }
    }

    /// From here on it is `by` who needs.
    pub(super) fn of(&mut self, by: &'static str) {
        self.by = by;
        self.taken = None;
    }

    pub(super) fn finish(self) -> Result<(), PrepareError> {
        self.problem.map_or(Ok(()), Err)
    }

    /// Data of type `T` must be there.
    pub fn data<T: 'static>(&mut self) {
        if !self.is_optional && !self.data.has::<T>() {
            let missing = PrepareError::MissingData {
                route: self.route.to_owned(),
                by: self.by,
                data: type_name::<T>(),
            };
            self.problem.get_or_insert(missing);
        }
    }

    /// `what`, the name of an extractor's type, takes the request by value. One argument of a handler can.
    pub fn request(&mut self, what: &'static str) {
        if let Some(first) = self.taken.replace(what) {
            let (route, by) = (self.route.to_owned(), self.by);
            let twice = PrepareError::RequestTakenTwice { route, by, first, second: what };
            self.problem.get_or_insert(twice);
        }
    }

    /// `what` looks at the request, which no argument to its left may have taken.
    pub fn look_at_request(&mut self, what: &'static str) {
        if let Some(first) = self.taken {
            let (route, by) = (self.route.to_owned(), self.by);
            let gone = PrepareError::RequestTakenTwice { route, by, first, second: what };
            self.problem.get_or_insert(gone);
        }
    }

    /// What `needs` asks for may be missing: the handler says what happens then.
    pub fn optional(&mut self, needs: impl FnOnce(&mut Needs<'_>)) {
        let outside = std::mem::replace(&mut self.is_optional, true);
        needs(self);
        self.is_optional = outside;
    }
}
