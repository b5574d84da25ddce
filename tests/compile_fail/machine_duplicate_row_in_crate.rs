// The macro as if it were this crate's own. To other crates the compiler does not say what is wrong with patterns that it
// puts together, so a pair that has a row in two places is found here only.
#[path = "../../src/actor/machine/macros.rs"]
#[macro_use]
mod macros;

use corelet::actor;
use corelet::actor::machine::Next;

enum State {
    Off,
    On,
}

enum FromOff {
    On,
}

enum FromAny {}

enum FromOn {
    Off,
}

#[derive(PartialEq)]
enum Timer {
    Dim,
}

machine! {
    machine Lamp {
        state State;
        data ();
        context(data, prev, cx);
        events Event {
            Press,
            Pull,
        }
        timeouts Timer;

        in State::Off => FromOff { On } {
            on Event::Press => light(),
            on Event::Pull => Next::Stay,
            after Timer::Dim => Next::Stay,
        }

        in State::On => FromOn { Off } {
            on Event::Press => dark(),
            postpone Event::Pull,
            after Timer::Dim => dark(),
        }

        in State::Off | State::On => FromAny {} {
            on Event::Pull => Next::Stay,
        }
    }
}

fn light() -> Next<FromOff> {
    Next::To(FromOff::On)
}

fn dark() -> Next<FromOn> {
    Next::To(FromOn::Off)
}

fn main() {
    let _ = (Lamp::start, Event::Press, Event::Pull, Timer::Dim, State::Off, State::On);
}
