//! Turns a text into its signature.

use crate::counter::Counter;
use crate::hash::{hash_of, murmur};
use crate::normalize::{Reading, Tables};
use crate::page::{Page, UNSPACED};
use crate::rarity::Rarities;
use crate::segment::{Cutting, Dictionary, Segmenter, Word};
use crate::sketch::{shingle, Least, Lenders};
use crate::table::WordTable;
use crate::units::{character_rows, Units};
use crate::vote::{Heaviest, Votes};
use std::sync::{Arc, OnceLock};

pub const VOTED: u8 = 0;
pub const EXACT: u8 = 1;
pub const TOO_SHORT: u8 = 2;
/// The caller has to normalise the text.
pub const UNREAD: u8 = 3;

/// Minimum number of occurrences for a name to be treated as repeated.
const OFTEN: u32 = 4;
/// A word is treated as a name if its text has at most this many distinct features per occurrence of the word. The
/// first limit applies if another word occurs equally often, the second in any case.
const MOST_TO_A_NAME: u64 = 32;
const MOST_TO_A_WORD: u64 = 5;
/// Divides the weight of a word in such a name: it votes with 1/4 of its weight.
const NAME_PARTS: u64 = 4;

const SCALE: f64 = 4096.0;
/// Pairs of words that each occur at least this often are always considered for the key.
const MOST_OFTEN: u32 = 64;
/// Value for a text that is entirely English.
const WHOLE: i64 = 64;

/// How features are weighted.
pub enum Weights {
    /// By their rarity; each feature votes once.
    Rarity(Rarities),
    /// By their number of occurrences; Chinese and English words also by their inverse document frequency.
    Count { english: Option<English> },
}

/// The weights of English words, which also show which words are common in every English text.
pub struct English {
    pub words: WordTable,
    /// Words of at most this weight are common.
    pub most_common: f64,
}

/// Everything that determines signatures, including tables.
pub struct Recipe {
    pub tables: Tables,
    /// The segmenter for Chinese, and the inverse document frequencies of words; see `take_chinese`.
    pub chinese: OnceLock<(Segmenter, WordTable)>,
    pub weights: Weights,
    pub lenders: Lenders,
    /// Whether each character of a script without spaces is a word.
    pub is_of_words: bool,
    /// Whether Han characters in Japanese texts are treated as kana.
    pub knows_japanese: bool,
    pub n: usize,
    pub char_n: usize,
    pub word_unit: u64,
    pub char_unit: u64,
    pub cap: Option<u64>,
    pub min_features: usize,
    pub seed: u64,
    pub tie_gives_one: bool,
    pub sketch: Option<usize>,
    pub key: Option<usize>,
    pub is_key_in_parts: bool,
}

/// A text as given, or the code points of a normalised text.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    Given(&'a str),
    Normal(&'a [u32]),
}

#[derive(Clone, Copy, Default)]
pub struct Signature {
    pub fingerprint: u64,
    pub sketch: u64,
    pub key: u64,
    pub kind: u8,
}

/// The input for fitting a rarity table: the hashes of all features of a text, its key and its sketch.
#[derive(Default)]
pub struct Features {
    pub hashes: Vec<u64>,
    pub key: u64,
    pub sketch: u64,
}

/// A distinct feature of a text.
#[derive(Clone, Copy)]
struct Found {
    hash: u64,
    count: u32,
    /// Its rarity, or the weight of one occurrence.
    each: f64,
}

/// Memory that is reused from text to text.
#[derive(Default)]
pub struct Scratch {
    page: Page,
    units: Units,
    cutting: Cutting,
    numbers: Vec<u64>,
    counter: Counter,
    found: Vec<Found>,
    often: Vec<u32>,
    weighed: Vec<(u64, u64)>,
    votes: Votes,
    heaviest: Heaviest,
    /// The hashes of all features, if requested.
    listed: Option<Vec<u64>>,
}

/// Rounds a number below 2^51; ties go to the even number.
#[inline]
fn rounded(number: f64) -> f64 {
    const UNIT_STEPS: f64 = (1u64 << 52) as f64; // above this, floats are whole numbers
    (number + UNIT_STEPS) - UNIT_STEPS
}

