//! Draws that replay from a seed.

use std::time::Duration;

/// SplitMix64: close seeds give unlike draws, so a seed plus a number is a fresh stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit as u64) as usize
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.draw() % (most.as_nanos() as u64 + 1))
    }

    /// A time that matters: none, within the network's delays, or about as long as deadlines are.
    pub fn some_time(&mut self) -> Duration {
        match self.below(8) {
            0 | 1 => Duration::ZERO,
            2..=5 => self.up_to(Duration::from_micros(300)),
            6 => self.up_to(Duration::from_millis(6)),
            _ => self.up_to(Duration::from_millis(40)),
        }
    }
}
