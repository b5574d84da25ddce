//! One core: executor, task identity, timers, ring driver, mesh.

pub(crate) mod timer;
