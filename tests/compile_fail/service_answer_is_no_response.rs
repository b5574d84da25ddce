//! An answer that is no frame of the protocol.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use lines::Lines;

async fn seven() -> u32 {
    7
}

fn main() {
    let _ = App::new(Lines).route(1, seven);
}
