//! A normalised text, split into runs of characters of one kind.

use crate::hash::PADDING;

pub const NONE: u8 = 0;
/// Han characters that the segmenter may combine into words.
pub const HAN: u8 = 1;
/// Letters, marks and digits of scripts with spaces.
pub const SPACED: u8 = 2;
/// Letters, marks and digits of scripts without spaces.
pub const UNSPACED: u8 = 3;
/// Han characters that are never part of a word.
pub const OTHER_HAN: u8 = 4;
pub const SPACE: u8 = 5;
pub const APOSTROPHE: u8 = 6;

const KANA: std::ops::Range<u32> = 0x3041..0x3100;
const LEAST_KANA: usize = 10;

#[derive(Clone, Copy)]
struct Run {
    kind: u8,
    start: u32,
}

/// The UTF-8 of a text, in runs. An apostrophe is a run of its own; apostrophes inside words are dropped.
#[derive(Default)]
pub struct Page {
    pub text: Vec<u8>,
    runs: Vec<Run>,
    size: usize,
    /// One bit per kind: whether there is a run of that kind.
    has: u32,
    has_apostrophes: bool,
    /// Whether spaces were read that have not been written yet.
    pub is_spaced: bool,
    /// The number of code points that joined the last base, the combining class of the last of them, and whether one of
    /// them composes with code points that may follow.
    pub joined: u32,
    pub last_class: u8,
    pub may_compose: bool,
}

/// A slice of a page, and the bytes that follow it in the page.
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    pub bytes: &'a [u8],
    pub size: usize,
}

impl<'a> Slice<'a> {
    pub fn own(&self) -> &'a [u8] {
        &self.bytes[..self.size]
    }

    /// Returns the code points.
    pub fn codes(&self) -> impl Iterator<Item = u32> + 'a {
        std::str::from_utf8(self.own()).unwrap_or("").chars().map(u32::from)
    }
}

/// Appends the UTF-8 of a code point.
#[inline]
fn put_utf8(code: u32, bytes: &mut Vec<u8>) {
    let part = |shift: u32| 0x80 | (code >> shift & 0x3F) as u8;
    match code {
        0..0x80 => bytes.push(code as u8),
        0x80..0x800 => bytes.extend_from_slice(&[0xC0 | (code >> 6) as u8, part(0)]),
        0x800..0x1_0000 => bytes.extend_from_slice(&[0xE0 | (code >> 12) as u8, part(6), part(0)]),
        _ => bytes.extend_from_slice(&[0xF0 | (code >> 18) as u8, part(12), part(6), part(0)]),
    }
}

impl Page {
    pub fn open(&mut self, size: usize, has_apostrophes: bool) {
        self.text.clear();
        self.text.reserve(size + PADDING);
        self.runs.clear();
        (self.has, self.has_apostrophes, self.is_spaced, self.joined) = (0, has_apostrophes, false, 0);
    }

    pub fn close(&mut self) {
        self.size = self.text.len();
        self.text.extend_from_slice(&[0; PADDING]);
    }

    pub fn last_kind(&self) -> Option<u8> {
        self.runs.last().map(|run| run.kind)
    }

    /// Returns whether spaces between the last code point and one of `kind` are removed.
    pub fn closes_before(&self, kind: u8) -> bool {
        let is_letter = |kind| matches!(kind, HAN | OTHER_HAN | UNSPACED);
        let last = self.last_kind().unwrap_or(NONE);
        last != SPACED && kind != SPACED && (is_letter(last) || is_letter(kind))
    }

    /// Returns the last code point; 0 if there is none.
    pub fn last_code(&self) -> u32 {
        let start = self.text.iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
        let last = std::str::from_utf8(&self.text[start..]).unwrap_or("");
        last.chars().next().map_or(0, u32::from)
    }

    /// Removes the last code point from the page, and returns it.
    pub fn take_last(&mut self) -> u32 {
        let last = self.last_code();
        self.text.truncate(self.text.len() - char::from_u32(last).map_or(0, char::len_utf8));
        if self.runs.last().is_some_and(|run| run.start as usize == self.text.len()) {
            self.runs.pop();
        }
        last
    }

    #[inline]
    pub fn put(&mut self, code: u32, kind: u8) {
        self.joined = 0;
        if self.last_kind() != Some(kind) || kind == APOSTROPHE {
            self.open_run(kind);
        }
        put_utf8(code, &mut self.text);
    }

    fn open_run(&mut self, kind: u8) {
        if let [.., Run { kind: SPACED, .. }, Run { kind: APOSTROPHE, start }] = self.runs[..] {
            if kind == SPACED && !self.has_apostrophes {
                self.text.truncate(start as usize);
                self.runs.pop();
                return;
            }
        }
        self.has |= 1 << kind;
        self.runs.push(Run { kind, start: self.text.len() as u32 });
    }

    pub fn has(&self, kind: u8) -> bool {
        self.has >> kind & 1 == 1
    }

    /// Returns whether there are any letters, marks or digits.
    pub fn has_letters(&self) -> bool {
        [HAN, OTHER_HAN, SPACED, UNSPACED].iter().any(|&kind| self.has(kind))
    }

    /// Returns the whole text.
    pub fn whole(&self) -> Slice<'_> {
        Slice { bytes: &self.text, size: self.size }
    }

    /// Returns the runs with their kinds.
    pub fn runs(&self) -> impl Iterator<Item = (u8, Slice<'_>)> {
        let ends = self.runs.iter().skip(1).map(|run| run.start as usize).chain([self.size]);
        self.runs.iter().zip(ends).map(|(run, end)| {
            let start = run.start as usize;
            (run.kind, Slice { bytes: &self.text[start..], size: end - start })
        })
    }

    /// Returns whether at least one in `LEAST_KANA` kana and Han characters is kana.
    pub fn is_japanese(&self) -> bool {
        if !self.has(UNSPACED) || !(self.has(HAN) || self.has(OTHER_HAN)) {
            return false;
        }
        let count = |wanted: &dyn Fn(u8, u32) -> bool| -> usize {
            self.runs().map(|(kind, run)| run.codes().filter(|&code| wanted(kind, code)).count()).sum()
        };
        let kana = count(&|kind, code| kind == UNSPACED && KANA.contains(&code));
        let han = count(&|kind, _| matches!(kind, HAN | OTHER_HAN));
        kana > 0 && kana * LEAST_KANA >= kana + han
    }

    /// Treats Han characters like other characters of scripts without spaces.
    pub fn take_han_as_kana(&mut self) {
        for run in &mut self.runs {
            if matches!(run.kind, HAN | OTHER_HAN) {
                run.kind = UNSPACED;
            }
        }
        self.runs.dedup_by(|next, one| next.kind == UNSPACED && one.kind == UNSPACED);
        self.has = self.has & !(1 << HAN | 1 << OTHER_HAN) | 1 << UNSPACED;
    }
}
