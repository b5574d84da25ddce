//! In which order waiters are served.
//!
//! Waiters stand in lines, and the lines take turns. Under round robin each handle that has waiters has a
//! line; under FIFO everybody stands in the same one. A handle without waiters has no line: ten thousand idle
//! handles cost nothing.

use rustc_hash::FxHashMap;

use super::HandleId;
use super::links::{Linked, Links, List, NONE};
use crate::pool::Fairness;

/// The lines of one shard.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Rotation {
    fairness: Fairness,
    lines: Vec<Line>,
    free: List,
    /// The lines that have waiters, the one whose turn it is first.
    turns: List,
    /// Round robin only.
    by_handle: FxHashMap<HandleId, u32>,
}

#[derive(Clone, Debug)]
struct Line {
    handle: HandleId,
    waiters: List,
    links: Links,
}

impl Linked for Line {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Rotation {
    pub(super) fn new(fairness: Fairness) -> Self {
        Self {
            fairness,
            lines: Vec::new(),
            free: List::new(),
            turns: List::new(),
            by_handle: FxHashMap::default(),
        }
    }

    /// Puts a waiter at the end of its handle's line, and a new line at the end of the rotation. Gives the
    /// line, by which the waiter leaves again.
    #[inline]
    pub(super) fn join<T: Linked>(&mut self, handle: HandleId, waiters: &mut [T], index: u32) -> u32 {
        let line = match self.line_of(handle) {
            Some(line) => line,
            None => self.begin_line(handle),
        };
        self.lines[line as usize].waiters.push_back(waiters, index);
        line
    }

    /// Puts a waiter in front of its line, and a line that has only this one in front of the rotation.
    pub(super) fn advance<T: Linked>(&mut self, line: u32, waiters: &mut [T], index: u32) {
        let list = &mut self.lines[line as usize].waiters;
        list.remove(waiters, index);
        list.push_front(waiters, index);
        if list.len() == 1 {
            self.turns.remove(&mut self.lines, line);
            self.turns.push_front(&mut self.lines, line);
        }
    }

    /// Takes a waiter out of its line, wherever in it it stands.
    pub(super) fn leave<T: Linked>(&mut self, line: u32, waiters: &mut [T], index: u32) {
        self.lines[line as usize].waiters.remove(waiters, index);
        self.retire_if_empty(line);
    }

    /// Takes out the waiter whose turn it is; its line goes to the back.
    #[inline(always)]
    pub(super) fn serve<T: Linked>(&mut self, waiters: &mut [T]) -> Option<u32> {
        let line = self.turns.front()?;
        if self.turns.len() > 1 {
            self.turns.pop_front(&mut self.lines);
            self.turns.push_back(&mut self.lines, line);
        }
        let served = self.lines[line as usize].waiters.pop_front(waiters);
        self.retire_if_empty(line);
        served
    }

    /// Whoever would be served next.
    pub(super) fn first(&self) -> Option<u32> {
        self.lines[self.turns.front()? as usize].waiters.front()
    }

    /// The first waiter of the line in which this handle's waiters stand. Under FIFO others stand there too.
    pub(super) fn first_beside(&self, handle: HandleId) -> Option<u32> {
        self.lines[self.line_of(handle)? as usize].waiters.front()
    }

    /// How many waiters are served before this one, if nobody comes or goes meanwhile, counted up to `bound`. Takes at
    /// most in the order of `bound` steps.
    pub(super) fn ahead<T: Linked>(&self, bound: usize, line: u32, waiters: &[T], index: u32) -> usize {
        let ahead_in_line = self.lines[line as usize].waiters.count_before(waiters, index, bound);
        self.ahead_with(bound, Some(line), ahead_in_line)
    }

    /// How many waiters would be served before a newcomer of this handle.
    pub(super) fn ahead_of_newcomer(&self, handle: HandleId) -> usize {
        let line = self.line_of(handle);
        let ahead_in_line = line.map_or(0, |line| self.lines[line as usize].waiters.len());
        self.ahead_with(usize::MAX, line, ahead_in_line)
    }

    fn ahead_with(&self, bound: usize, line: Option<u32>, ahead_in_line: usize) -> usize {
        // Each full round before this waiter's serves every line once; in its own round, only the lines in
        // front of its line. Its own line's share is those ahead of it.
        let mut ahead = ahead_in_line;
        let mut in_front = true;
        for other in self.turns.iter(&self.lines) {
            if ahead >= bound {
                return bound;
            }
            if Some(other) == line {
                in_front = false;
            } else {
                let rounds = ahead_in_line + usize::from(in_front);
                ahead += rounds.min(self.lines[other as usize].waiters.len());
            }
            if ahead_in_line == 0 && !in_front {
                break;
            }
        }
        ahead.min(bound)
    }

    #[inline]
    fn line_of(&self, handle: HandleId) -> Option<u32> {
        match self.fairness {
            Fairness::Fifo => self.turns.front(),
            Fairness::RoundRobin => self.by_handle.get(&handle).copied(),
        }
    }

    fn begin_line(&mut self, handle: HandleId) -> u32 {
        let line = match self.free.pop_front(&mut self.lines) {
            Some(line) => {
                self.lines[line as usize].handle = handle;
                line
            }
            None => {
                assert!(self.lines.len() < NONE as usize, "a shard has fewer than 2^32 - 1 lines");
                self.lines.push(Line { handle, waiters: List::new(), links: Links::new() });
                (self.lines.len() - 1) as u32
            }
        };
        if self.fairness == Fairness::RoundRobin {
            self.by_handle.insert(handle, line);
        }
        self.turns.push_back(&mut self.lines, line);
        line
    }

    #[inline]
    fn retire_if_empty(&mut self, line: u32) {
        if self.lines[line as usize].waiters.is_empty() {
            self.retire(line);
        }
    }

    fn retire(&mut self, line: u32) {
        let handle = &self.lines[line as usize].handle;
        if self.fairness == Fairness::RoundRobin {
            self.by_handle.remove(handle);
        }
        self.turns.remove(&mut self.lines, line);
        self.free.push_front(&mut self.lines, line);
    }

    /// Only lines with waiters are in the rotation, each under its handle's name. Gives the waiters, in turn
    /// of line and then by age.
    #[cfg(test)]
    pub(super) fn check_invariants<T: Linked>(&self, waiters: &[T]) -> Vec<u32> {
        let turns: Vec<u32> = self.turns.iter(&self.lines).collect();
        assert_eq!(turns.len(), self.turns.len());
        assert_eq!(turns.len() + self.free.len(), self.lines.len(), "a line is in rotation or free");
        match self.fairness {
            Fairness::Fifo => assert!(turns.len() <= 1, "everybody stands in one line"),
            Fairness::RoundRobin => assert_eq!(turns.len(), self.by_handle.len()),
        }
        let mut standing = Vec::new();
        for line in turns {
            let Line { handle, waiters: list, .. } = &self.lines[line as usize];
            assert!(!list.is_empty(), "no empty line takes a turn");
            assert_eq!(self.line_of(*handle), Some(line));
            let before = standing.len();
            standing.extend(list.iter(waiters));
            assert_eq!(standing.len() - before, list.len());
        }
        standing
    }
}
