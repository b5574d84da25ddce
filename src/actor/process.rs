//! What the kit keeps of one actor, on its core: where its mail goes, who watches it, whom it is linked to.
//!
//! Made when there is first something to keep. It lives until the actor has ended, and then tells whoever has to know.

use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;

use super::channel::{AnyQueue, Queue};
use super::exit::{Exit, ExitReason};
use super::link;
use super::links::Links;
use super::registry::{Life, Tables};
use super::send::SendError;
use super::watch::Watchers;
use crate::runtime::executor::{Ending, Record};
use crate::runtime::local::Local;
use crate::runtime::{RawPid, context};

pub(crate) struct Process {
    pid: RawPid,
    manners: Cell<Manners>,
    /// Where mail goes: one queue for each type of message.
    mail: RefCell<SmallVec<[Rc<dyn AnyQueue>; 1]>>,
    bonds: OnceCell<Box<Bonds>>,
}

/// How an actor takes it that it should end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// It does not look: it has to be stopped.
    None,
    /// It looks, whenever it has been woken, and ends of its own doing.
    Obliging,
    /// It has been asked to.
    Asked,
}

/// What few actors have.
#[derive(Default)]
pub(crate) struct Bonds {
    pub(super) watchers: Watchers,
    pub(super) links: Links,
    /// Where trapped exits go.
    pub(crate) exits: RefCell<Option<Rc<Queue<Exit>>>>,
    /// Whose child it is, if it is supervised.
    pub(super) supervisor: Cell<Option<RawPid>>,
    /// What other cores see of whether it lives; made when it first gets a name or joins a group.
    life: OnceCell<Arc<Life>>,
    /// Why it will have been stopped, where that is not only because somebody asked.
    reason: RefCell<Option<ExitReason>>,
    /// What it is called in lists.
    label: RefCell<Option<Arc<str>>>,
    ended: Cell<bool>,
}

impl Process {
    /// The record of a live actor, made if there is none; none when the actor has ended.
    pub(crate) fn of(local: &Local, pid: RawPid) -> Option<Rc<Process>> {
        if let Some(process) = Process::find(local, pid)? {
            return Some(process);
        }
        let process = Rc::new(Process {
            pid,
            manners: Cell::new(Manners::None),
            mail: RefCell::new(SmallVec::new()),
            bonds: OnceCell::new(),
        });
        local.executor().set_record(pid, Rc::clone(&process) as Rc<dyn Record>).then_some(process)
    }

    /// As [`of`](Process::of), but makes none: the inner option is none for an actor without a record.
    pub(crate) fn find(local: &Local, pid: RawPid) -> Option<Option<Rc<Process>>> {
        let records = local.executor().records();
        Some(records.get(pid)?.and_then(|record| (Rc::clone(record) as Rc<dyn Any>).downcast().ok()))
    }

    pub(crate) fn pid(&self) -> RawPid {
        self.pid
    }

    pub(crate) fn bonds(&self) -> &Bonds {
        self.bonds.get_or_init(Box::default)
    }

    /// From now on the actor ends of its own doing when it is asked to.
    pub(super) fn oblige(&self) {
        self.manners.set(Manners::Obliging);
    }

    /// Asks the actor to end; false when it has to be stopped instead.
    pub(super) fn ask_to_end(&self, local: &Local) -> bool {
        if self.manners.get() == Manners::None {
            return false;
        }
        self.manners.set(Manners::Asked);
        local.executor().wake(self.pid.into());
        true
    }

    #[inline]
    pub(super) fn is_asked_to_end(&self) -> bool {
        self.manners.get() == Manners::Asked
    }

