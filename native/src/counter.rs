//! Counts occurrences of numbers.

use std::hash::{BuildHasher, RandomState};

/// Counts numbers in a table with open addressing.
pub struct Counter {
    /// A random factor per process, which prevents crafted texts from causing collisions.
    odd: u64,
    slots: Vec<u32>,
    /// The distinct numbers in order of first occurrence, with their counts.
    pub found: Vec<(u64, u32)>,
    /// For each counted number, its index in `found`.
    pub places: Vec<u32>,
}

impl Default for Counter {
    fn default() -> Self {
        Counter { odd: RandomState::new().hash_one(0) | 1, slots: Vec::new(), found: Vec::new(), places: Vec::new() }
    }
}

impl Counter {
    /// Counts numbers, discarding earlier counts.
    pub fn count(&mut self, numbers: &[u64]) {
        let bits = (2 * numbers.len()).next_power_of_two().max(16).trailing_zeros();
        self.slots.clear();
        self.slots.resize(1 << bits, 0);
        self.found.clear();
        self.places.clear();
        let mask = (1 << bits) - 1;
        for &number in numbers {
            let mut slot = (number.wrapping_mul(self.odd) >> (64 - bits)) as usize;
            let place = loop {
                match self.slots[slot] {
                    0 => {
                        self.found.push((number, 0));
                        self.slots[slot] = self.found.len() as u32;
                        break self.found.len() - 1;
                    }
                    place if self.found[place as usize - 1].0 == number => break place as usize - 1,
                    _ => slot = (slot + 1) & mask,
                }
            };
            self.found[place].1 += 1;
            self.places.push(place as u32);
        }
    }
}
