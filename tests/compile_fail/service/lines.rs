//! A protocol for programs that misuse it.

use corelet::service::Protocol;
use tokio_util::codec::LinesCodec;

pub struct Lines;

impl Protocol for Lines {
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
