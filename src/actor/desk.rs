//! Where answers arrive: slots of the asking core, one desk of them for each type of answer, used again and again.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;

/// The desks of one core.
pub(super) struct Desks {
    /// Tells the core from an earlier one with the same id.
    life: u32,
    desks: RefCell<Vec<Rc<dyn Any>>>,
    numbers: RefCell<FxHashMap<TypeId, u32>>,
    /// The one that was asked for last, in the hope that it is asked for next.
    last: Cell<u32>,
}

impl Desks {
    pub(super) fn new(life: u32) -> Desks {
        Desks { life, desks: RefCell::default(), numbers: RefCell::default(), last: Cell::default() }
    }

    /// The desk for answers of a type.
    #[inline]
    pub(super) fn of<R: 'static>(&self) -> Rc<Desk<R>> {
        match self.get(self.last.get()) {
            Some(desk) => desk,
            None => self.search(),
        }
    }

    #[inline]
    fn get<R: 'static>(&self, number: u32) -> Option<Rc<Desk<R>>> {
        Rc::clone(self.desks.borrow().get(number as usize)?).downcast().ok()
    }

    fn search<R: 'static>(&self) -> Rc<Desk<R>> {
        let new = self.desks.borrow().len() as u32;
        let number = *self.numbers.borrow_mut().entry(TypeId::of::<R>()).or_insert(new);
        self.last.set(number);
        if let Some(desk) = self.get(number) {
            return desk;
        }
        let desk = Rc::new(Desk::new(self.life, number));
        self.desks.borrow_mut().push(Rc::clone(&desk) as Rc<dyn Any>);
        desk
    }

    /// Brings an answer to its place, or none. Gives it back when nobody waits there, else who is to be woken.
    #[inline]
    pub(super) fn bring<R: 'static>(
        &self,
        place: Place,
        answer: Option<R>,
    ) -> Result<Option<Waker>, Option<R>> {
        match self
            .desks
            .borrow()
            .get(place.desk as u32 as usize)
            .and_then(|desk| desk.downcast_ref::<Desk<R>>())
        {
            Some(desk) => desk.bring(place, answer),
            None => Err(answer),
        }
    }

    pub(super) fn clear(&self) {
        self.numbers.borrow_mut().clear();
        drop(self.desks.take());
    }
}

/// Where answers of one type arrive.
pub(super) struct Desk<R> {
    /// Its number among those of its core; and above that the core's life, so that an answer to a core that has ended means
    /// nothing to the next with its id.
    id: u64,
    slots: RefCell<Slots<R>>,
}

struct Slots<R> {
    slots: Vec<Slot<R>>,
    /// The first vacant slot, or [`NONE`].
    free: u32,
}

const NONE: u32 = u32::MAX;

struct Slot<R> {
    generation: u32,
    state: State<R>,
}

pub(super) enum State<R> {
    /// With the next vacant one.
    Vacant(u32),
    Asked(Option<Waker>),
    Answered(R),
    /// The question was dropped, or the answer has been taken.
    Over,
}

/// Names one use of a slot of a desk. Two words, so that it is moved as it was written.
#[derive(Clone, Copy)]
pub(super) struct Place {
    desk: u64,
    pub(super) slot: Use,
}

/// Names one use of a slot: the slot, and how often it was used before.
#[derive(Clone, Copy)]
pub(super) struct Use(u64);

impl Use {
    fn new(index: u32, generation: u32) -> Use {
        Use(u64::from(index) << 32 | u64::from(generation))
    }

    fn index(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn generation(self) -> u32 {
        self.0 as u32
    }
}

impl<R> Desk<R> {
    fn new(life: u32, number: u32) -> Desk<R> {
        let id = u64::from(life) << 32 | u64::from(number);
        Desk { id, slots: RefCell::new(Slots { slots: Vec::new(), free: NONE }) }
    }

    /// A place where one answer will arrive; to be [closed](Desk::close).
    #[inline]
    pub(super) fn open(&self) -> Place {
        let slots = &mut *self.slots.borrow_mut();
        let index = match slots.slots.get_mut(slots.free as usize) {
            Some(slot) => {
                let State::Vacant(next) = slot.state else { unreachable!("a free slot is vacant") };
                slot.state = State::Asked(None);
                std::mem::replace(&mut slots.free, next)
            }
            None => {
                slots.slots.push(Slot { generation: 0, state: State::Asked(None) });
                (slots.slots.len() - 1) as u32
            }
        };
        let generation = slots.slots[index as usize].generation;
        Place { desk: self.id, slot: Use::new(index, generation) }
    }

    /// The answer, once; none when there will be none.
    #[inline]
    pub(super) fn poll(&self, slot: Use, cx: &mut Context<'_>) -> Poll<Option<R>> {
        let mut slots = self.slots.borrow_mut();
        let generation = slot.generation();
        let slot = &mut slots.slots[slot.index()];
        debug_assert_eq!(slot.generation, generation, "a slot is its asker's until it is closed");
        match &mut slot.state {
            State::Asked(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            State::Asked(waker) => {
                let former = waker.replace(cx.waker().clone());
                drop(slots);
                drop(former);
                Poll::Pending
            }
            state => match std::mem::replace(state, State::Over) {
                State::Answered(answer) => Poll::Ready(Some(answer)),
                _ => Poll::Ready(None),
            },
        }
    }

    #[inline]
    fn bring(&self, place: Place, answer: Option<R>) -> Result<Option<Waker>, Option<R>> {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.slots.get_mut(place.slot.index()) else { return Err(answer) };
        let State::Asked(waker) = &mut slot.state else { return Err(answer) };
        if slot.generation != place.slot.generation() || self.id != place.desk {
            return Err(answer);
        }
        let waker = waker.take();
        slot.state = answer.map_or(State::Over, State::Answered);
        Ok(waker)
    }

    /// Ends a use of a slot. What is left in it is for the caller to drop.
    #[inline]
    pub(super) fn close(&self, slot: Use) -> State<R> {
        let slots = &mut *self.slots.borrow_mut();
        let index = slot.index();
        let slot = &mut slots.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        let next = std::mem::replace(&mut slots.free, index as u32);
        std::mem::replace(&mut slot.state, State::Vacant(next))
    }
}
