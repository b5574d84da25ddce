//! A message that is not made of requests.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::App;
use corelet::service::app::Message;
use lines::Lines;

struct Number(u32);

async fn number(Message(Number(number)): Message<Number>) -> String {
    number.to_string()
}

fn main() {
    let _ = App::new(Lines).route(1, number);
}
