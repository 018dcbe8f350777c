//! The vote of weighted features, and the heaviest features.

use crate::hash::mix;

const LANES: usize = 8; // bits per byte
const BYTES: usize = 8;

/// By byte value: its bits as masks, lowest bit first.
static MASKS: [[u32; LANES]; 256] = masks();

const fn masks() -> [[u32; LANES]; 256] {
    let mut all = [[0; LANES]; 256];
    let mut value = 0;
    while value < 256 {
        let mut bit = 0;
        while bit < LANES {
            all[value][bit] = if value >> bit & 1 == 1 { u32::MAX } else { 0 };
            bit += 1;
        }
        value += 1;
    }
    all
}

/// The sums of the features' weights for each bit.
#[derive(Default)]
pub struct Votes {
    pub features: usize,
    total: u64,
    sums: [[u64; LANES]; BYTES],
    /// Votes that are not yet in the sums; adding 32-bit numbers is twice as fast as adding 64-bit ones.
    part: [[u32; LANES]; BYTES],
    part_total: u32,
}

impl Votes {
    /// Adds a feature.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: u64) {
        self.features += 1;
        let mut left = weight;
        while left > u64::from(u32::MAX) {
            self.add_part(hash, u32::MAX);
            left -= u64::from(u32::MAX);
        }
        self.add_part(hash, left as u32);
    }

    #[inline]
    fn add_part(&mut self, hash: u64, weight: u32) {
        if self.part_total.checked_add(weight).is_none() {
            self.flush();
        }
        self.part_total += weight;
        for (byte, sums) in self.part.iter_mut().enumerate() {
            let masks = &MASKS[(hash >> (8 * byte)) as usize & 255];
            for (sum, mask) in sums.iter_mut().zip(masks) {
                *sum += weight & mask;
            }
        }
    }

    fn flush(&mut self) {
        self.total += u64::from(self.part_total);
        for (sum, part) in self.sums.as_flattened_mut().iter_mut().zip(self.part.as_flattened()) {
            *sum += u64::from(*part);
        }
        self.part = Default::default();
        self.part_total = 0;
    }

    /// Returns the fingerprint; tied bits are 1 if `tie_gives_one`.
    pub fn fingerprint(&mut self, tie_gives_one: bool) -> u64 {
        self.flush();
        let least = self.total + u64::from(!tie_gives_one);
        let decided = self.sums.as_flattened().iter().enumerate();
        decided.fold(0, |all, (bit, &sum)| all | u64::from(2 * sum >= least) << bit)
    }
}

/// The heaviest features for the key, heaviest first; ties go to the lower hash.
#[derive(Default)]
pub struct Heaviest {
    most: usize,
    chosen: Vec<(f64, u64)>,
    /// Features that are lighter, or equally heavy with a greater hash, are not among the heaviest.
    least: (f64, u64),
}

impl Heaviest {
    pub fn clear(&mut self, most: usize) {
        self.most = most;
        self.chosen.clear();
        self.least = (if most == 0 { f64::INFINITY } else { 0.0 }, u64::MAX);
    }

    /// Returns whether a feature of that weight may be among the heaviest.
    #[inline]
    pub fn may_have(&self, weight: f64) -> bool {
        weight >= self.least.0
    }

    #[inline]
    pub fn add(&mut self, weight: f64, hash: u64) {
        if weight > self.least.0 || (weight == self.least.0 && hash <= self.least.1) {
            self.insert(weight, hash);
        }
    }

    fn insert(&mut self, weight: f64, hash: u64) {
        let place = self.chosen.partition_point(|one| one.0 > weight || (one.0 == weight && one.1 < hash));
        self.chosen.insert(place, (weight, hash));
        self.chosen.truncate(self.most);
        if self.chosen.len() == self.most {
            self.least = self.chosen[self.most - 1];
        }
    }

    /// Returns the key in parts: the number of features, and a tag for each.
    pub fn in_parts(&self) -> u64 {
        let mut key = (self.chosen.len() as u64) << 60;
        for (rank, &(_, hash)) in self.chosen.iter().enumerate() {
            key |= mix(hash) >> 52 << (48 - 12 * rank);
        }
        key
    }

    /// Returns the whole key: a hash of the set of features.
    pub fn whole(&self) -> u64 {
        if self.chosen.is_empty() {
            return 0;
        }
        mix(self.chosen.iter().fold(0, |sum, one| sum.wrapping_add(mix(one.1)))).max(1)
    }
}
