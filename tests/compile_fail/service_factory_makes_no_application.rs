//! A factory that makes something else.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::Server;
use lines::Lines;

fn main() {
    let _ = Server::<Lines>::new(|| Lines);
}
