//! `nfkc-casefold-1` and `nfkc-casefold-2`, for texts in which no code point except for simple marks joins another one.

use crate::page::{Page, APOSTROPHE, HAN, NONE, OTHER_HAN, SPACE, SPACED};

const CODE_POINTS: u32 = 0x11_0000;
const KIND_SHIFT: u32 = 24;
const CODE_MASK: u32 = (1 << KIND_SHIFT) - 1;
const BLANK_CODE: u32 = 0x20;
const HYPHEN: u32 = 0x2D;
const SOFT_HYPHEN: u32 = 0xAD;
const DEVANAGARI_NA: u32 = 0x928;
const VIRAMA: u32 = 0x94D;
const ANUSVARA: u32 = 0x902;
const COMMON_HAN: std::ops::RangeInclusive<u32> = 0x4E00..=0x9FD5;

// What a code point may be before normalisation, in addition to the kinds of a page. The first three have the same
// order as the special numbers above all code points in the tables of `hsimhash.fingerprint.normalize`.
const DROPPED: u8 = 16;
const JOINING: u8 = 17;
const MANY: u8 = 18;
const MAYBE_BREAK: u8 = 19;

// Flags of marks, and of the code points that marks follow: see `normalize._marks`.
const MOST_JOINING: u32 = 32;
const IS_BASE: u8 = 1;
const IS_MARK: u8 = 2;
const IS_DROPPED: u8 = 4;
const COMPOSES_WITH_NEXT: u8 = 8;
const COMPOSES_WITH_LAST: u8 = 16;

/// The tables of normalisation.
pub struct Tables {
    /// By code point: the normalised code point, with its kind in the upper bits.
    entries: Vec<u32>,
    /// By normalised code point: its kind.
    kinds: Vec<u8>,
    many_start: Vec<i64>,
    many_codes: Vec<u32>,
    hyphened: Vec<u8>,
    is_layout_free: bool,
    simplified: Option<Vec<u32>>,
    marks: Vec<(u8, u8)>,
}

/// The tables of `hsimhash.fingerprint.normalize`, by code point.
pub struct Given {
    pub classes: Vec<u8>,
    pub normal: Vec<u32>,
    pub many_start: Vec<i64>,
    pub many_codes: Vec<u32>,
    pub hyphened: Vec<u8>,
    pub is_layout_free: bool,
    pub simplified: Option<Vec<u32>>,
    /// For the first code points: the combining class, and the flags for marks.
    pub marks: Vec<(u8, u8)>,
}

/// How to read a text.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Whether to convert traditional Chinese characters to simplified ones, if the recipe does that.
    pub is_simplified: bool,
    /// Whether to keep apostrophes inside words.
    pub has_apostrophes: bool,
}

fn breaks_line(code: u32) -> bool {
    matches!(code, 0xA..=0xD | 0x85 | 0x2028 | 0x2029)
}

fn kind_of(code: u32, class: u8) -> u8 {
    match code {
        BLANK_CODE => SPACE,
        0x27 | 0x2019 => APOSTROPHE,
        _ if class > 3 => NONE,
        _ => class,
    }
}

fn first_code(text: &str) -> Option<u32> {
    text.chars().next().map(u32::from)
}

/// Returns the first code point of valid UTF-8, and its size in bytes.
#[inline]
fn decoded(bytes: &[u8]) -> (u32, usize) {
    let part = |place: usize| u32::from(bytes[place] & 0x3F);
    match bytes[0] {
        one @ 0..0x80 => (one.into(), 1),
        one @ 0x80..0xE0 => (u32::from(one & 0x1F) << 6 | part(1), 2),
        one @ 0xE0..0xF0 => (u32::from(one & 0xF) << 12 | part(1) << 6 | part(2), 3),
        one => (u32::from(one & 7) << 18 | part(1) << 12 | part(2) << 6 | part(3), 4),
    }
}

