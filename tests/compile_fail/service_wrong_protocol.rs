//! A handler of another protocol.

#[path = "service/lines.rs"]
mod lines;

use corelet::service::app::{Frame, Session};
use corelet::service::{App, Protocol};
use lines::Lines;
use tokio_util::codec::LinesCodec;

struct Other;

impl Protocol for Other {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = u32;
    type Session = ();

    fn codec(&self) -> LinesCodec {
        LinesCodec::new()
    }

    fn session(&self) {}

    fn id(&self, _: &String) -> Option<u32> {
        None
    }
}

async fn of_other(_: Session<Other>, Frame(line): Frame<String>) -> String {
    line
}

fn main() {
    let _ = App::new(Lines).route(1, of_other);
}
