//! The credits of one pool: how many connections it may have over all cores, who holds how many, and who goes without.
//!
//! A shard takes a credit before it begins an open and gives it back when the slot is vacant again, so the sum of
//! credits held bounds the sum of connections at every instant. A shard that finds no credit says that it is hungry and
//! looks once more; whoever makes a credit free looks for the hungry afterwards. Of two that do this at the same time at
//! least one sees the other (the store-buffering pattern, as in Dekker's algorithm), so a free credit and a hungry shard
//! never miss each other: they meet in the [`sweep`](Ledger::sweep), whoever came last.
//!
//! Nothing in here waits, and nothing runs on the path of an acquire that an idle connection serves. The file knows
//! nothing of slots, commands or sleep, so that the model checker can run it as it is.

use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

/// The most that a limit may be; that of a pool that has none.
pub(crate) const UNLIMITED: usize = 1 << 30;

/// Wants nothing.
const SATED: u8 = 0;
/// Wants a credit.
const HUNGRY: u8 = 1;
/// Wants a credit, and some shard is closing a connection for it.
const PROMISED: u8 = 2;

/// One credit in the half of the balance that counts free ones.
const ONE_FREE: u64 = 1 << 32;

/// The credits of one pool.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Credits that nobody holds, in the upper half, below zero after the limit was lowered; in the lower half, how
    /// many connections are being closed to make up for that. In one word, so that two shards never close for the same
    /// credit.
    balance: AtomicU64,
    limit: AtomicUsize,
    /// Shards that have not ended.
    live: AtomicUsize,
    /// Where the search for the hungry begins, so that of equals each has its turn.
    turn: AtomicUsize,
    accounts: Box<[Account]>,
}

#[derive(Debug)]
struct Account {
    /// Credits of this shard, those on their way to it included.
    held: AtomicUsize,
    hunger: AtomicU8,
}

/// What is asked of a shard that has connections, from the least urgent to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// Nothing.
    Nothing,
    /// Somebody is hungry: a connection that nobody uses is better there.
    Spare,
    /// Somebody is hungry who has no connection at all: it must have a turn at last.
    Turn,
    /// Somebody is hungry who has less than a fair share, and this shard has more.
    Share,
    /// There are more connections than there may be.
    Overdrawn,
}

/// What a connection is being closed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// To have its credit go to this shard.
    To(usize),
    /// To have one connection less.
    Overdraft,
}

fn free(balance: u64) -> i32 {
    (balance >> 32) as i32
}

fn claimed(balance: u64) -> i32 {
    balance as u32 as i32
}

impl Ledger {
    pub(crate) fn new(shards: usize, limit: usize) -> Ledger {
        let account = || Account { held: AtomicUsize::new(0), hunger: AtomicU8::new(SATED) };
        Ledger {
            balance: AtomicU64::new((limit as u64) << 32),
            limit: AtomicUsize::new(limit),
            live: AtomicUsize::new(shards),
            turn: AtomicUsize::new(0),
            accounts: std::iter::repeat_with(account).take(shards).collect(),
        }
    }

