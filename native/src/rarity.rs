//! How rare features are: `hsimhash.fingerprint.rarity`.

use crate::prefetch::prefetch;

const LEADING: u32 = 16;
const OTHERS: u32 = 16;
const RARITY_BITS: u32 = 8;
const SCALE: f64 = 255.0;
const VOTE_SCALE: f64 = 4096.0;
const HALF_SATURATED: f64 = 3.0;

/// A table of features by the first 32 bits of their hashes.
///
/// Two reads for a look-up, of which the first is of memory that stays in the cache: it takes most of the time of signing
/// where the reads are far apart.
pub struct Rarities {
    /// By the leading bits of a hash, where the features begin that have them; and one more.
    first: Vec<u32>,
    /// The other bits of a feature, ascending among those with the same leading bits, and its rarity.
    entries: Vec<u32>,
    default: u8,
    /// By rarity: the square root of it times 255.
    roots: Vec<f64>,
}

impl Rarities {
    /// Args: the ascending tags of features, the rarity of each, and that of all others.
    pub fn new(tags: &[u32], rarities: &[u8], default: u8) -> Self {
        let mut first = vec![0u32; (1 << LEADING) + 1];
        for &tag in tags {
            first[(tag >> OTHERS) as usize + 1] += 1;
        }
        for number in 1..first.len() {
            first[number] += first[number - 1];
        }
        let packed = |(&tag, &rarity): (&u32, &u8)| (tag & ((1 << OTHERS) - 1)) << RARITY_BITS | u32::from(rarity);
        let entries = tags.iter().zip(rarities).map(packed).collect();
        let roots = (0..256).map(|one| (SCALE * f64::from(one)).sqrt()).collect();
        Rarities { first, entries, default, roots }
    }

    /// Fetches what `find` will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.entries, self.first[(hash >> (64 - LEADING)) as usize] as usize);
    }

    /// Returns the rarity of the feature with a hash.
    #[inline]
    pub fn find(&self, hash: u64) -> u8 {
        let leading = (hash >> (64 - LEADING)) as usize;
        let wanted = (hash >> (64 - LEADING - OTHERS)) as u32 & ((1 << OTHERS) - 1);
        let among = &self.entries[self.first[leading] as usize..self.first[leading + 1] as usize];
        let found = among.iter().find(|&&entry| entry >> RARITY_BITS >= wanted);
        found.filter(|&&entry| entry >> RARITY_BITS == wanted).map_or(self.default, |&entry| entry as u8)
    }

    /// Returns what a feature that was found so often weighs for the key, before it is rounded.
    #[inline]
    pub fn key_weight(&self, unit: u64, rarity: u8, count: u32) -> f64 {
        let count = f64::from(count);
        unit as f64 * VOTE_SCALE * self.roots[rarity as usize] * count / (count + HALF_SATURATED)
    }
}
