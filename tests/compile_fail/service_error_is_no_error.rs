//! An error that is none.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use lines::Lines;

struct Failure;

async fn fails() -> Result<String, Failure> {
    Err(Failure)
}

fn main() {
    let _ = App::new(Lines).route(1, fails);
}
