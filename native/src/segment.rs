//! Segments Chinese text like rjieba: finds the most probable words in the dictionary, and uses the HMM between them.

use crate::hash::hash_of;
use crate::prefetch::{prefetch, room};
use jieba_rs::Jieba;
use std::sync::Arc;

pub const FIRST_HAN: u32 = 0x4E00;
/// Separates runs of characters.
pub const BREAK: u16 = u16::MAX;
const CHARACTERS: usize = 0x9FD6 - FIRST_HAN as usize;
const CHARACTER_BYTES: usize = 3; // in UTF-8

// A node of the trie is a sequence of characters that words begin with. It is packed into 64 bits: a filter of the
// characters that may follow, whether it is a word, its number, and (except for first characters) its key in the node
// table.
const CHARACTER_BITS: u32 = 15;
const NUMBER_BITS: u32 = 20;
const KEY_BITS: u32 = NUMBER_BITS + CHARACTER_BITS;
const IS_WORD: u64 = 1 << (KEY_BITS + NUMBER_BITS);
const FILTER_SHIFT: u32 = KEY_BITS + NUMBER_BITS + 1;
const FILTER: u64 = !0 << FILTER_SHIFT;
/// The first character of a word has a separate, larger filter, because that filter is checked most often.
const FIRST_FILTER_BITS: u32 = 6;

fn number_of(node: u64) -> u32 {
    (node >> KEY_BITS) as u32 & ((1 << NUMBER_BITS) - 1)
}

fn key(number: u32, character: u16) -> u64 {
    u64::from(number) << CHARACTER_BITS | u64::from(character)
}

/// Returns the filter bit of a character.
#[inline]
fn filter_bit(character: u16) -> u64 {
    1 << (FILTER_SHIFT + (u32::from(character).wrapping_mul(0x9E37_79B1) >> 29))
}

#[inline]
fn first_filter_bit(character: u16) -> u64 {
    1 << (u32::from(character).wrapping_mul(0x9E37_79B1) >> (32 - FIRST_FILTER_BITS))
}

/// A word's hash, and the value that determines its weight.
#[derive(Clone, Copy, Default)]
pub struct Word {
    pub hash: u64,
    pub each: f64,
}

/// A word that begins at a given position.
struct Edge {
    end: u32,
    number: u32,
    next: u32,
}

#[derive(Clone, Copy, Default)]
struct Step {
    probability: f64,
    end: u32,
    number: u32,
}

struct Candidate {
    start: u32,
    end: u32,
    key: u64,
    slot: u32,
}

/// Memory that is reused from text to text.
#[derive(Default)]
pub struct Cutting {
    candidates: Vec<Candidate>,
    spare: Vec<Candidate>,
    /// By position: 1 plus the index of the last edge that starts there; 0 if there is none.
    last_edges: Vec<u32>,
    edges: Vec<Edge>,
    steps: Vec<Step>,
    unknown: String,
}

/// The dictionary, shared by all segmenters.
pub struct Dictionary {
    /// By character: its node (the number and `IS_WORD`), and its filter.
    first: Vec<(u64, u64)>,
    slots: Vec<u64>,
    shift: u32,
    /// By node number: the logarithm of the word's probability.
    probabilities: Vec<f64>,
    /// By node number: the word's hash; 0 if the node is only the beginning of words.
    hashes: Vec<u64>,
    /// Logarithm of the probability of a character that is not in the dictionary.
    unknown: f64,
    /// Segments by the HMM alone, because it does not have a dictionary.
    hmm: Jieba,
}

/// A dictionary with the weights of one profile.
pub struct Segmenter {
    dictionary: Arc<Dictionary>,
    /// By node number.
    words: Vec<Word>,
}

impl Segmenter {
    /// Args: the dictionary; a function from a word's hash to the value that determines its weight.
    pub fn new(dictionary: Arc<Dictionary>, each: impl Fn(u64) -> f64) -> Self {
        let mut words = room(dictionary.hashes.len());
        words.extend(dictionary.hashes.iter().map(|&hash| Word { hash, each: each(hash) }));
        Segmenter { dictionary, words }
    }

    /// Returns the word for a number that `cut` found.
    pub fn word(&self, number: u32) -> Word {
        self.words[number as usize]
    }