    /// A credit for `shard`, if one is free and nobody is hungry: those come first.
    pub(crate) fn take(&self, shard: usize) -> bool {
        let taken = self.hungriest(usize::MAX).is_none() && self.take_free();
        if taken {
            self.accounts[shard].held.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    fn take_free(&self) -> bool {
        let take = |balance| (free(balance) > 0).then(|| balance - ONE_FREE);
        self.balance.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    /// Whether a credit could be taken now.
    pub(crate) fn has_free(&self) -> bool {
        free(self.balance.load(Ordering::Relaxed)) > 0
    }

    /// `shard` wants a credit and got none. To be followed by a [`sweep`](Ledger::sweep).
    pub(crate) fn go_hungry(&self, shard: usize) {
        self.accounts[shard].hunger.store(HUNGRY, Ordering::Relaxed);
    }

    /// `shard` wants none any more. False when one is on its way, or a connection is being closed for it.
    pub(crate) fn withdraw(&self, shard: usize) -> bool {
        let hunger = &self.accounts[shard].hunger;
        hunger.compare_exchange(HUNGRY, SATED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A credit of `shard` is given back: to whom it was promised, who must be told, or to everybody. To be followed by
    /// a [`sweep`](Ledger::sweep).
    #[must_use = "a credit that goes to nobody is lost"]
    pub(crate) fn give(&self, shard: usize, promise: Option<Promise>) -> Option<usize> {
        self.accounts[shard].held.fetch_sub(1, Ordering::Relaxed);
        if let Some(Promise::To(target)) = promise
            && self.feed(target)
        {
            return Some(target);
        }
        let settled = u64::from(promise == Some(Promise::Overdraft));
        self.balance.fetch_add(ONE_FREE - settled, Ordering::AcqRel);
        None
    }

    /// Brings a free credit and a hungry shard together, if there are both: gives the shard, which now holds it and
    /// must be told. To be called until there is nothing more, by whoever has made a credit free, become hungry or
    /// changed the limit.
    #[must_use = "a credit that goes to nobody is lost"]
    pub(crate) fn sweep(&self) -> Option<usize> {
        loop {
            fence(Ordering::SeqCst);
            if !self.has_free() || self.hungriest(usize::MAX).is_none() || !self.take_free() {
                return None;
            }
            while let Some((shard, _)) = self.hungriest(usize::MAX) {
                if self.feed(shard) {
                    return Some(shard);
                }
            }
            // Fed by somebody else meanwhile. Whoever became hungry while this credit was away is seen in the next look.
            self.balance.fetch_add(ONE_FREE, Ordering::AcqRel);
        }
    }

    /// Gives a credit to a shard, unless it is no longer hungry.
    fn feed(&self, shard: usize) -> bool {
        let account = &self.accounts[shard];
        let fed = account.hunger.swap(SATED, Ordering::AcqRel) != SATED;
        if fed {
            account.held.fetch_add(1, Ordering::Relaxed);
            self.turn.store(shard + 1, Ordering::Relaxed);
        }
        fed
    }

    /// Of the hungry shards but `except` the one with the fewest credits, and how many those are. One for which a
    /// connection is being closed only if there is no other.
    fn hungriest(&self, except: usize) -> Option<(usize, usize)> {
        let hungry = self.wanting(except, HUNGRY);
        if hungry.is_some() { hungry } else { self.wanting(except, PROMISED) }
    }

    fn wanting(&self, except: usize, hunger: u8) -> Option<(usize, usize)> {
        let (shards, turn) = (self.accounts.len(), self.turn.load(Ordering::Relaxed));
        let mut found: Option<(usize, usize)> = None;
        for shard in (0..shards).map(|step| (turn + step) % shards).filter(|shard| *shard != except) {
            let account = &self.accounts[shard];
            if account.hunger.load(Ordering::Relaxed) == hunger {
                let held = account.held.load(Ordering::Relaxed);
                if found.is_none_or(|(_, least)| held < least) {
                    found = Some((shard, held));
                }
            }
        }
        found
    }

    /// What is asked of `shard`.
    pub(crate) fn call(&self, shard: usize) -> Call {
        let balance = self.balance.load(Ordering::Acquire);
        if claimed(balance) < -free(balance) {
            return Call::Overdrawn;
        }
        let Some((_, theirs)) = self.wanting(shard, HUNGRY) else { return Call::Nothing };
        let share = self.limit.load(Ordering::Relaxed).div_ceil(self.live.load(Ordering::Relaxed).max(1));
        match theirs {
            _ if theirs < share && self.held(shard) > share => Call::Share,
            0 => Call::Turn,
            _ => Call::Spare,
        }
    }

    /// `shard` is about to close a connection because it was asked to, at least as urgently as `call`: for whom, if
    /// nobody was quicker.
    pub(crate) fn promise(&self, shard: usize, call: Call) -> Option<Promise> {
        loop {
            let asked = self.call(shard);
            if asked < call || asked == Call::Nothing {
                return None;
            }
            if asked == Call::Overdrawn {
                let claim = |balance| (claimed(balance) < -free(balance)).then(|| balance + 1);
                if self.balance.fetch_update(Ordering::AcqRel, Ordering::Relaxed, claim).is_ok() {
                    return Some(Promise::Overdraft);
                }
            } else if let Some((target, _)) = self.wanting(shard, HUNGRY) {
                let hunger = &self.accounts[target].hunger;
                if hunger.compare_exchange(HUNGRY, PROMISED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Some(Promise::To(target));
                }
            }
        }
    }

    /// Nothing comes of a promise: others must look again.
    pub(crate) fn break_promise(&self, promise: Promise) {
        match promise {
            Promise::To(target) => {
                let hunger = &self.accounts[target].hunger;
                // Failing, it has been fed.
                let _ = hunger.compare_exchange(PROMISED, HUNGRY, Ordering::AcqRel, Ordering::Relaxed);
            }
            Promise::Overdraft => drop(self.balance.fetch_sub(1, Ordering::AcqRel)),
        }
    }

    /// Changes the limit. To be followed by a [`sweep`](Ledger::sweep), and by a look of every shard.
    pub(crate) fn set_limit(&self, limit: usize) {
        let before = self.limit.swap(limit, Ordering::AcqRel);
        self.balance.fetch_add((limit.wrapping_sub(before) as u64) << 32, Ordering::AcqRel);
    }

    /// `shard` opens nothing any more.
    pub(crate) fn retire(&self, shard: usize) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.accounts[shard].hunger.swap(SATED, Ordering::AcqRel);
    }

    /// Credits of `shard`, those on their way to it included.
    pub(crate) fn held(&self, shard: usize) -> usize {
        self.accounts[shard].held.load(Ordering::Relaxed)
    }
}
