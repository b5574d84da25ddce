//! A machine from a table does what the same machine written by hand does.

mod support;

#[path = "../examples/door.rs"]
mod door;
#[path = "../examples/door_expanded.rs"]
mod door_expanded;

use support::watched;

#[test]
fn the_table_and_the_hand_written_form_do_the_same() {
    let table = watched(|| door::run().unwrap());
    let by_hand = watched(|| door_expanded::run().unwrap());
    assert_eq!(table, by_hand);
    assert!(table.len() > 10, "{table:?}");
}
