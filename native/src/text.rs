//! From the code points of a text to its signature.

use crate::hash::{mix, murmur, PADDING};
use crate::normalize::{Tables, HAN, SPACE, SPACED, UNSPACED};
use crate::rarity::Rarities;
use crate::sketch::{shingle, Least, Lenders, PLACES};
use jieba_rs::Jieba;

pub const VOTED: u8 = 0;
pub const EXACT: u8 = 1;
pub const TOO_SHORT: u8 = 2;
/// The caller has to normalise the text.
pub const UNREAD: u8 = 3;

const KANA: std::ops::Range<u32> = 0x3041..0x3100;
const LEAST_KANA: usize = 10;
/// Times found: what is found less often is not a name that repeats.
const OFTEN: u32 = 4;
/// A text has at most so many different features for each time that the words of a name, or a word alone, are found.
const MOST_TO_A_NAME: u64 = 32;
const MOST_TO_A_WORD: u64 = 5;
/// A word of such a name votes with one part of its weight.
const NAME_PARTS: u16 = 4;
const RUN_BREAK: char = '\n';

/// What decides signatures, with the tables it needs.
pub struct Recipe {
    pub tables: Tables,
    pub simplified: Vec<u32>,
    pub rarities: Rarities,
    /// What features weigh, times their rarity: at most 257, so that it fits into 16 bits.
    pub word_unit: u16,
    pub char_unit: u16,
    pub char_n: usize,
    pub key: usize,
    pub min_features: usize,
    pub lenders: Lenders,
    pub segmenter: Jieba,
}

#[derive(Clone, Copy, Default)]
pub struct Signature {
    pub fingerprint: u64,
    pub sketch: u64,
    pub key: u64,
    pub kind: u8,
}

#[derive(Clone, Copy)]
struct Unit {
    hash: u64,
    stretch: u32,
}

/// Memory that one text after the other uses.
#[derive(Default)]
pub struct Scratch {
    raw: Vec<u32>,
    codes: Vec<u32>,
    classes: Vec<u8>,
    han: String,
    bytes: Vec<u8>,
    words: Vec<Unit>,
    units: Vec<Unit>,
    hashes: Vec<u64>,
    found: Vec<(u64, u32)>,
    often: Vec<u32>,
    votes: Votes,
    heaviest: Heaviest,
}

const LANES: usize = 8; // bits of a byte
const BYTES: usize = 8;

/// By the value of a byte, its bits as masks, lowest first.
static MASKS: [[u16; LANES]; 256] = masks();

const fn masks() -> [[u16; LANES]; 256] {
    let mut all = [[0; LANES]; 256];
    let mut value = 0;
    while value < 256 {
        let mut bit = 0;
        while bit < LANES {
            all[value][bit] = if value >> bit & 1 == 1 { u16::MAX } else { 0 };
            bit += 1;
        }
        value += 1;
    }
    all
}

/// The weights of all features for each bit.
#[derive(Default)]
struct Votes {
    features: usize,
    total: u64,
    sums: [[u64; LANES]; BYTES],
    /// What is not yet in the sums: 16 bits are added up four times as fast as 64.
    part: [[u16; LANES]; BYTES],
    part_total: u32,
}

impl Votes {
    fn clear(&mut self) {
        *self = Votes::default();
    }

    /// Adds a feature, whose weight has 16 bits.
    #[inline]
    fn add(&mut self, hash: u64, weight: u16) {
        if self.part_total + u32::from(weight) > u32::from(u16::MAX) {
            self.flush();
        }
        self.part_total += u32::from(weight);
        self.features += 1;
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

    fn fingerprint(&mut self) -> u64 {
        self.flush();
        let decided = self.sums.as_flattened().iter().enumerate();
        decided.fold(0, |all, (bit, &sum)| all | u64::from(2 * sum > self.total) << bit)
    }
}

/// The heaviest features for the key, the heaviest first; of equal weights the lower hash.
#[derive(Default)]
struct Heaviest {
    chosen: Vec<(f64, u64)>,
}

impl Heaviest {
    #[inline]
    fn add(&mut self, count: usize, weight: f64, hash: u64) {
        let is_before = |one: &(f64, u64)| one.0 > weight || (one.0 == weight && one.1 < hash);
        if self.chosen.len() == count && self.chosen.last().is_none_or(is_before) {
            return;
        }
        let place = self.chosen.partition_point(is_before);
        self.chosen.insert(place, (weight, hash));
        self.chosen.truncate(count);
    }

