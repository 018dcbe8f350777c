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
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Returns up to 8 bytes at `at`, as a number; bytes after `size` are 0.
#[inline]
fn rest(bytes: &[u8], at: usize, size: usize) -> u64 {
    match size - at {
        0 => 0,
        left @ 1..=7 => word(bytes, at) & ((1 << (8 * left)) - 1),
        _ => word(bytes, at),
    }
}

#[inline]
fn first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

/// Number of bytes that must follow those that `murmur` hashes, so that it can read whole words.
pub const PADDING: usize = 8;

/// Hashes the first `size` bytes.
#[inline]
pub fn murmur(bytes: &[u8], size: usize, seed: u64) -> u64 {
    let (mut h1, mut h2) = (seed, seed);
    let mut at = 0;
    while size - at >= 16 {
        h1 ^= first(word(bytes, at));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= second(word(bytes, at + 8));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
        at += 16;
    }
    if size - at > 8 {
        h2 ^= second(rest(bytes, at + 8, size));
    }
    h1 ^= first(rest(bytes, at, size));
    h1 ^= size as u64;
    h2 ^= size as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    mix(h1).wrapping_add(mix(h2))
}

/// Hashes bytes that are not followed by padding.
pub fn hash_of(bytes: &[u8], seed: u64) -> u64 {
    let mut short = [0; 64];
    if bytes.len() + PADDING <= short.len() {
        short[..bytes.len()].copy_from_slice(bytes);
        return murmur(&short, bytes.len(), seed);
    }
    murmur(&[bytes, &[0; PADDING]].concat(), bytes.len(), seed)
}
