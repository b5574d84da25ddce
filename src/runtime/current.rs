//! Which core a thread is inside of: a pointer that is set for the length of a call.
//!
//! Never: let go of a reference to the core; callers see it for the length of a call of theirs.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use super::local::Local;

thread_local! {
    /// Null outside of every [`enter`].
    static CURRENT: Cell<*const Rc<Local>> = const { Cell::new(ptr::null()) };
}

/// Runs `f` with `local` as the thread's current core.
pub(crate) fn enter<R>(local: &Rc<Local>, f: impl FnOnce() -> R) -> R {
    /// Puts the former core back, also when `f` panics.
    struct Entered(*const Rc<Local>);

    impl Drop for Entered {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }

    let _entered = Entered(CURRENT.replace(local));
    f()
}

/// Calls `f` with the current core, if the thread is inside of one.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Rc<Local>) -> R) -> Option<R> {
    // SAFETY: a pointer that is not null was made by an `enter` on this thread that is still running, as that puts the
    // former one back before it returns or unwinds. It holds a reference to what the pointer leads to for as long as it
    // runs; and `f`, being called from within it, returns before it does. Nobody ever has a unique reference to it.
    Some(f(unsafe { CURRENT.get().as_ref() }?))
}