    /// Calls `known` with the number of each word of two or more characters, or `other` with a word that does not have
    /// a number.
    ///
    /// Args: runs of characters, as offsets from `FIRST_HAN`, each run followed by `BREAK`.
    pub fn cut(&self, runs: &[u16], memory: &mut Cutting, mut known: impl FnMut(u32), mut other: impl FnMut(&str)) {
        let dictionary = &*self.dictionary;
        dictionary.find_edges(runs, memory);
        dictionary.find_steps(runs, memory);
        memory.unknown.clear();
        let mut at = 0;
        while at < runs.len() {
            let alone = at;
            while runs[at] != BREAK && memory.steps[at].end as usize == at + 1 {
                at += 1;
            }
            if at - alone > 1 && !memory.has_edge(alone, at) {
                memory.unknown.extend(runs[alone..at].iter().map(|&one| character(one)));
                memory.unknown.push('\n');
            }
            if runs[at] == BREAK {
                at += 1;
            } else {
                prefetch(&self.words, memory.steps[at].number as usize);
                known(memory.steps[at].number);
                at = memory.steps[at].end as usize;
            }
        }
        for token in dictionary.hmm.cut(&memory.unknown, true) {
            if token.end - token.start > 1 {
                dictionary.find(token.word).map_or_else(|| other(token.word), &mut known);
            }
        }
    }
}

impl Dictionary {
    /// Args: the lines of jieba's dictionary; the seed of hashes.
    pub fn new(lines: &str, seed: u64) -> Self {
        let entries: Vec<(&str, u64)> = lines.lines().filter_map(entry).collect();
        let total: u64 = entries.iter().map(|entry| entry.1).sum();
        let bits = (3 * entries.len()).next_power_of_two().trailing_zeros().max(4);
        let mut made = Dictionary {
            first: vec![(0, 0); CHARACTERS],
            slots: room(1 << bits),
            shift: 64 - bits,
            probabilities: room(2 * entries.len()),
            hashes: room(2 * entries.len()),
            unknown: 0.0 - (total as f64).ln(),
            hmm: Jieba::empty(),
        };
        made.slots.resize(1 << bits, 0);
        made.new_number(); // 0 is not the number of a node
        let mut characters = Vec::new();
        for (word, frequency) in entries {
            characters.clear();
            characters.extend(word.chars().map_while(place));
            if word.len() == CHARACTER_BYTES * characters.len() {
                let number = made.insert(&characters) as usize;
                made.probabilities[number] = (frequency as f64).ln() + made.unknown;
                made.hashes[number] = hash_of(word.as_bytes(), seed);
            }
        }
        made
    }

    fn new_number(&mut self) -> u32 {
        let number = self.hashes.len();
        assert!(number < 1 << NUMBER_BITS && 8 * number < 7 * self.slots.len(), "the dictionary has too many words");
        self.hashes.push(0);
        self.probabilities.push(f64::NEG_INFINITY);
        number as u32
    }

    /// Returns the node number of a word; adds the node if necessary.
    fn insert(&mut self, word: &[u16]) -> u32 {
        let first = word[0] as usize;
        if self.first[first].0 == 0 {
            self.first[first].0 = u64::from(self.new_number()) << KEY_BITS;
        }
        let mut number = number_of(self.first[first].0);
        let mut slot = None;
        for &character in &word[1..] {
            match slot {
                None => self.first[first].1 |= first_filter_bit(character),
                Some(slot) => self.slots[slot] |= filter_bit(character),
            }
            let wanted = key(number, character);
            let at = self.probe(wanted);
            if self.slots[at] == 0 {
                self.slots[at] = wanted | u64::from(self.new_number()) << KEY_BITS;
            }
            (number, slot) = (number_of(self.slots[at]), Some(at));
        }
        *slot.map_or(&mut self.first[first].0, |at| &mut self.slots[at]) |= IS_WORD;
        number
    }

