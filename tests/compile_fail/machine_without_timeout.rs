use corelet::actor::Addressable;
use corelet::actor::machine::{Context, Machine, Next};

struct Lamp;

impl Addressable for Lamp {
    type Msg = ();
}

impl Machine for Lamp {
    type State = bool;
    type Timeout = u8;
    type Info = ();

    fn handle(&mut self, lit: &bool, _: (), cx: &mut Context<Self>) -> Next<bool> {
        cx.set_timeout(std::time::Duration::from_secs(1), 0);
        Next::To(!lit)
    }
}

fn main() {}
