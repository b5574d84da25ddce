//! How replies find their requests.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::pool::framed::Correlated;

/// How replies of type `Reply` find their requests: [`InOrder`] or [`ById`].
pub trait Matching<Reply>: sealed::Sealed + Default + 'static {
    /// What a request and its reply have in common.
    type Id: 'static;

    /// Whether a request with that id is without its reply.
    #[doc(hidden)]
    fn expects(&self, id: &Self::Id) -> bool;

    /// The request with that id is known as `key` from here on.
    #[doc(hidden)]
    fn expect(&mut self, id: Self::Id, key: u32);

    /// The request that `reply` belongs to, which is not expected any more; `oldest` is the one that has waited longest.
    #[doc(hidden)]
    fn take(&mut self, reply: &Reply, oldest: Option<u32>) -> Option<u32>;
}

/// How a request says what its reply will be known by.
pub trait Identify<Request, Reply>: Matching<Reply> {
    /// The id of `request`.
    #[doc(hidden)]
    fn id_of(request: &Request) -> Self::Id;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::InOrder {}
    impl<I> Sealed for super::ById<I> {}
}

/// Replies come in the order of their requests, as in RESP or HTTP/1.1.
#[derive(Debug, Default)]
pub struct InOrder(());

impl<Reply> Matching<Reply> for InOrder {
    type Id = ();

    #[inline]
    fn expects(&self, (): &()) -> bool {
        false
    }

    #[inline]
    fn expect(&mut self, (): (), _: u32) {}

    #[inline]
    fn take(&mut self, _: &Reply, oldest: Option<u32>) -> Option<u32> {
        oldest
    }
}

impl<Request, Reply> Identify<Request, Reply> for InOrder {
    #[inline]
    fn id_of(_: &Request) {}
}

/// Replies come in any order and carry the id of their request; see [`Correlated`].
#[derive(Debug)]
pub struct ById<I> {
    expected: FxHashMap<I, u32>,
}

impl<I> Default for ById<I> {
    fn default() -> ById<I> {
        ById { expected: FxHashMap::default() }
    }
}

impl<Reply: Correlated> Matching<Reply> for ById<Reply::Id> {
    type Id = Reply::Id;

    fn expects(&self, id: &Reply::Id) -> bool {
        self.expected.contains_key(id)
    }

    fn expect(&mut self, id: Reply::Id, key: u32) {
        self.expected.insert(id, key);
    }

    fn take(&mut self, reply: &Reply, _: Option<u32>) -> Option<u32> {
        self.expected.remove(&reply.correlation_id())
    }
}

impl<Request, Reply> Identify<Request, Reply> for ById<Reply::Id>
where
    Request: Correlated<Id = Reply::Id>,
    Reply: Correlated,
    Reply::Id: Hash,
{
    fn id_of(request: &Request) -> Reply::Id {
        request.correlation_id()
    }
}
