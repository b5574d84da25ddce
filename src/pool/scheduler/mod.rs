//! The decisions of one shard: who gets which slot, and when. Never any I/O, await or clock in here.
