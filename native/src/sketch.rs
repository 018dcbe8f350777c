//! Sketches: 64 one-bit min-hashes of a text's shingles.

use crate::hash::mix;

pub const PLACES: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9];
const BITS: usize = 64;
const BIN_BITS: u32 = 6;
const VALUE_BITS: u32 = 64 - BIN_BITS;
const EMPTY: u64 = u64::MAX;

/// Returns the hash of a shingle of one to three units.
#[inline]
pub fn shingle(units: &[u64]) -> u64 {
    let mut hash = units.len() as u64;
    for (&unit, place) in units.iter().zip(PLACES) {
        hash = hash.rotate_left(23) ^ unit.wrapping_mul(place);
    }
    mix(hash.rotate_left(23 * (PLACES.len() - units.len()) as u32))
}

/// For each bit, all bits in the order in which it borrows from them.
pub struct Lenders(Vec<[u8; BITS]>);

impl Lenders {
    pub fn new() -> Self {
        let order_of = |bit: u64| {
            let mut order: [u8; BITS] = std::array::from_fn(|one| one as u8);
            order.sort_by_key(|&one| if u64::from(one) == bit { 0 } else { mix(bit << BIN_BITS | u64::from(one)) });
            order
        };
        Lenders((0..BITS as u64).map(order_of).collect())
    }
}

/// The smallest shingle for each bit.
pub struct Least([u64; BITS]);

impl Least {
    pub fn new() -> Self {
        Least([EMPTY; BITS])
    }

    #[inline]
    pub fn put(&mut self, hash: u64) {
        let least = &mut self.0[(hash >> VALUE_BITS) as usize];
        *least = (*least).min(hash & ((1 << VALUE_BITS) - 1));
    }

    /// Returns the sketch; 0 if there are no shingles.
    pub fn sketch(&self, lenders: &Lenders) -> u64 {
        if self.0.iter().all(|&one| one == EMPTY) {
            return 0;
        }
        let mut sketch = 0;
        for (bit, order) in lenders.0.iter().enumerate() {
            let lent = order.iter().map(|&one| self.0[one as usize]).find(|&one| one != EMPTY).unwrap_or(EMPTY);
            sketch |= (mix(lent) >> bit & 1) << bit;
        }
        sketch.max(1)
    }
}