    /// Mail of type `M` goes to `queue` from now on, which this keeps open.
    pub(crate) fn publish<M: 'static>(&self, queue: &Rc<Queue<M>>) {
        queue.publish();
        self.deliver_to(queue);
    }

    /// As [`publish`](Process::publish), but leaves it to the queue's senders how long it is open.
    pub(crate) fn deliver_to<M: 'static>(&self, queue: &Rc<Queue<M>>) {
        let queue = Rc::clone(queue) as Rc<dyn AnyQueue>;
        let mut mail = self.mail.borrow_mut();
        let replaced = match mail.iter_mut().find(|kept| is_of::<M>(&***kept)) {
            Some(kept) => Some(std::mem::replace(kept, queue)),
            None => {
                mail.push(queue);
                None
            }
        };
        drop(mail);
        drop(replaced);
    }

    /// Where its mail of type `M` goes.
    pub(crate) fn mailbox<M: 'static>(&self) -> Option<Rc<Queue<M>>> {
        let mail = self.mail.borrow();
        let queue = mail.iter().find(|kept| is_of::<M>(&***kept)).map(Rc::clone)?;
        (queue as Rc<dyn Any>).downcast().ok()
    }

    /// Tells other cores whether it lives.
    pub(crate) fn life(&self) -> &Arc<Life> {
        self.bonds().life.get_or_init(Arc::default)
    }

    /// Puts a message into the mailbox of its type. Whoever reads is to be woken by the caller, once nothing is borrowed.
    #[inline]
    pub(crate) fn push<M: 'static>(&self, message: M) -> Result<Option<Waker>, SendError<M>> {
        for queue in &*self.mail.borrow() {
            let Some(queue) = (&**queue as &dyn Any).downcast_ref::<Queue<M>>() else { continue };
            return queue.push(message);
        }
        Err(SendError::NoChannel(message))
    }

    /// Messages in its published mailboxes.
    pub(crate) fn depth(&self) -> usize {
        self.mail.borrow().iter().map(|queue| queue.depth()).sum()
    }

    /// Why it will have been stopped, if it is stopped. The first reason stands.
    pub(crate) fn set_reason(&self, reason: ExitReason) {
        self.bonds().reason.borrow_mut().get_or_insert(reason);
    }

    pub(crate) fn set_label(&self, label: Arc<str>) {
        self.bonds().label.replace(Some(label));
    }

    pub(crate) fn label(&self) -> Option<Arc<str>> {
        self.bonds.get()?.label.borrow().clone()
    }

    /// Whose child it is, if it is supervised.
    pub(crate) fn supervisor(&self) -> Option<RawPid> {
        self.bonds.get()?.supervisor.get()
    }

    pub(crate) fn traps_exits(&self) -> bool {
        self.bonds.get().is_some_and(|bonds| bonds.exits.borrow().is_some())
    }

    pub(crate) fn monitors(&self) -> usize {
        self.bonds.get().map_or(0, |bonds| bonds.watchers.len())
    }

    pub(crate) fn links(&self) -> usize {
        self.bonds.get().map_or(0, |bonds| bonds.links.len())
    }
}

fn is_of<M: 'static>(queue: &dyn AnyQueue) -> bool {
    (queue as &dyn Any).type_id() == TypeId::of::<Queue<M>>()
}

impl Record for Process {
    fn ended(self: Rc<Self>, ending: Ending) {
        let Some(bonds) = self.bonds.get() else { return };
        debug_assert!(!bonds.ended.replace(true), "an actor ends once");
        let reason = match ending {
            Ending::Returned => ExitReason::Normal,
            Ending::Stopped => bonds.reason.take().unwrap_or(ExitReason::Stopped),
            Ending::Panicked(text) => ExitReason::Panicked(text.into()),
            Ending::CoreEnded => ExitReason::CoreEnded,
        };
        // Before anybody hears of it: who takes its place finds its names free.
        if let Some(life) = bonds.life.get() {
            life.end();
            context::with(|local| Tables::of(local.runtime()).forget(self.pid));
        }
        bonds.watchers.tell(self.pid, &reason);
        for linked in bonds.links.take() {
            link::signal(linked, self.pid, reason.clone());
        }
    }
}
