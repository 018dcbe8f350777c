//! The low 64 bits of murmur3 x64-128, and its finalizer.

const C1: u64 = 0x87C3_7B91_1142_53D5;
const C2: u64 = 0x4CF5_AD43_2745_937F;

/// Applies the finalizer: every output bit depends on every bit of `k`.
#[inline]
pub fn mix(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    k = (k ^ (k >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    k ^ (k >> 33)
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut all = [0u8; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

#[inline]
fn first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

/// Hashes bytes.
#[inline]
pub fn murmur(data: &[u8], seed: u64) -> u64 {
    let (mut h1, mut h2) = (seed, seed);
    let mut blocks = data.chunks_exact(16);
    for block in &mut blocks {
        h1 ^= first(word(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= second(word(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let tail = blocks.remainder();
    if tail.len() > 8 {
        h2 ^= second(word(&tail[8..]));
    }
    h1 ^= first(word(&tail[..tail.len().min(8)]));
    let size = data.len() as u64;
    h1 ^= size;
    h2 ^= size;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    mix(h1).wrapping_add(mix(h2))
}
