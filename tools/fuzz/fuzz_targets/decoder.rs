//! Bytes to each ready codec: the same frames however they are cut, within the limits and within the memory that these
//! allow, and the same again when they are encoded.
//!
//! An input is a byte that chooses codec and limits, one that says how many lengths of pieces follow, these, and the bytes.
#![no_main]

#[path = "../../../tests/service_codec/mod.rs"]
mod feeding;
#[path = "../../../tests/service_codec/held.rs"]
mod held;

use feeding::{Accepted, KINDS, check_round_trip, feed, most_held, outcome};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: held::Counting = held::Counting;

const ACCEPTED: [Accepted; 4] = [
    Accepted { frame: 4096, items: 512, depth: 16 },
    Accepted { frame: 100, items: 20, depth: 3 },
    Accepted { frame: 20, items: 4, depth: 1 },
    Accepted { frame: 1, items: 1, depth: 0 },
];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let Some((&cuts, data)) = data.split_first() else { return };
    let Some((cuts, input)) = data.split_at_checked(usize::from(cuts % 16)) else { return };
    let cuts: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut)).collect();
    let kind = KINDS[usize::from(choice) % KINDS.len()];
    let accepted = ACCEPTED[usize::from(choice) / KINDS.len() % ACCEPTED.len()];

    let whole = outcome(kind, accepted, input, &[]);
    assert_eq!(outcome(kind, accepted, input, &cuts), whole);
    assert_eq!(outcome(kind, accepted, input, &[1]), whole);
    check_round_trip(kind, accepted, &whole);
    drop(whole);

    let bound = most_held(accepted, 16);
    let held = held::most_held(|| feed(kind, accepted, input, &[16, 3, 1], drop));
    assert!(held <= bound, "{kind:?} held {held} bytes where {bound} are allowed");
});
