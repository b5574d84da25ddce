//! A value that belongs to one core, inside of something that every thread holds: it is reached there and nowhere else.
//!
//! Never: show the value to whoever does not show that it is on the value's core.
#![allow(unsafe_code)]

use crate::runtime::local::Local;

/// A value at home on one core.
///
/// # Drop
/// The value is dropped wherever its owner is.
pub(super) struct Home<T> {
    /// Of the core, which no other core of the process ever has.
    life: u64,
    value: T,
}

impl<T> Home<T> {
    /// The value's home is the core of `local`.
    pub(super) fn new(local: &Local, value: T) -> Home<T> {
        Home { life: local.life(), value }
    }

    /// The value, for its own core.
    #[inline]
    pub(super) fn visit(&self, local: &Local) -> Option<&T> {
        (local.life() == self.life).then_some(&self.value)
    }
}

// SAFETY: sharing a `Home` between threads lets them call `visit`, and nothing else reaches the value but the drop, which is
// of the one owner and to which `T: Send` applies. `visit` gives the value to those only who have a reference to the `Local`
// with the life in question. No two have the same, as lives are counted up by 64 bits for the whole process and never set
// otherwise; and a `Local` can neither be sent to another thread nor be referred to from one (it holds `Rc` and `Cell`;
// asserted below). So everybody whom `visit` shows the value is on the thread of the one `Local` that made it. What they
// are shown is a `&T`; it leaves that thread only if `T` is `Sync`, and then it may.
unsafe impl<T: Send> Sync for Home<T> {}

/// Does not compile if `Local` may be sent or shared: then both implementations fit.
const _: fn() = || {
    trait NeitherSendNorSync<Kind> {
        fn holds() {}
    }
    struct Sent;
    struct Shared;
    impl<T: ?Sized> NeitherSendNorSync<()> for T {}
    impl<T: ?Sized + Send> NeitherSendNorSync<Sent> for T {}
    impl<T: ?Sized + Sync> NeitherSendNorSync<Shared> for T {}
    <Local as NeitherSendNorSync<_>>::holds();
};