impl Tables {
    pub fn new(given: Given) -> Self {
        let Given { classes, normal, many_start, many_codes, hyphened, is_layout_free, simplified, marks } = given;
        let kinds: Vec<u8> = classes.iter().zip(0..).map(|(&class, code)| kind_of(code, class)).collect();
        let entry = |(code, &normal): (u32, &u32)| {
            let is_hyphen = matches!(code, HYPHEN | SOFT_HYPHEN | 0x2010);
            if is_layout_free && is_hyphen && (code == SOFT_HYPHEN || normal == HYPHEN) {
                return u32::from(MAYBE_BREAK) << KIND_SHIFT | normal;
            }
            match normal.checked_sub(CODE_POINTS) {
                None => u32::from(kinds[normal as usize]) << KIND_SHIFT | normal,
                Some(0) => u32::from(DROPPED) << KIND_SHIFT,
                Some(1) => u32::from(JOINING) << KIND_SHIFT,
                Some(many) => u32::from(MANY) << KIND_SHIFT | (many - 2),
            }
        };
        let entries = (0..).zip(&normal).map(entry).collect();
        Tables { entries, kinds, many_start, many_codes, hyphened, is_layout_free, simplified, marks }
    }

    fn kind(&self, code: u32) -> u8 {
        (self.entries[code as usize] >> KIND_SHIFT) as u8
    }

    /// Returns whether a code point becomes a space or is dropped.
    fn is_open(&self, code: u32) -> bool {
        matches!(self.kind(code), SPACE | DROPPED) || code == SOFT_HYPHEN
    }

    /// Returns where the text continues if a hyphen and the line break after it are inside a word, and None otherwise.
    ///
    /// Args: the text before the hyphen; the text after the hyphen.
    fn behind_word_break(&self, before: &str, rest: &str) -> Option<usize> {
        let last = before.chars().next_back()?;
        let next = first_code(rest)?;
        if self.hyphened[last as usize] == 0 || !self.is_open(next) {
            return None;
        }
        if !breaks_line(next) && !rest.chars().nth(1).is_none_or(|one| self.is_open(one.into())) {
            return None;
        }
        let (after, solid) = rest.char_indices().find(|&(_, one)| !self.is_open(one.into()))?;
        let is_broken = rest[..after].chars().any(|one| breaks_line(one.into()));
        (is_broken && self.hyphened[solid as usize] == 1).then_some(after)
    }

