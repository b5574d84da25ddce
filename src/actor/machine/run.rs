//! The task of a machine: what it takes in, in which order, its timers and its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{self, Poll};

use super::Machine;
use super::engine::{Engine, Step};
use super::timeouts::{Order, TimeoutId};
use crate::actor::channel::{Queue, Receiver};
use crate::actor::infos::Infos;
use crate::actor::pid::Pid;
use crate::actor::spawn::{exit, own_process};
use crate::runtime::local::{Due, Local};
use crate::runtime::timer::DeadlineKey;
use crate::runtime::{context, sleep};

pub(super) async fn live<M: Machine>(
    machine: M,
    initial: M::State,
    mut infos: Infos<M::Info>,
    mut inbox: Receiver<M::Msg>,
) {
    let (local, process) = own_process();
    let mut timers = Timers::new(local);
    let mut engine = Engine::start(machine, initial, Pid::new(process.pid()));
    timers.obey(engine.take_orders());
    let failure = poll_fn(|cx| {
        loop {
            match poll_step(&mut engine, &mut timers, &mut infos, &mut inbox, cx) {
                Poll::Ready(Some(Step::Failed(why))) => return Poll::Ready(Some(why)),
                Poll::Ready(Some(Step::Stopped) | None) => return Poll::Ready(None),
                Poll::Ready(Some(Step::Transitioned | Step::Stayed | Step::Postponed)) => {
                    timers.obey(engine.take_orders());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    // Calls that wait in there hear of the end before anybody who watches.
    drop((inbox, infos, engine, timers));
    if let Some(why) = failure {
        exit(why).await;
    }
}

/// The next thing that happens to the machine; none when nothing can happen any more.
///
/// What was postponed comes before all that is taken in, or a later event would overtake it. Timers come before messages, or a
/// flood of these would keep them out.
#[inline]
fn poll_step<M: Machine>(
    engine: &mut Engine<M>,
    timers: &mut Timers,
    infos: &mut Infos<M::Info>,
    inbox: &mut Receiver<M::Msg>,
    cx: &mut task::Context<'_>,
) -> Poll<Option<Step>> {
    if engine.has_due() {
        // As everything else takes of it as it is received.
        if !context::spend_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        return Poll::Ready(engine.replay());
    }
    while let Poll::Ready(id) = timers.poll_fired(cx) {
        if let Some(step) = engine.fired(id) {
            return Poll::Ready(Some(step));
        }
    }
    if let Poll::Ready(info) = engine.poll_down(cx) {
        return Poll::Ready(Some(engine.info(info)));
    }
    if let Poll::Ready(info) = infos.poll(cx) {
        return Poll::Ready(Some(engine.info(info)));
    }
    inbox.poll_recv(cx).map(|received| Some(engine.event(received.ok()?)))
}

/// The armed timers of a machine, in its core's deadline queue, and the channel by which they fire.
///
/// # Drop
/// Disarms them.
struct Timers {
    local: Rc<Local>,
    armed: Vec<(TimeoutId, DeadlineKey)>,
    fired: Rc<Queue<TimeoutId>>,
}

impl Timers {
    fn new(local: Rc<Local>) -> Timers {
        let fired = Rc::new(Queue::new(usize::MAX));
        // Timers are no senders: without this the queue would count as having no more to come.
        fired.publish();
        Timers { local, armed: Vec::new(), fired }
    }

    fn obey(&mut self, orders: impl Iterator<Item = Order>) {
        for order in orders {
            match order {
                Order::Arm(id, after) => {
                    let fired = Rc::clone(&self.fired);
                    let fire = move || {
                        // Refused when the machine has ended meanwhile.
                        if let Ok(Some(reader)) = fired.push(id) {
                            reader.wake();
                        }
                    };
                    let deadline = sleep(after).deadline();
                    self.armed.push((id, self.local.arm_timer(deadline, Due::Run(Box::new(fire)))));
                }
                Order::Disarm(id) => {
                    if let Some(key) = self.forget(id) {
                        self.local.disarm_timer(key);
                    }
                }
            }
        }
    }

    /// The next timer that has fired.
    #[inline]
    fn poll_fired(&mut self, cx: &mut task::Context<'_>) -> Poll<TimeoutId> {
        match self.fired.poll_pop(cx) {
            Poll::Ready(Some(id)) => {
                self.forget(id);
                Poll::Ready(id)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn forget(&mut self, id: TimeoutId) -> Option<DeadlineKey> {
        let place = self.armed.iter().position(|(armed, _)| *armed == id)?;
        Some(self.armed.swap_remove(place).1)
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        for (_, key) in self.armed.drain(..) {
            self.local.disarm_timer(key);
        }
        drop(self.fired.close());
    }
}
