//! `nfkc-casefold-1` and `-2` of texts without code points that join what stands before them.

pub const SPACE: u32 = 0x20;
const CODE_POINTS: u32 = 0x11_0000;
const DROPPED: u32 = CODE_POINTS;
const JOINING: u32 = CODE_POINTS + 1;
const MANY: u32 = CODE_POINTS + 2;
const HYPHEN: u32 = 0x2D;
const SOFT_HYPHEN: u32 = 0xAD;

pub const NONE: u8 = 0;
pub const HAN: u8 = 1;
pub const SPACED: u8 = 2;
pub const UNSPACED: u8 = 3;

/// The tables of `hsimhash.fingerprint.normalize`, by code point.
pub struct Tables {
    pub classes: Vec<u8>,
    pub normal: Vec<u32>,
    pub many_start: Vec<i64>,
    pub many_codes: Vec<u32>,
    pub hyphened: Vec<u8>,
    pub is_layout_free: bool,
}

fn breaks_line(code: u32) -> bool {
    matches!(code, 0xA..=0xD | 0x85 | 0x2028 | 0x2029)
}

fn is_hyphen(code: u32) -> bool {
    matches!(code, 0x2D | SOFT_HYPHEN | 0x2010)
}

impl Tables {
    fn normal(&self, code: u32) -> u32 {
        self.normal[code as usize]
    }

    fn is_open(&self, code: u32) -> bool {
        matches!(self.normal(code), SPACE | DROPPED)
    }

    /// Returns where the text goes on if a hyphen at `at` and the line break after it are inside a word.
    fn behind_word_break(&self, raw: &[u32], at: usize) -> Option<usize> {
        let next = *raw.get(at + 1)?;
        if at == 0 || self.hyphened[raw[at - 1] as usize] == 0 || !self.is_open(next) {
            return None;
        }
        if !breaks_line(next) && !raw.get(at + 2).is_none_or(|&code| self.is_open(code)) {
            return None;
        }
        let mut after = at + 1;
        let mut is_broken = false;
        while after < raw.len() && self.is_open(raw[after]) {
            is_broken |= breaks_line(raw[after]);
            after += 1;
        }
        (is_broken && after < raw.len() && self.hyphened[raw[after] as usize] == 1).then_some(after)
    }

    /// Returns whether a space between two code points goes.
    fn is_closed(&self, before: u32, after: u32) -> bool {
        let (left, right) = (self.classes[before as usize], self.classes[after as usize]);
        self.is_layout_free && left != SPACED && right != SPACED && (left != NONE || right != NONE)
    }

    /// Appends the normalised code points of a text to `codes`, which is empty; false if it has some that join.
    pub fn normalize(&self, text: &str, raw: &mut Vec<u32>, codes: &mut Vec<u32>) -> bool {
        raw.clear();
        raw.extend(text.chars().map(u32::from));
        let mut is_spaced = false; // whether spaces were read that are not written yet
        let mut at = 0;
        while at < raw.len() {
            let code = raw[at];
            if self.is_layout_free && is_hyphen(code) && (code == SOFT_HYPHEN || self.normal(code) == HYPHEN) {
                if let Some(after) = self.behind_word_break(raw, at) {
                    at = after;
                    continue;
                }
            }
            at += 1;
            match self.normal(code) {
                SPACE => is_spaced = true,
                DROPPED => {}
                JOINING => return false,
                one if one < CODE_POINTS => {
                    if !self.put(one, &mut is_spaced, codes) {
                        return false;
                    }
                }
                many => {
                    let number = (many - MANY) as usize;
                    let (start, stop) = (self.many_start[number], self.many_start[number + 1]);
                    for &one in &self.many_codes[start as usize..stop as usize] {
                        if one == SPACE {
                            is_spaced = true;
                        } else if !self.put(one, &mut is_spaced, codes) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    #[inline]
    fn put(&self, code: u32, is_spaced: &mut bool, codes: &mut Vec<u32>) -> bool {
        if std::mem::take(is_spaced) {
            if let Some(&before) = codes.last() {
                if !self.is_closed(before, code) {
                    codes.push(SPACE);
                } else if self.normal(code) == JOINING {
                    return false; // it may compose with what stands before the space
                }
            }
        }
        codes.push(code);
        true
    }
}
