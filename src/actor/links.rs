//! One actor's halves of its links: decisions only, no letters.
//!
//! Across cores the halves of a link are set and removed by letters, which can cross each other. So whoever takes a link
//! back keeps its half, as *unlinking*, until the other side has answered: what arrives meanwhile was sent before the other
//! side knew, and is without effect. (Erlang/OTP has such a protocol since release 23.) Otherwise an unlink and a link that
//! cross each other would leave one half, and with it an exit that is never told.
//!
//! Never: remove a half that was set after its removal was asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::pid::Pid;
use crate::runtime::RawPid;

/// One actor's halves of its links.
#[derive(Default)]
pub(super) struct Links {
    /// Ordered, so that a simulated run repeats itself.
    halves: RefCell<BTreeMap<Pid, Half>>,
    unlinks: Cell<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Half {
    Linked,
    /// Taken back by an unlink of this number, which the other side has not answered.
    Unlinking(u32),
}

impl Links {
    /// The actor itself links; false when it was linked.
    pub(super) fn link(&self, other: RawPid) -> bool {
        self.halves.borrow_mut().insert(other.into(), Half::Linked) != Some(Half::Linked)
    }

    /// The other one links. It did not know yet of an unlink that is under way.
    pub(super) fn accept(&self, other: RawPid) {
        self.halves.borrow_mut().entry(other.into()).or_insert(Half::Linked);
    }

    /// The actor itself unlinks; none when it was not linked.
    pub(super) fn begin_unlink(&self, other: RawPid) -> Option<u32> {
        let mut halves = self.halves.borrow_mut();
        let half = halves.get_mut(&other.into()).filter(|half| **half == Half::Linked)?;
        let number = self.unlinks.get().wrapping_add(1);
        self.unlinks.set(number);
        *half = Half::Unlinking(number);
        Some(number)
    }

    /// The other one unlinks. If the actor does so too, its half goes with the answer to its own unlink.
    pub(super) fn unlinked(&self, other: RawPid) {
        let mut halves = self.halves.borrow_mut();
        if halves.get(&other.into()) == Some(&Half::Linked) {
            halves.remove(&other.into());
        }
    }

    /// The other side has answered an unlink. It may have been linked again meanwhile.
    pub(super) fn end_unlink(&self, other: RawPid, number: u32) {
        let mut halves = self.halves.borrow_mut();
        if halves.get(&other.into()) == Some(&Half::Unlinking(number)) {
            halves.remove(&other.into());
        }
    }

    /// Removes a half; true when it was linked.
    pub(super) fn remove(&self, other: RawPid) -> bool {
        self.halves.borrow_mut().remove(&other.into()) == Some(Half::Linked)
    }

    pub(super) fn len(&self) -> usize {
        self.halves.borrow().values().filter(|half| **half == Half::Linked).count()
    }

    /// Whom to tell of the actor's end. Where an unlink is under way, the other side learns of that first.
    pub(super) fn take(&self) -> impl Iterator<Item = RawPid> {
        self.halves.take().into_iter().filter(|(_, half)| *half == Half::Linked).map(|(pid, _)| pid.raw())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;
    use crate::runtime::CoreId;

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Letter {
        Link,
        Unlink(u32),
        Unlinked(u32),
    }

    /// One end of a link, and what is on its way to it.
    #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
    struct End {
        half: Option<Option<u32>>,
        unlinks: u32,
        mail: VecDeque<Letter>,
        links_left: u8,
        unlinks_left: u8,
    }

    const PIDS: [RawPid; 2] = [
        RawPid { core: CoreId(0), index: 0, generation: 0 },
        RawPid { core: CoreId(1), index: 0, generation: 0 },
    ];

    /// Calls the end's own code, and puts down its state again.
    fn with_links<R>(end: &mut End, other: RawPid, act: impl FnOnce(&Links) -> R) -> R {
        let half = end.half.map(|half| half.map_or(Half::Linked, Half::Unlinking));
        let halves = half.into_iter().map(|half| (Pid::from(other), half)).collect();
        let links = Links { halves: RefCell::new(halves), unlinks: Cell::new(end.unlinks) };
        let result = act(&links);
        end.unlinks = links.unlinks.get();
        end.half = links.halves.borrow().get(&Pid::from(other)).map(|half| match half {
            Half::Linked => None,
            Half::Unlinking(number) => Some(*number),
        });
        result
    }

    fn steps(ends: &[End; 2]) -> Vec<[End; 2]> {
        let mut next = Vec::new();
        for me in 0..2 {
            let (other, pid) = (1 - me, PIDS[1 - me]);
            if ends[me].links_left > 0 {
                let mut ends = ends.clone();
                ends[me].links_left -= 1;
                if with_links(&mut ends[me], pid, |links| links.link(pid)) {
                    ends[other].mail.push_back(Letter::Link);
                }
                next.push(ends);
            }
            if ends[me].unlinks_left > 0 {
                let mut ends = ends.clone();
                ends[me].unlinks_left -= 1;
                if let Some(number) = with_links(&mut ends[me], pid, |links| links.begin_unlink(pid)) {
                    ends[other].mail.push_back(Letter::Unlink(number));
                }
                next.push(ends);
            }
            if let Some(letter) = ends[me].mail.front().copied() {
                let mut ends = ends.clone();
                ends[me].mail.pop_front();
                let answer = with_links(&mut ends[me], pid, |links| match letter {
                    Letter::Link => {
                        links.accept(pid);
                        None
                    }
                    Letter::Unlink(number) => {
                        links.unlinked(pid);
                        Some(Letter::Unlinked(number))
                    }
                    Letter::Unlinked(number) => {
                        links.end_unlink(pid, number);
                        None
                    }
                });
                ends[other].mail.extend(answer);
                next.push(ends);
            }
        }
        next
    }

    #[test]
    fn both_halves_agree_once_all_letters_have_arrived_in_whatever_order() {
        let end = End { links_left: 3, unlinks_left: 2, ..End::default() };
        let mut seen = HashSet::new();
        let mut open = vec![[end.clone(), end]];
        let (mut linked, mut unlinked) = (0, 0);
        while let Some(ends) = open.pop() {
            if !seen.insert(ends.clone()) {
                continue;
            }
            if ends.iter().all(|end| end.mail.is_empty()) {
                assert_eq!(ends[0].half, ends[1].half, "{ends:?}");
                match ends[0].half {
                    None => unlinked += 1,
                    Some(None) => linked += 1,
                    Some(Some(_)) => panic!("an unlink without an answer: {ends:?}"),
                }
            }
            open.extend(steps(&ends));
        }
        println!("{} states, at rest {linked} linked and {unlinked} not", seen.len());
        assert!(linked > 10 && unlinked > 10);
    }
}
