//! A handler that is an ordinary function.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Frame;
use lines::Lines;

fn echo(Frame(line): Frame<String>) -> String {
    line
}

fn main() {
    let _ = App::new(Lines).route(1, echo);
}
