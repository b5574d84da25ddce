//! The time-outs of a state machine: which are taken back by what, and that none is late, stale or kept out. On simulated
//! clocks, so that nothing hangs on the machine's speed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::actor::machine::{self, Context, Machine, Next};
use corelet::actor::{self, Addressable, Pid, Reply};
use corelet::runtime::{Simulation, core_stats, now, sleep, sleep_until};

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    One,
    Two,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Timer {
    State,
    Ping,
    Pong,
    /// Its handler goes to [`State::Two`].
    Go,
}

enum Event {
    /// Sets the state's time-out, in so many seconds.
    SetState(u32),
    ResetState(Reply<bool>),
    Set(Timer, u32),
    Cancel(Timer, Reply<bool>),
    Go(State),
    Note(u32),
    Settled(Reply<()>),
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Note {
    Fired(Timer, State),
    Event(u32),
}

type Notes = Rc<RefCell<Vec<(Instant, Note)>>>;

struct Clockwork {
    notes: Notes,
    /// What [`Timer::Ping`] takes back when it fires.
    ping_cancels: bool,
    /// What [`State::Two`] sets when it is entered.
    two_sets: Option<u32>,
}

impl Clockwork {
    fn note(&self, note: Note) {
        self.notes.borrow_mut().push((now(), note));
    }
}

impl Addressable for Clockwork {
    type Msg = Event;
}

impl Machine for Clockwork {
    type State = State;
    type Timeout = Timer;
    type Info = std::convert::Infallible;

    fn enter(&mut self, state: &State, _: Option<&State>, cx: &mut Context<Self>) {
        if let (State::Two, Some(seconds)) = (state, self.two_sets) {
            cx.set_state_timeout(SECOND * seconds, Timer::State);
        }
    }

    fn handle(&mut self, _: &State, event: Event, cx: &mut Context<Self>) -> Next<State> {
        match event {
            Event::SetState(seconds) => cx.set_state_timeout(SECOND * seconds, Timer::State),
            Event::ResetState(reply) => reply.send(cx.cancel_state_timeout()),
            Event::Set(timer, seconds) => cx.set_timeout(SECOND * seconds, timer),
            Event::Cancel(timer, reply) => reply.send(cx.cancel_timeout(&timer)),
            Event::Go(state) => return Next::To(state),
            Event::Note(number) => self.note(Note::Event(number)),
            Event::Settled(reply) => reply.send(()),
            Event::Stop => return Next::Stop,
        }
        Next::Stay
    }

