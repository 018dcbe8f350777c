//! How rare features are: `hsimhash.fingerprint.rarity`.

const TAG_BITS: u32 = 32;
const LEADING: u32 = 20;
const SCALE: f64 = 255.0;
const VOTE_SCALE: f64 = 4096.0;
const HALF_SATURATED: f64 = 3.0;

/// A table of ascending tags; after them the greatest, with the rarity of what is not listed.
pub struct Rarities {
    pub tags: Vec<u32>,
    pub rarities: Vec<u8>,
    pub first: Vec<i64>,
    /// By rarity: the square root of it and 255, times 4096.
    roots: Vec<f64>,
}

impl Rarities {
    pub fn new(tags: Vec<u32>, rarities: Vec<u8>, first: Vec<i64>) -> Self {
        let roots = (0..256).map(|one| (SCALE * f64::from(one)).sqrt()).collect();
        Rarities { tags, rarities, first, roots }
    }

    /// Returns the rarity of the feature with a hash.
    #[inline]
    pub fn find(&self, hash: u64) -> u8 {
        let wanted = (hash >> (64 - TAG_BITS)) as u32;
        let mut place = self.first[(wanted >> (TAG_BITS - LEADING)) as usize] as usize;
        while self.tags[place] < wanted {
            place += 1;
        }
        if self.tags[place] == wanted { self.rarities[place] } else { self.rarities[self.rarities.len() - 1] }
    }

    /// Returns what a feature that was found so often weighs for the key.
    #[inline]
    pub fn key_weight(&self, unit: u32, rarity: u8, count: u32) -> f64 {
        let count = f64::from(count);
        (f64::from(unit) * VOTE_SCALE * self.roots[rarity as usize] * count / (count + HALF_SATURATED)).round_ties_even()
    }
}