fn idf_table(lines: &str, seed: u64) -> WordTable {
    let mut fields = lines.split_whitespace();
    let mut words = Vec::new();
    while let (Some(word), Some(number)) = (fields.next(), fields.next()) {
        words.push((hash_of(word.as_bytes(), seed), number.parse().unwrap_or(0.0)));
    }
    let mut table = WordTable::new(words, 0.0);
    let mut numbers = table.numbers().to_vec();
    numbers.sort_by(f64::total_cmp);
    table.missing = numbers.get(numbers.len() / 2).copied().unwrap_or(0.0);
    table
}

impl Recipe {
    /// Sets what texts with Han characters need: a dictionary with this recipe's seed, and the content of jieba's
    /// idf.txt.
    pub fn take_chinese(&self, dictionary: Arc<Dictionary>, idf: &str) {
        self.chinese.get_or_init(|| {
            let idf = idf_table(idf, self.seed);
            (Segmenter::new(dictionary, |hash| self.each(hash, &idf)), idf)
        });
    }

    /// Returns the rarity of a Chinese word, or the weight of one occurrence.
    fn each(&self, hash: u64, idf: &WordTable) -> f64 {
        match &self.weights {
            Weights::Rarity(rarities) => f64::from(rarities.find(hash)),
            Weights::Count { .. } => idf.find(hash) * SCALE,
        }
    }

    /// Returns the features of a text, or None if the caller has to normalise it.
    pub fn features(&self, text: Text<'_>, scratch: &mut Scratch) -> Option<Features> {
        scratch.listed = Some(Vec::new());
        let sketch = self.take(text, scratch).map(|found| found.1);
        let hashes = scratch.listed.take().unwrap_or_default();
        sketch.map(|sketch| Features { hashes, key: self.key_of(&scratch.heaviest), sketch })
    }

    /// Returns the distinct shingles of a text's sketch, ascending, and nothing else.
    pub fn shingles(&self, text: Text<'_>, scratch: &mut Scratch) -> Option<Features> {
        self.find_units(text, scratch)?;
        let rows = self.sketch.into_iter().flat_map(|n| scratch.units.units.windows(n));
        let mut hashes: Vec<u64> = rows.map(shingle).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Some(Features { hashes, ..Default::default() })
    }

    /// Reads a text and adds the votes of its features; returns how it was read, and its sketch.
    fn take(&self, text: Text<'_>, scratch: &mut Scratch) -> Option<(Reading, u64)> {
        let how = self.find_units(text, scratch)?;
        self.add_features(scratch);
        Some((how, self.sketch(scratch)))
    }

    /// Reads a text and finds its units; returns how it was read, or None if the caller has to normalise it.
    fn find_units(&self, text: Text<'_>, scratch: &mut Scratch) -> Option<Reading> {
        let mut how = Reading { is_simplified: true, has_apostrophes: false };
        if !self.read(text, how, &mut scratch.page) {
            return None;
        }
        if self.knows_japanese && scratch.page.is_japanese() {
            how.is_simplified = false;
            self.read(text, how, &mut scratch.page);
            scratch.page.take_han_as_kana();
        }
        scratch.units.find(&scratch.page, self.seed);
        Some(how)
    }

    /// Reads a text into a page; returns false if the caller has to normalise it.
    fn read(&self, text: Text<'_>, how: Reading, page: &mut Page) -> bool {
        match text {
            Text::Given(text) => self.tables.read(text, how, page),
            Text::Normal(codes) => {
                self.tables.read_codes(codes, how, page);
                true
            }
        }
    }

    /// Returns the signature of a text.
    pub fn signature(&self, text: Text<'_>, scratch: &mut Scratch) -> Signature {
        let Some((mut how, sketch)) = self.take(text, scratch) else {
            return Signature { kind: UNREAD, ..Default::default() };
        };
        if scratch.votes.features >= self.min_features {
            let key = self.key_of(&scratch.heaviest);
            Signature { fingerprint: scratch.votes.fingerprint(self.tie_gives_one), sketch, key, kind: VOTED }
        } else if scratch.page.has_letters() {
            how.has_apostrophes = true;
            self.read(text, how, &mut scratch.page);
            let whole = scratch.page.whole();
            Signature { fingerprint: murmur(whole.bytes, whole.size, self.seed), sketch, key: 0, kind: EXACT }
        } else {
            Signature { fingerprint: 0, sketch, key: 0, kind: TOO_SHORT }
        }
    }

    fn key_of(&self, heaviest: &Heaviest) -> u64 {
        match self.key {
            None => 0,
            Some(_) if self.is_key_in_parts => heaviest.in_parts(),
            Some(_) => heaviest.whole(),
        }
    }

