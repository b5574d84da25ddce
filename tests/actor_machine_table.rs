//! What a machine from a table does beyond what the door shows: states with parts, rows for several states, watches, no
//! time-outs at all, and a supervisor above it.

mod support;

use corelet::actor::channel::Receiver;
use corelet::actor::machine::{self, Context, Next};
use corelet::actor::supervisor::{ChildRef, ChildSpec, Supervisor};
use corelet::actor::{self, Addressable, Down, ExitReason, Pid, Reply};
use support::{on_cores, poll_until, soon};

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Idle,
    Busy(u32),
    /// Why, and after how many jobs.
    Broken(String, u32),
}

#[derive(Debug)]
enum FromIdle {
    Busy(u32),
}

enum FromBusy {
    Idle,
    Busy(u32),
    Broken(String, u32),
}

enum FromBroken {}

enum Anywhere {}

#[derive(Debug, Default)]
pub struct Done(u32);

corelet::machine! {
    /// It does one job at a time.
    #[derive(Debug)]
    pub machine Worker {
        state State;
        data Done;
        context(done, from, cx);

        /// What it is told.
        #[derive(Debug)]
        events Event {
            /// A job, by its number.
            Job(u32),
            /// Odd ones are handed on.
            Done,
            /// A tool to watch.
            Tool(Pid, Reply<bool>),
            /// No tool any more.
            Unwatch(Pid, Reply<bool>),
            Look(Reply<(State, u32)>),
            Panic,
        }
        infos Down;
        unhandled(down) => assert_eq!(down.reason, ExitReason::Stopped);

        in State::Idle => FromIdle { Busy(job) } {
            on Event::Job(0) => Next::Stay,
            on Event::Job(job) => Next::To(FromIdle::Busy(job)),
            on Event::Done => Next::Stay,
        }

        in State::Busy(job) => FromBusy { Idle, Busy(job), Broken(why, jobs) } {
            enter => assert!(from.is_none_or(|from| !matches!(from, State::Broken(..)))),
            on Event::Done => finish(done, *job),
            postpone Event::Job(_),
            info Down { reason: ExitReason::Failed(why), .. } => shatter(done, &why),
        }

        in State::Broken(..) => FromBroken {} {
            on Event::Job(_) | Event::Done => Next::Stay,
        }

        in _ => Anywhere {} {
            on Event::Tool(tool, reply) => { reply.send(cx.watch(tool.erase())); Next::Stay },
            on Event::Unwatch(tool, reply) => { reply.send(cx.unwatch(tool.erase())); Next::Stay },
            on Event::Look(reply) => { reply.send((from.clone(), done.0)); Next::Stay },
            on Event::Panic => panic!("on purpose, in {:?}", whose(cx)),
        }
    }
}

fn finish(done: &mut Done, job: u32) -> Next<FromBusy> {
    done.0 += 1;
    Next::To(if job % 2 == 1 { FromBusy::Busy(job - 1) } else { FromBusy::Idle })
}

fn shatter(done: &Done, why: &str) -> Next<FromBusy> {
    Next::To(FromBusy::Broken(why.to_owned(), done.0))
}

fn whose(cx: &Context<Worker>) -> Pid<Worker> {
    cx.pid()
}

enum Tool {}

impl Addressable for Tool {
    type Msg = ();
}

async fn look(worker: Pid<Worker>) -> (State, u32) {
    soon(actor::call(worker, Event::Look)).await.unwrap()
}

#[test]
fn the_parts_of_a_state_are_carried_over_and_seen_by_its_rows() {
    on_cores(1, async |_, _| {
        let worker = Worker::start(Done::default(), State::Idle);
        for event in [Event::Job(0), Event::Job(3), Event::Job(4)] {
            actor::send_to(worker, event).unwrap();
        }
        assert_eq!(look(worker).await, (State::Busy(3), 0));
        actor::send_to(worker, Event::Done).unwrap();
        assert_eq!(look(worker).await, (State::Busy(2), 1));
        actor::send_to(worker, Event::Done).unwrap();
        // It was idle, and then took the job that had waited.
        assert_eq!(look(worker).await, (State::Busy(4), 2));
        actor::request_stop(worker);
    });
}

#[test]
fn the_end_of_a_watched_actor_comes_before_mail_and_once() {
    on_cores(2, async |runtime, cores| {
        for core in cores.clone() {
            let worker = Worker::start(Done::default(), State::Busy(8));
            let wears_out = async |mut crashes: Receiver<()>| {
                crashes.recv().await.unwrap();
                actor::exit("worn out").await;
            };
            let tool = soon(actor::spawn_addr_on::<Tool, _, _>(&runtime, core, wears_out)).await.unwrap();
            let watch = |tool: Pid| move |reply| Event::Tool(tool, reply);
            assert_eq!(soon(actor::call(worker, watch(tool.erase()))).await, Ok(true));
            assert_eq!(soon(actor::call(worker, watch(tool.erase()))).await, Ok(false));
            assert_eq!(
                soon(actor::call(worker, |reply| Event::Unwatch(tool.erase(), reply))).await,
                Ok(true)
            );
            assert_eq!(
                soon(actor::call(worker, |reply| Event::Unwatch(tool.erase(), reply))).await,
                Ok(false)
            );
            assert_eq!(soon(actor::call(worker, watch(tool.erase()))).await, Ok(true));
            let end = actor::monitor(tool);
            // Sent after the watch, so it arrives after it.
            actor::send_to(tool, ()).unwrap();
            soon(end).await;
            let broken = (State::Broken("worn out".into(), 0), 0);
            if core == cores[0] {
                // Told of at the same time as the monitor, and looked at before the question, which was sent after.
                assert_eq!(look(worker).await, broken);
            }
            poll_until(async || look(worker).await == broken).await;

            // What no row takes goes to the hook.
            let other = actor::spawn(std::future::pending::<()>());
            assert_eq!(soon(actor::call(worker, watch(other))).await, Ok(true));
            let end = actor::monitor(other);
            actor::request_stop(other);
            soon(end).await;
            assert_eq!(look(worker).await.0, State::Broken("worn out".into(), 0));
            actor::request_stop(worker);
        }
    });
}

#[test]
fn a_supervised_machine_begins_anew_when_it_fails() {
    on_cores(1, async |_, _| {
        let place = ChildRef::<Worker>::new();
        let child = ChildSpec::addressed("worker", &place, async |inbox| {
            machine::run(Worker::new(Done(7)), State::Idle, inbox).await;
        });
        let supervisor = soon(Supervisor::builder().child(child).start()).await.unwrap();
        let first = place.pid().unwrap();
        actor::send_to(first, Event::Job(2)).unwrap();
        assert_eq!(look(first).await, (State::Busy(2), 7));
        actor::send_to(first, Event::Panic).unwrap();
        poll_until(async || place.pid().is_some_and(|pid| pid != first)).await;
        assert_eq!(look(place.pid().unwrap()).await, (State::Idle, 7));
        soon(supervisor.shutdown()).await;
    });
}
