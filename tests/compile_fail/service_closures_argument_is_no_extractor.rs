//! An argument of a closure that nothing is made into.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Frame;
use lines::Lines;

fn main() {
    let _ = App::new(Lines).route(1, async |Frame(line): Frame<String>, number: u32| format!("{line} {number}"));
}
