//! A table of numbers, looked up by the 64-bit hashes of words.

const LEADING: u32 = 16;

/// A table with a number for each word; `missing` is the number of all other words.
pub struct WordTable {
    /// For each value of the leading bits, the position of the first such hash; plus one final entry.
    first: Vec<u32>,
    hashes: Vec<u64>,
    numbers: Vec<f64>,
    pub missing: f64,
}

impl WordTable {
    /// Args: the hashes of words with their numbers (if hashes are equal, the last number is used); the number of all
    /// other words.
    pub fn new(mut words: Vec<(u64, f64)>, missing: f64) -> Self {
        words.reverse();
        words.sort_by_key(|word| word.0);
        words.dedup_by_key(|word| word.0);
        let leading = |bits: u64| words.partition_point(|word| word.0 >> (64 - LEADING) < bits) as u32;
        WordTable {
            first: (0..=1 << LEADING).map(leading).collect(),
            hashes: words.iter().map(|word| word.0).collect(),
            numbers: words.iter().map(|word| word.1).collect(),
            missing,
        }
    }

    /// Returns the numbers.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    #[inline]
    pub fn find(&self, hash: u64) -> f64 {
        let leading = (hash >> (64 - LEADING)) as usize;
        let start = self.first[leading] as usize;
        let among = &self.hashes[start..self.first[leading + 1] as usize];
        among.iter().position(|&one| one == hash).map_or(self.missing, |at| self.numbers[start + at])
    }
}