    fn sketch(&self, scratch: &Scratch) -> u64 {
        let Some(n) = self.sketch else { return 0 };
        let mut least = Least::new();
        for row in scratch.units.units.windows(n) {
            least.put(shingle(row));
        }
        least.sketch(&self.lenders)
    }

    /// Adds the votes of all features, and finds the heaviest features.
    fn add_features(&self, scratch: &mut Scratch) {
        scratch.votes = Votes::default();
        scratch.heaviest.clear(self.key.unwrap_or(0));
        scratch.weighed.clear();
        if !self.is_of_words {
            self.find_chinese(scratch);
            self.add(self.char_unit, scratch);
        }
        if !self.is_of_words && scratch.page.has(UNSPACED) {
            scratch.numbers.clear();
            character_rows(&scratch.page, self.char_n, self.seed, &mut scratch.numbers);
            scratch.counter.count(&scratch.numbers);
            self.find_counted(self.char_unit as f64, scratch);
            self.add(self.char_unit, scratch);
        }
        scratch.counter.count(&scratch.units.words.all);
        match &self.weights {
            Weights::Rarity(rarities) => {
                self.find_counted(0.0, scratch);
                self.add(self.word_unit, scratch);
                self.add_pairs(rarities, scratch);
            }
            Weights::Count { english } => {
                self.add_counted_words(english.as_ref(), scratch);
                self.vote(scratch);
            }
        }
    }

    /// Finds Chinese words.
    fn find_chinese(&self, scratch: &mut Scratch) {
        let Scratch { units, cutting, numbers, counter, found, .. } = scratch;
        found.clear();
        if units.han.is_empty() {
            return;
        }
        let (segmenter, idf) = self.chinese.get().expect("`prepare` loads the dictionary first");
        numbers.clear();
        let mut others = Vec::new();
        segmenter.cut(
            &units.han,
            cutting,
            |number| numbers.push(u64::from(number)),
            |word| others.push(hash_of(word.as_bytes(), self.seed)),
        );
        counter.count(numbers);
        found.extend(counter.found.iter().map(|&(number, count)| {
            let Word { hash, each } = segmenter.word(number as u32);
            Found { hash, count, each }
        }));
        counter.count(&others);
        found.extend(counter.found.iter().map(|&(hash, count)| Found { hash, count, each: self.each(hash, idf) }));
    }

    /// Finds the counted features; each occurrence has the weight `each`, unless features are weighted by rarity.
    fn find_counted(&self, each: f64, scratch: &mut Scratch) {
        let Scratch { counter, found, .. } = scratch;
        found.clear();
        if let Weights::Rarity(rarities) = &self.weights {
            counter.found.iter().for_each(|one| rarities.prefetch(one.0));
        }
        found.extend(counter.found.iter().map(|&(hash, count)| {
            let each = match &self.weights {
                Weights::Rarity(rarities) => f64::from(rarities.find(hash)),
                Weights::Count { .. } => each,
            };
            Found { hash, count, each }
        }));
    }

    /// Adds the found features to the vote, or to the features that will vote later.
    fn add(&self, unit: u64, scratch: &mut Scratch) {
        let Scratch { found, often, votes, heaviest, weighed, listed, .. } = scratch;
        if let Some(listed) = listed {
            listed.extend(found.iter().map(|one| one.hash));
        }
        let Weights::Rarity(rarities) = &self.weights else {
            weighed.extend(found.iter().map(|one| (one.hash, rounded(f64::from(one.count) * one.each) as u64)));
            return;
        };
        often.clear();
        often.extend(found.iter().map(|one| one.count).filter(|&count| count >= OFTEN));
        often.sort_unstable();
        let different = found.len() as u64;
        for one in found.iter() {
            let rarity = one.each as u8;
            heaviest.add(rounded(rarities.key_weight(unit, rarity, one.count)), one.hash);
            let weight = unit * u64::from(rarity);
            let is_name = one.count >= OFTEN && repeats_a_name(one.count, often, different);
            votes.add(one.hash, if is_name { (weight / NAME_PARTS).max(1) } else { weight });
        }
    }

