//! A middleware that is none.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use lines::Lines;

struct Logger;

fn main() {
    let _ = App::new(Lines).wrap(Logger).route(1, async || ());
}
