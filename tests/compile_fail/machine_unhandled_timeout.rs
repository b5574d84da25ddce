use corelet::actor::machine::Next;

enum State {
    Off,
    On,
}

enum FromOff {
    On,
}

enum FromOn {
    Off,
}

#[derive(PartialEq)]
enum Timer {
    Dim,
}

corelet::machine! {
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
        }

        in State::On => FromOn { Off } {
            on Event::Press => dark(),
            postpone Event::Pull,
            after Timer::Dim => dark(),
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