    /// Adds pairs of the words that were counted last, if they may be in the key.
    fn add_pairs(&self, rarities: &Rarities, scratch: &mut Scratch) {
        let Scratch { units, counter, numbers, heaviest, listed, .. } = scratch;
        let is_listed = listed.is_some();
        if self.key.is_none() && !is_listed {
            return;
        }
        let most = |count: u32| rounded(rarities.key_weight(self.word_unit, u8::MAX, count));
        // A pair occurs at most as often as either of its words, and the more often it occurs, the heavier it may be.
        let is_some = |count: &u32| is_listed || heaviest.may_have(most(*count));
        let often = (1..MOST_OFTEN).find(is_some).unwrap_or(MOST_OFTEN);
        numbers.clear();
        for row in units.words.spans() {
            let (words, places) = (&units.words.all[row.clone()], &counter.places[row]);
            let mut follows = false;
            for (at, &place) in places.iter().enumerate() {
                let is_often = counter.found[place as usize].1 >= often;
                if follows && is_often {
                    numbers.push(shingle(&words[at - 1..=at]));
                }
                follows = is_often;
            }
        }
        counter.count(numbers);
        if let Some(listed) = listed {
            listed.extend(counter.found.iter().map(|one| one.0));
        }
        for &(hash, count) in &counter.found {
            if heaviest.may_have(most(count)) {
                heaviest.add(rounded(rarities.key_weight(self.word_unit, rarities.find(hash), count)), hash);
            }
        }
    }

    /// Adds English words one by one, and other words as shingles; if a text is partly English, adds both, each with a
    /// share of the weight.
    fn add_counted_words(&self, english: Option<&English>, scratch: &mut Scratch) {
        let start = scratch.weighed.len();
        let part = english.map_or(0, |english| self.add_english(english, scratch));
        if part == WHOLE {
            return;
        }
        scratch.numbers.clear();
        scratch.units.shingles(&scratch.page, self.n, self.seed, self.is_of_words, &mut scratch.numbers);
        scratch.counter.count(&scratch.numbers);
        let rest = (WHOLE - part) as f64;
        let unit = self.word_unit as f64;
        let weight = |count: u32| rounded(rounded(f64::from(count) * unit) * rest / WHOLE as f64) as u64;
        scratch.weighed.extend(scratch.counter.found.iter().map(|&(hash, count)| (hash, weight(count))));
        if part > 0 {
            join_equal(&mut scratch.weighed, start); // a word that is a stretch of its own is both a word and a shingle
        }
    }

    /// Adds the words that were counted last, weighted by how English the text is; returns how English it is, 0 to
    /// `WHOLE`.
    fn add_english(&self, english: &English, scratch: &mut Scratch) -> i64 {
        let Scratch { units, counter, weighed, found, .. } = scratch;
        let each = |&(hash, count): &(u64, u32)| Found { hash, count, each: english.words.find(hash) };
        found.clear();
        found.extend(counter.found.iter().map(each));
        let common = found.iter().filter(|one| one.each <= english.most_common);
        let common: i64 = common.map(|one| i64::from(one.count)).sum();
        let words = units.words.all.len().max(1) as i64;
        let part = (common * 10 * WHOLE / words - WHOLE).clamp(0, WHOLE);
        if part > 0 {
            let weight = |one: &Found| rounded(f64::from(one.count) * one.each * part as f64 / WHOLE as f64) as u64;
            weighed.extend(found.iter().map(|one| (one.hash, weight(one))));
        }
        part
    }

    /// Votes with weights that are capped at a share of the total.
    fn vote(&self, scratch: &mut Scratch) {
        let Scratch { weighed, votes, heaviest, .. } = scratch;
        let total: u64 = weighed.iter().map(|one| one.1).sum();
        let most = self.cap.map_or(u64::MAX, |cap| (total / cap).max(1));
        for &(hash, weight) in weighed.iter() {
            heaviest.add(weight as f64, hash);
            votes.add(hash, weight.min(most));
        }
    }
}

/// Merges features with equal hashes, starting at the index `start`.
fn join_equal(weighed: &mut Vec<(u64, u64)>, start: usize) {
    weighed[start..].sort_unstable();
    let mut last = start;
    for at in start + 1..weighed.len() {
        if weighed[at].0 == weighed[last].0 {
            weighed[last].1 += weighed[at].1;
        } else {
            last += 1;
            weighed[last] = weighed[at];
        }
    }
    weighed.truncate(last + 1);
}

/// Returns whether a feature with this count is a word in a repeated name.
fn repeats_a_name(count: u32, often: &[u32], different: u64) -> bool {
    let is_alike = || often.partition_point(|&one| one <= count) - often.partition_point(|&one| one < count) > 1;
    let count_as = |most: u64| most * u64::from(count) >= different;
    count_as(MOST_TO_A_WORD) || (count_as(MOST_TO_A_NAME) && is_alike())
}
