//! A handler of nine arguments.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Session;
use lines::Lines;

type S = Session<Lines>;

async fn nine(_: S, _: S, _: S, _: S, _: S, _: S, _: S, _: S, _: S) {}

fn main() {
    let _ = App::new(Lines).route(1, nine);
}
