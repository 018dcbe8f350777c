//! The units of a page (words, and characters of scripts without spaces), in stretches that shingles do not cross.

use crate::hash::{mix, murmur, PADDING};
use crate::page::{Page, Slice, HAN, OTHER_HAN, SPACE, SPACED, UNSPACED};
use crate::segment::{BREAK, FIRST_HAN};
use crate::sketch::PLACES;

/// Rows of hashes.
#[derive(Default)]
pub struct Rows {
    pub all: Vec<u64>,
    ends: Vec<usize>,
}

impl Rows {
    fn clear(&mut self) {
        self.all.clear();
        self.ends.clear();
    }

    #[inline]
    fn close(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.all.len() {
            self.ends.push(self.all.len());
        }
    }

    /// Returns the range of each row.
    pub fn spans(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| start..end)
    }

    /// Returns the windows of `n` adjacent hashes; a row of fewer hashes is one window.
    pub fn windows(&self, n: usize) -> impl Iterator<Item = &[u64]> {
        self.spans().flat_map(move |row| self.all[row.clone()].windows(n.min(row.len())))
    }
}

/// Memory that is reused from text to text.
#[derive(Default)]
pub struct Units {
    /// Words, in rows of words with only spaces between them.
    pub words: Rows,
    /// Words and characters for the sketch.
    pub units: Rows,
    /// Han characters for the segmenter.
    pub han: Vec<u16>,
    spread: Vec<u8>,
    starts: Vec<usize>,
    spread_ends: Vec<usize>,
}

fn unit_of(code: u32) -> u64 {
    mix(u64::from(code).wrapping_mul(PLACES[0]))
}

/// Returns the code points of a run of Han characters, which take three bytes each.
fn han_codes(run: Slice<'_>) -> impl Iterator<Item = u32> + '_ {
    let bits = |byte: u8| u32::from(byte & 0x3F);
    run.own().chunks_exact(3).map(move |one| bits(one[0] & 0xF) << 12 | bits(one[1]) << 6 | bits(one[2]))
}

impl Units {
    /// Finds words, units and Han characters.
    pub fn find(&mut self, page: &Page, seed: u64) {
        let Units { words, units, han, .. } = self;
        words.clear();
        units.clear();
        han.clear();
        for (kind, run) in page.runs() {
            match kind {
                SPACED => {
                    let hash = murmur(run.bytes, run.size, seed);
                    words.all.push(hash);
                    units.all.push(hash);
                }
                HAN => {
                    words.close();
                    for code in han_codes(run) {
                        units.all.push(unit_of(code));
                        han.push((code - FIRST_HAN) as u16);
                    }
                    han.push(BREAK);
                }
                OTHER_HAN | UNSPACED => {
                    words.close();
                    units.all.extend(run.codes().map(unit_of));
                }
                SPACE => {}
                _ => {
                    words.close();
                    units.close();
                }
            }
        }
        words.close();
        units.close();
    }

    /// Appends the hash of each shingle of `n` words. Characters of scripts without spaces are words if `every_script`;
    /// otherwise they end a stretch.
    pub fn shingles(&mut self, page: &Page, n: usize, seed: u64, every_script: bool, hashes: &mut Vec<u64>) {
        let Units { spread, starts, spread_ends, .. } = self;
        spread.clear();
        starts.clear();
        spread_ends.clear();
        let mut add = |unit: &[u8], starts: &mut Vec<usize>| {
            starts.push(spread.len());
            spread.extend_from_slice(unit);
            spread.push(b' ');
        };
        for (kind, run) in page.runs() {
            match kind {
                SPACED => add(run.own(), starts),
                HAN | OTHER_HAN | UNSPACED if every_script => {
                    for unit in characters(run.own()) {
                        add(unit, starts);
                    }
                }
                SPACE => {}
                _ => spread_ends.push(starts.len()),
            }
        }
        spread_ends.push(starts.len());
        starts.push(spread.len());
        spread.extend_from_slice(&[0; PADDING]);
        let mut first = 0;
        for &end in spread_ends.iter() {
            for row in starts[first..=end].windows(n.min(end - first) + 1).filter(|row| row.len() > 1) {
                let size = row[row.len() - 1] - 1 - row[0];
                hashes.push(murmur(&spread[row[0]..], size, seed));
            }
            first = end;
        }
    }
}

/// Returns the UTF-8 of each character.
fn characters(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.chunk_by(|_, &next| next & 0xC0 == 0x80)
}

/// Appends the hash of each run of `n` characters of scripts without spaces.
pub fn character_rows(page: &Page, n: usize, seed: u64, hashes: &mut Vec<u64>) {
    let mut starts = Vec::new();
    for (_, run) in page.runs().filter(|run| run.0 == UNSPACED) {
        starts.clear();
        starts.extend((0..run.size).filter(|&at| run.bytes[at] & 0xC0 != 0x80));
        let count = starts.len();
        starts.push(run.size);
        for row in starts.windows(n.min(count) + 1) {
            hashes.push(murmur(&run.bytes[row[0]..], row[row.len() - 1] - row[0], seed));
        }
    }
}