    #[inline]
    fn slot_of(&self, wanted: u64) -> usize {
        (wanted.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Returns the slot of a node, or the free slot for it.
    #[inline]
    fn probe(&self, wanted: u64) -> usize {
        self.probe_from(self.slot_of(wanted), wanted)
    }

    #[inline]
    fn probe_from(&self, mut at: usize, wanted: u64) -> usize {
        while self.slots[at] != 0 && self.slots[at] & ((1 << KEY_BITS) - 1) != wanted {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Returns the number of a word, or None if it is not in the dictionary.
    fn find(&self, word: &str) -> Option<u32> {
        let mut characters = word.chars().map(place);
        let mut node = self.first[characters.next()?? as usize].0;
        for character in characters {
            node = self.slots[self.probe(key(number_of(node), character?))];
        }
        (node & IS_WORD != 0).then(|| number_of(node))
    }

    /// Finds all words of two or more characters, level by level, so that many memory reads overlap.
    fn find_edges(&self, runs: &[u16], memory: &mut Cutting) {
        memory.edges.clear();
        memory.last_edges.clear();
        memory.last_edges.resize(runs.len(), 0);
        memory.candidates.clear();
        for (start, pair) in runs.windows(2).enumerate() {
            if pair[0] == BREAK || pair[1] == BREAK {
                continue;
            }
            let (node, filter) = self.first[pair[0] as usize];
            if filter & first_filter_bit(pair[1]) != 0 {
                memory.propose(self, start as u32, start as u32 + 2, key(number_of(node), pair[1]));
            }
        }
        while !memory.candidates.is_empty() {
            let candidates = std::mem::take(&mut memory.candidates);
            memory.candidates = std::mem::take(&mut memory.spare);
            memory.candidates.clear();
            self.find_level(runs, &candidates, memory);
            memory.spare = candidates;
        }
    }

    /// Finds which candidates are nodes; adds the words among the nodes, and proposes the next candidates.
    fn find_level(&self, runs: &[u16], candidates: &[Candidate], memory: &mut Cutting) {
        for one in candidates {
            let node = self.slots[self.probe_from(one.slot as usize, one.key)];
            if node & IS_WORD != 0 {
                prefetch(&self.probabilities, number_of(node) as usize);
                memory.add_edge(one, number_of(node));
            }
            let next = runs[one.end as usize];
            if node & FILTER != 0 && next != BREAK && node & filter_bit(next) != 0 {
                memory.propose(self, one.start, one.end + 1, key(number_of(node), next));
            }
        }
    }

    /// Finds the most probable words starting at each position. Ties go to the longer first word.
    fn find_steps(&self, runs: &[u16], memory: &mut Cutting) {
        let Cutting { steps, edges, last_edges, .. } = memory;
        steps.clear();
        steps.resize(runs.len(), Step::default());
        for at in (0..runs.len()).rev() {
            if runs[at] == BREAK {
                continue;
            }
            let node = self.first[runs[at] as usize].0;
            let number = number_of(node);
            let after = steps[at + 1].probability;
            let own = if node & IS_WORD != 0 { self.probabilities[number as usize] + after } else { f64::NEG_INFINITY };
            let mut best = Step { probability: own, end: at as u32 + 1, number };
            let mut edge = last_edges[at];
            if edge == 0 && node & IS_WORD == 0 {
                best.probability = self.unknown + after;
            }
            while edge != 0 {
                let one = &edges[edge as usize - 1];
                let probability = self.probabilities[one.number as usize] + steps[one.end as usize].probability;
                if probability > best.probability || (probability == best.probability && one.end > best.end) {
                    best = Step { probability, end: one.end, number: one.number };
                }
                edge = one.next;
            }
            steps[at] = best;
        }
    }
}

impl Cutting {
    #[inline]
    fn propose(&mut self, dictionary: &Dictionary, start: u32, end: u32, key: u64) {
        let slot = dictionary.slot_of(key);
        prefetch(&dictionary.slots, slot);
        self.candidates.push(Candidate { start, end, key, slot: slot as u32 });
    }

    fn add_edge(&mut self, found: &Candidate, number: u32) {
        let next = self.last_edges[found.start as usize];
        self.edges.push(Edge { end: found.end, number, next });
        self.last_edges[found.start as usize] = self.edges.len() as u32;
    }

    fn has_edge(&self, start: usize, end: usize) -> bool {
        let mut edge = self.last_edges[start];
        while edge != 0 {
            let one = &self.edges[edge as usize - 1];
            if one.end as usize == end {
                return true;
            }
            edge = one.next;
        }
        false
    }
}

fn entry(line: &str) -> Option<(&str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

fn place(one: char) -> Option<u16> {
    let place = u32::from(one).checked_sub(FIRST_HAN)?;
    ((place as usize) < CHARACTERS).then_some(place as u16)
}

fn character(place: u16) -> char {
    char::from_u32(FIRST_HAN + u32::from(place)).unwrap_or(char::REPLACEMENT_CHARACTER)
}
