//! What actors are called in lists.

use std::sync::Arc;

use crate::actor::spawn::own_process;

/// Says what the calling actor is called in snapshots, trees and `corelet top`: OTP's `proc_lib:set_label`. A label is no name:
/// it leads nowhere, and several actors may have the same.
///
/// # Panics
/// When not called in a task of a core.
///
/// # Examples
/// ```
/// use corelet::actor;
///
/// # use corelet::runtime::{Cores, Runtime};
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     actor::set_label("the main task");
///     let me = actor::actor_info(actor::myself().unwrap()).await.unwrap().unwrap();
///     assert_eq!(me.label.as_deref(), Some("the main task"));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn set_label(label: impl Into<Arc<str>>) {
    let (_, me) = own_process();
    me.set_label(label.into());
}

/// Labels a task of the current core.
#[cfg(any(feature = "pool", feature = "observer"))]
pub(crate) fn label(local: &crate::runtime::local::Local, pid: crate::runtime::RawPid, label: String) {
    if let Some(process) = crate::actor::process::Process::of(local, pid) {
        process.set_label(label.into());
    }
}