    fn timeout(&mut self, state: &State, timer: Timer, cx: &mut Context<Self>) -> Next<State> {
        self.note(Note::Fired(timer, *state));
        match timer {
            Timer::Go => return Next::To(State::Two),
            Timer::Ping if self.ping_cancels => {
                cx.cancel_timeout(&Timer::Pong);
                cx.set_timeout(SECOND * 5, Timer::Go);
            }
            Timer::State | Timer::Ping | Timer::Pong => {}
        }
        Next::Stay
    }
}

/// Runs `test` with a machine in [`State::One`], in many simulated worlds.
fn simulated(
    change: impl Fn(&mut Clockwork),
    test: impl AsyncFn(Pid<Clockwork>, Notes, Instant) + Clone + 'static,
) {
    for seed in 0..SEEDS {
        let notes = Notes::default();
        let mut clockwork = Clockwork { notes: Rc::clone(&notes), ping_cancels: false, two_sets: None };
        change(&mut clockwork);
        let test = test.clone();
        let run = Simulation::new(seed, 1).block_on(|| async move {
            let begun = now();
            test(machine::start(clockwork, State::One), notes, begun).await;
        });
        run.unwrap();
    }
}

fn send(pid: Pid<Clockwork>, events: impl IntoIterator<Item = Event>) {
    for event in events {
        assert!(actor::send_to(pid, event).is_ok());
    }
}

fn fired(notes: &Notes, begun: Instant) -> Vec<(u64, Timer, State)> {
    let notes = notes.borrow();
    let fired = notes.iter().filter_map(|(at, note)| match note {
        Note::Fired(timer, state) => Some(((*at - begun).as_secs(), *timer, *state)),
        Note::Event(_) => None,
    });
    fired.collect()
}

#[test]
fn a_timeout_fires_once_and_when_it_is_due() {
    simulated(
        |_| {},
        async |pid, notes, begun| {
            let set = [Event::Set(Timer::Ping, 3), Event::SetState(2), Event::Set(Timer::Pong, 1)];
            send(pid, set);
            sleep(SECOND * 60).await;
            let expected =
                [(1, Timer::Pong, State::One), (2, Timer::State, State::One), (3, Timer::Ping, State::One)];
            assert_eq!(fired(&notes, begun), expected);
        },
    );
}

#[test]
fn every_transition_takes_the_state_timeout_back_and_staying_does_not() {
    simulated(
        |clockwork| clockwork.two_sets = Some(10),
        async |pid, notes, begun| {
            send(pid, [Event::SetState(2), Event::Note(0)]);
            sleep(SECOND).await;
            // One second before it is due.
            send(pid, [Event::Note(1), Event::Go(State::One)]);
            sleep(SECOND * 9).await;
            assert_eq!(fired(&notes, begun), []);
            send(pid, [Event::SetState(1), Event::Note(2)]);
            sleep(SECOND * 2).await;
            assert_eq!(fired(&notes, begun), [(11, Timer::State, State::One)]);
            // What the entered state sets is not taken back with what the other had set.
            send(pid, [Event::SetState(1), Event::Go(State::Two)]);
            sleep(SECOND * 20).await;
            let expected = [(11, Timer::State, State::One), (22, Timer::State, State::Two)];
            assert_eq!(fired(&notes, begun), expected);
            // Entered anew, it is set anew.
            send(pid, [Event::Go(State::Two)]);
            sleep(SECOND * 9).await;
            send(pid, [Event::Go(State::Two)]);
            sleep(SECOND * 9).await;
            assert_eq!(fired(&notes, begun), expected);
            send(pid, [Event::Go(State::One)]);
            sleep(SECOND * 60).await;
            assert_eq!(fired(&notes, begun), expected);
        },
    );
}

#[test]
fn named_timeouts_survive_transitions_and_are_cancelled_by_name() {
    simulated(
        |_| {},
        async |pid, notes, begun| {
            send(pid, [Event::Set(Timer::Ping, 3), Event::Set(Timer::Pong, 3), Event::Go(State::Two)]);
            sleep(SECOND).await;
            assert_eq!(actor::call(pid, |reply| Event::Cancel(Timer::Pong, reply)).await, Ok(true));
            assert_eq!(actor::call(pid, |reply| Event::Cancel(Timer::Pong, reply)).await, Ok(false));
            // Set anew, it counts from then.
            send(pid, [Event::Set(Timer::Ping, 4), Event::SetState(1)]);
            assert_eq!(actor::call(pid, Event::ResetState).await, Ok(true));
            assert_eq!(actor::call(pid, Event::ResetState).await, Ok(false));
            sleep(SECOND * 60).await;
            assert_eq!(fired(&notes, begun), [(5, Timer::Ping, State::Two)]);
            assert_eq!(actor::call(pid, |reply| Event::Cancel(Timer::Ping, reply)).await, Ok(false));
        },
    );
}

#[test]
fn a_flood_of_events_does_not_keep_a_timeout_out() {
    // More than a machine takes in during one turn of its core, 256 polls of 128 events each.
    const FLOOD: u32 = 50_000;
    simulated(
        |_| {},
        async |pid, notes, _| {
            send(pid, [Event::Set(Timer::Ping, 0)]);
            send(pid, (0..FLOOD).map(Event::Note));
            assert_eq!(actor::call(pid, Event::Settled).await, Ok(()));
            let notes = notes.borrow();
            let place = notes.iter().position(|(_, note)| matches!(note, Note::Fired(Timer::Ping, _)));
            assert!(place.is_some_and(|place| place < FLOOD as usize), "it came only after the flood");
        },
    );
}

#[test]
fn a_timer_that_fired_before_it_was_taken_back_is_not_heard_of() {
    simulated(
        |clockwork| clockwork.ping_cancels = true,
        async |pid, notes, begun| {
            // All three fire in one turn. The first takes the second back and sets the third anew, which have fired already.
            send(pid, [Event::Set(Timer::Ping, 1), Event::Set(Timer::Pong, 1), Event::Set(Timer::Go, 1)]);
            sleep(SECOND * 60).await;
            let expected = [(1, Timer::Ping, State::One), (6, Timer::Go, State::One)];
            assert_eq!(fired(&notes, begun), expected);
        },
    );
    simulated(
        |_| {},
        async |pid, notes, begun| {
            // Two that fire together, of which the first leaves the state that the second belongs to.
            send(pid, [Event::Set(Timer::Go, 1), Event::SetState(1)]);
            sleep(SECOND * 60).await;
            assert_eq!(fired(&notes, begun), [(1, Timer::Go, State::One)]);
        },
    );
}

#[test]
fn a_timeout_costs_a_timer_and_no_task_and_ends_with_its_machine() {
    simulated(
        |_| {},
        async |pid, notes, begun| {
            assert_eq!(actor::call(pid, Event::Settled).await, Ok(()));
            let before = core_stats().unwrap();
            send(pid, [Event::Set(Timer::Ping, 9), Event::Set(Timer::Pong, 9), Event::SetState(9)]);
            assert_eq!(actor::call(pid, Event::Settled).await, Ok(()));
            let set = core_stats().unwrap();
            assert_eq!(set.timers, before.timers + 3);
            assert_eq!(set.executor.spawned, before.executor.spawned);
            // Set again, or taken back, it leaves nothing behind.
            send(pid, [Event::Set(Timer::Ping, 9), Event::SetState(9), Event::Go(State::One)]);
            assert_eq!(actor::call(pid, Event::Settled).await, Ok(()));
            assert_eq!(core_stats().unwrap().timers, before.timers + 2);
            let end = actor::monitor(pid);
            send(pid, [Event::Stop]);
            end.await;
            assert_eq!(core_stats().unwrap().timers, before.timers);
            sleep_until(begun + SECOND * 60).await;
            assert_eq!(fired(&notes, begun), []);
        },
    );
}
