//! An argument that nothing is made into.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use lines::Lines;

async fn double(number: u32) -> String {
    (2 * number).to_string()
}

fn main() {
    let _ = App::new(Lines).route(1, double);
}