    /// Packs the number of features and a tag of each.
    fn in_parts(&self) -> u64 {
        let mut key = (self.chosen.len() as u64) << 60;
        for (rank, &(_, hash)) in self.chosen.iter().enumerate() {
            key |= mix(hash) >> 52 << (48 - 12 * rank);
        }
        key
    }
}

/// Calls `each` with every different hash and how often it is there.
#[inline]
fn fold(hashes: &mut [u64], mut each: impl FnMut(u64, u32)) {
    hashes.sort_unstable();
    for equal in hashes.chunk_by(|one, other| one == other) {
        each(equal[0], equal.len() as u32);
    }
}

#[inline]
fn put_utf8(code: u32, bytes: &mut Vec<u8>) {
    if code < 0x80 {
        bytes.push(code as u8);
    } else {
        let mut buffer = [0; 4];
        bytes.extend_from_slice(as_char(code).encode_utf8(&mut buffer).as_bytes());
    }
}

/// Hashes all of `bytes`, and empties them.
#[inline]
fn hashed(bytes: &mut Vec<u8>) -> u64 {
    let size = bytes.len();
    bytes.extend_from_slice(&[0; PADDING]);
    let hash = murmur(bytes, size, 0);
    bytes.clear();
    hash
}

#[inline]
fn as_char(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns whether the segmenter would cut a Han character unlike jieba.
fn is_rare_han(code: u32) -> bool {
    matches!(code, 0x3400..=0x4DBF | 0x9FD6..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x2_EBEF | 0x2_F800..=0x2_FA1F)
}

impl Recipe {
    /// Returns the signature of a text.
    pub fn of_text(&self, text: &str, scratch: &mut Scratch) -> Signature {
        let (mut raw, mut codes) = (std::mem::take(&mut scratch.raw), std::mem::take(&mut scratch.codes));
        codes.clear();
        let is_read = self.tables.normalize(text, &mut raw, &mut codes);
        let found =
            if is_read { self.of_codes(&mut codes, scratch) } else { Signature { kind: UNREAD, ..Default::default() } };
        (scratch.raw, scratch.codes) = (raw, codes);
        found
    }

    /// Returns the signature of a normalised text.
    pub fn of_codes(&self, codes: &mut [u32], scratch: &mut Scratch) -> Signature {
        let mut classes = std::mem::take(&mut scratch.classes);
        classes.clear();
        classes.extend(codes.iter().map(|&code| self.tables.classes[code as usize]));
        self.read_han(codes, &mut classes);
        scratch.votes.clear();
        scratch.heaviest.chosen.clear();
        if classes.contains(&HAN) {
            self.chinese(codes, &classes, scratch);
        }
        self.find_units(codes, &classes, scratch);
        self.words(scratch);
        if classes.contains(&UNSPACED) {
            self.characters(codes, &classes, scratch);
        }
        let sketch = self.sketch(scratch);
        let found = if scratch.votes.features >= self.min_features {
            let key = scratch.heaviest.in_parts();
            Signature { fingerprint: scratch.votes.fingerprint(), sketch, key, kind: VOTED }
        } else if classes.iter().any(|one| matches!(*one, HAN | SPACED | UNSPACED)) {
            codes.iter().for_each(|&code| put_utf8(code, &mut scratch.bytes));
            Signature { fingerprint: hashed(&mut scratch.bytes), sketch, key: 0, kind: EXACT }
        } else {
            Signature { fingerprint: 0, sketch, key: 0, kind: TOO_SHORT }
        };
        scratch.classes = classes;
        found
    }

    /// Reads Han characters as Chinese, in simplified forms, or in Japanese texts as kana.
    fn read_han(&self, codes: &mut [u32], classes: &mut [u8]) {
        let han = classes.iter().filter(|&&one| one == HAN).count();
        if han == 0 {
            return;
        }
        let pairs = codes.iter().zip(classes.iter());
        let kana = pairs.filter(|&(code, &class)| class == UNSPACED && KANA.contains(code)).count();
        if kana > 0 && kana * LEAST_KANA >= kana + han {
            classes.iter_mut().filter(|one| **one == HAN).for_each(|one| *one = UNSPACED);
        } else {
            codes.iter_mut().for_each(|code| *code = self.simplified[*code as usize]);
        }
    }

    /// Adds the words of Chinese.
    fn chinese(&self, codes: &[u32], classes: &[u8], scratch: &mut Scratch) {
        scratch.han.clear();
        let mut was_han = false;
        for (&code, &class) in codes.iter().zip(classes) {
            if class == HAN {
                scratch.han.push(if is_rare_han(code) { ' ' } else { as_char(code) });
            } else if was_han {
                scratch.han.push(RUN_BREAK);
            }
            was_han = class == HAN;
        }
        scratch.hashes.clear();
        for token in self.segmenter.cut(&scratch.han, true) {
            let word = token.word;
            if word.len() > 4 || word.chars().nth(1).is_some() {
                scratch.bytes.extend_from_slice(word.as_bytes());
                scratch.hashes.push(hashed(&mut scratch.bytes));
            }
        }
        self.add_found(self.char_unit, scratch);
    }

    /// Adds what `scratch.hashes` holds, features of one kind that weigh by their rarity.
    fn add_found(&self, unit: u16, scratch: &mut Scratch) {
        let Scratch { hashes, found, often, votes, heaviest, .. } = scratch;
        found.clear();
        often.clear();
        fold(hashes, |hash, count| {
            found.push((hash, count));
            if count >= OFTEN {
                often.push(count);
            }
        });
        often.sort_unstable();
        let different = found.len() as u64;
        for &(hash, count) in found.iter() {
            let rarity = self.rarities.find(hash);
            heaviest.add(self.key, self.rarities.key_weight(unit, rarity, count), hash);
            let weight = unit * u16::from(rarity);
            let is_name = count >= OFTEN && repeats_a_name(count, often, different);
            votes.add(hash, if is_name { (weight / NAME_PARTS).max(1) } else { weight });
        }
    }

    /// Finds words, and the units of the sketch: words and characters of scripts without spaces.
    fn find_units(&self, codes: &[u32], classes: &[u8], scratch: &mut Scratch) {
        let Scratch { bytes, words, units, .. } = scratch;
        words.clear();
        units.clear();
        // What ends a row of words: other characters, and also those of scripts without spaces.
        let (mut stretch, mut word_stretch) = (0, 0);
        let mut at = 0;
        while at < codes.len() {
            match classes[at] {
                SPACED => {
                    while at < codes.len() {
                        if classes[at] == SPACED {
                            put_utf8(codes[at], bytes);
                        } else if !is_inside(codes, classes, at) {
                            break;
                        }
                        at += 1;
                    }
                    let hash = hashed(bytes);
                    words.push(Unit { hash, stretch: word_stretch });
                    units.push(Unit { hash, stretch });
                }
                HAN | UNSPACED => {
                    units.push(Unit { hash: mix(u64::from(codes[at]).wrapping_mul(PLACES[0])), stretch });
                    word_stretch += 1;
                    at += 1;
                }
                _ => {
                    if codes[at] != SPACE {
                        stretch += 1;
                        word_stretch += 1;
                    }
                    at += 1;
                }
            }
        }
    }

    /// Adds words, which vote, and pairs of them, which may be in the key.
    fn words(&self, scratch: &mut Scratch) {
        scratch.hashes.clear();
        scratch.hashes.extend(scratch.words.iter().map(|one| one.hash));
        self.add_found(self.word_unit, scratch);
        scratch.hashes.clear();
        let adjacent = scratch.words.windows(2).filter(|pair| pair[0].stretch == pair[1].stretch);
        scratch.hashes.extend(adjacent.map(|pair| shingle(pair.iter().map(|one| one.hash))));
        let heaviest = &mut scratch.heaviest;
        fold(&mut scratch.hashes, |hash, count| {
            let weight = self.rarities.key_weight(self.word_unit, self.rarities.find(hash), count);
            heaviest.add(self.key, weight, hash);
        });
    }

    /// Adds rows of characters of scripts without spaces.
    fn characters(&self, codes: &[u32], classes: &[u8], scratch: &mut Scratch) {
        scratch.hashes.clear();
        let mut at = 0;
        for run in classes.chunk_by(|one, other| (*one == UNSPACED) == (*other == UNSPACED)) {
            if run[0] == UNSPACED {
                let run = &codes[at..at + run.len()];
                for row in run.windows(self.char_n.min(run.len())) {
                    row.iter().for_each(|&code| put_utf8(code, &mut scratch.bytes));
                    scratch.hashes.push(hashed(&mut scratch.bytes));
                }
            }
            at += run.len();
        }
        self.add_found(self.char_unit, scratch);
    }

    fn sketch(&self, scratch: &Scratch) -> u64 {
        let mut least = Least::new();
        for stretch in scratch.units.chunk_by(|one, other| one.stretch == other.stretch) {
            for row in stretch.windows(PLACES.len().min(stretch.len())) {
                least.put(shingle(row.iter().map(|one| one.hash)));
            }
        }
        least.sketch(&self.lenders)
    }
}

/// Returns whether a feature found so often is a word of a name that repeats.
fn repeats_a_name(count: u32, often: &[u32], different: u64) -> bool {
    let is_alike = || often.partition_point(|&one| one <= count) - often.partition_point(|&one| one < count) > 1;
    let count_as = |most: u64| most * u64::from(count) >= different;
    count_as(MOST_TO_A_WORD) || (count_as(MOST_TO_A_NAME) && is_alike())
}

/// Returns whether there is an apostrophe inside a word.
fn is_inside(codes: &[u32], classes: &[u8], at: usize) -> bool {
    matches!(codes[at], 0x27 | 0x2019) && at + 1 < codes.len() && classes[at - 1] == SPACED && classes[at + 1] == SPACED
}
