//! A handler that takes requests of another type.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Frame;
use lines::Lines;

async fn bytes(Frame(_): Frame<Vec<u8>>) {}

fn main() {
    let _ = App::new(Lines).route(1, bytes);
}