    /// Reads a text into a page; returns false if the caller has to normalise it.
    pub fn read(&self, text: &str, how: Reading, page: &mut Page) -> bool {
        page.open(text.len(), how.has_apostrophes);
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            let (code, size) = decoded(&bytes[at..]);
            at += size;
            let entry = self.entries[code as usize];
            let normal = entry & CODE_MASK;
            match (entry >> KIND_SHIFT) as u8 {
                SPACE => page.is_spaced = true,
                DROPPED => {}
                JOINING => {
                    if !self.join(code, page) {
                        return false;
                    }
                }
                MANY => {
                    if !self.put_many(normal as usize, how, page) {
                        return false;
                    }
                }
                MAYBE_BREAK => match self.behind_word_break(&text[..start], &text[at..]) {
                    Some(after) => at += after,
                    None if normal == HYPHEN => {
                        self.put(HYPHEN, NONE, how, page);
                    }
                    None => {}
                },
                kind => {
                    if !self.put(normal, kind, how, page) {
                        return false;
                    }
                    if kind == SPACED && byte < 0x80 {
                        at += self.put_word(&bytes[at..], page);
                    }
                }
            }
        }
        page.close();
        true
    }

    /// Appends the ASCII letters and digits that continue a word, and returns their number.
    #[inline]
    fn put_word(&self, bytes: &[u8], page: &mut Page) -> usize {
        let entries: &[u32] = &self.entries[..0x80];
        let is_word = |byte: &u8| entries.get(*byte as usize).is_some_and(|one| (one >> KIND_SHIFT) as u8 == SPACED);
        let size = bytes.iter().position(|byte| !is_word(byte)).unwrap_or(bytes.len());
        page.text.extend(bytes[..size].iter().map(|&byte| entries[byte as usize] as u8));
        size
    }

    /// Reads normalised code points into a page.
    pub fn read_codes(&self, codes: &[u32], how: Reading, page: &mut Page) {
        page.open(codes.len(), how.has_apostrophes);
        for &code in codes {
            self.put_one(code, self.kinds[code as usize], how, page);
        }
        page.close();
    }

    fn mark(&self, code: u32) -> (u8, u8) {
        self.marks.get(code as usize).copied().unwrap_or_default()
    }

    /// Adds a code point that may join the preceding one; returns false if the caller has to normalise the text.
    fn join(&self, code: u32, page: &mut Page) -> bool {
        let (class, is) = self.mark(code);
        let base = page.last_code();
        if page.is_spaced {
            return false;
        }
        if page.joined == 0 {
            let (base_class, base_is) = self.mark(base);
            if base_is & IS_BASE == 0 {
                return false;
            }
            (page.last_class, page.may_compose) = (base_class, base_is & COMPOSES_WITH_NEXT != 0);
        }
        let composes = is & COMPOSES_WITH_LAST != 0 && page.may_compose;
        if is & IS_MARK == 0 || composes || page.joined == MOST_JOINING {
            return false;
        }
        let joined = page.joined + 1;
        let is_out_of_order = class != 0 && class < page.last_class;
        if self.is_layout_free && (base, code) == (DEVANAGARI_NA, VIRAMA) {
            page.take_last();
            page.put(ANUSVARA, self.kinds[ANUSVARA as usize]);
        } else if is & IS_DROPPED != 0 {
            // Dropped.
        } else if is_out_of_order {
            self.put_in_order(code, class, page);
        } else {
            page.put(code, self.kinds[code as usize]);
        }
        page.joined = joined;
        page.last_class = if class == 0 { 0 } else { class.max(page.last_class) };
        page.may_compose |= is & COMPOSES_WITH_NEXT != 0;
        true
    }

    /// Inserts a mark before the marks of higher classes at the end of a page.
    fn put_in_order(&self, code: u32, class: u8, page: &mut Page) {
        let mut later = Vec::new();
        while self.mark(page.last_code()).0 > class {
            later.push(page.take_last());
        }
        for one in [code].into_iter().chain(later.into_iter().rev()) {
            page.put(one, self.kinds[one as usize]);
        }
    }

    fn put_many(&self, number: usize, how: Reading, page: &mut Page) -> bool {
        let (start, stop) = (self.many_start[number], self.many_start[number + 1]);
        for &one in &self.many_codes[start as usize..stop as usize] {
            if one == BLANK_CODE {
                page.is_spaced = true;
            } else if !self.put(one, self.kinds[one as usize], how, page) {
                return false;
            }
        }
        true
    }

    /// Appends a normalised code point, preceded by a space if a space was read; returns false if the code point may
    /// join the code point before the space.
    #[inline]
    fn put(&self, code: u32, kind: u8, how: Reading, page: &mut Page) -> bool {
        if std::mem::take(&mut page.is_spaced) && page.last_kind().is_some() {
            if !(self.is_layout_free && page.closes_before(kind)) {
                page.put(BLANK_CODE, SPACE);
            } else if self.kind(code) == JOINING {
                return false;
            }
        }
        self.put_one(code, kind, how, page);
        true
    }

    #[inline]
    fn put_one(&self, code: u32, kind: u8, how: Reading, page: &mut Page) {
        if kind != HAN {
            page.put(code, kind);
            return;
        }
        let code = match &self.simplified {
            Some(simplified) if how.is_simplified => simplified[code as usize],
            _ => code,
        };
        page.put(code, if COMMON_HAN.contains(&code) { HAN } else { OTHER_HAN });
    }
}
