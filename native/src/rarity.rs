//! The rarity of features: `hsimhash.fingerprint.rarity`.

use crate::prefetch::{prefetch, room};

const TAG_BITS: u32 = 32;
const RARITY_BITS: u32 = 8;
const IN_ROW: usize = 16;
const USUAL_IN_ROW: usize = 6;
const LEAST_LEADING: u32 = RARITY_BITS + 1; // ensures that no entry uses the highest bit
const FREE: u32 = 1 << 31;
const FOUND: u32 = 1 << RARITY_BITS;
const SCALE: f64 = 255.0;
const VOTE_SCALE: f64 = 4096.0;
const HALF_SATURATED: f64 = 3.0;

/// Features whose hashes begin with the same bits: for each, the other bits of its tag, and its rarity.
#[derive(Clone)]
#[repr(align(64))] // a cache line
struct Row([u32; IN_ROW]);

/// A table of features by their tags, the first 32 bits of their hashes.
///
/// A look-up reads one cache line. If it read several scattered lines, memory access would take most of the signing
/// time.
pub struct Rarities {
    rows: Vec<Row>,
    leading: u32,
    /// Ascending tags, with rarities, of features whose rows are full.
    more: Vec<(u32, u8)>,
    default: u8,
    /// By rarity: the square root of 255 times the rarity.
    roots: Vec<f64>,
}

impl Rarities {
    /// Args: the ascending tags of features, the rarity of each, and the rarity of all other features.
    pub fn new(tags: &[u32], rarities: &[u8], default: u8) -> Self {
        let leading = (tags.len() / USUAL_IN_ROW).next_power_of_two().trailing_zeros().max(LEAST_LEADING);
        let roots = (0..256).map(|one| (SCALE * f64::from(one)).sqrt()).collect();
        let mut rows = room(1 << leading);
        rows.resize(1 << leading, Row([FREE; IN_ROW]));
        let mut table = Rarities { rows, leading, more: Vec::new(), default, roots };
        for (&tag, &rarity) in tags.iter().zip(rarities) {
            let (row, entry) = table.place(tag);
            match table.rows[row].0.iter_mut().find(|one| **one == FREE) {
                Some(free) => *free = entry | u32::from(rarity),
                None => table.more.push((tag, rarity)),
            }
        }
        table
    }

    /// Returns the row of a tag, and its entry there without the rarity.
    #[inline]
    fn place(&self, tag: u32) -> (usize, u32) {
        ((tag >> (TAG_BITS - self.leading)) as usize, tag << self.leading >> self.leading << RARITY_BITS)
    }

    /// Prefetches the memory that `find` will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.rows, self.place((hash >> TAG_BITS) as u32).0);
    }

    /// Returns the rarity of the feature with a hash.
    #[inline]
    pub fn find(&self, hash: u64) -> u8 {
        let tag = (hash >> TAG_BITS) as u32;
        let (row, entry) = self.place(tag);
        let row = &self.rows[row].0;
        let found = row.iter().fold(0, |found, one| {
            let other = one ^ entry;
            found | if other < FOUND { other | FOUND } else { 0 }
        });
        if found != 0 {
            return found as u8;
        }
        if row[IN_ROW - 1] == FREE {
            return self.default;
        }
        self.more.binary_search_by_key(&tag, |one| one.0).map_or(self.default, |at| self.more[at].1)
    }

    /// Returns the weight of a feature in the key, before rounding.
    #[inline]
    pub fn key_weight(&self, unit: u64, rarity: u8, count: u32) -> f64 {
        let count = f64::from(count);
        unit as f64 * VOTE_SCALE * self.roots[rarity as usize] * count / (count + HALF_SATURATED)
    }
}
