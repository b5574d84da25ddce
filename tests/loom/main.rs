//! Every order in which the sleep protocol of a core can go, checked by loom, and the hand-over of permits on top of it;
//! every order in which credits can change hands; every order in which the ends of a channel can come and go; and every order
//! in which frames can be pushed to queues that their core reads, or closes.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test --release --test loom`.
//!
//! The protocols are the crate's own files, compiled against loom's atomics. Queues and doorbell are stand-ins: a locked
//! queue, and loom's own notification, which remembers a ring as an eventfd does and sometimes wakes without one. Loom
//! reports a thread that can never go on, so a lost wake-up is a failed run, not a hang. (Its condition variables and
//! parked threads are not used: in version 0.7 they lose wake-ups of their own when a model also has a lock.)
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

mod sync;

#[path = "../../src/runtime/park.rs"]
mod park;

#[path = "../../src/pool/ledger.rs"]
mod ledger;

#[path = "../../src/actor/channel/ends.rs"]
mod ends;

#[path = "../../src/service/push/gate.rs"]
mod gate;

#[path = "../../src/service/push/places.rs"]
mod places;

mod channels;
mod credits;
mod doorbell;
mod permits;
mod pushes;
