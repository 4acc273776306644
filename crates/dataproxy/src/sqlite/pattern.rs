//! `LIKE` and `GLOB`, as SQLite has them, with a look at the clock now and then: their work is the product of two
//! lengths.
//!
//! Sees: patterns and texts from services. Never: recurses, or forgets that a text may be no UTF-8.
//!
//! Source: `patternCompare` of SQLite's `func.c`; a test compares the two.

use rusqlite::Result;

use super::functions::{Ticker, read_char, until_nul};

/// The meaning of a pattern's characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternLanguage {
    /// `%`, `_`, and perhaps a character that takes their meaning from them; the case of ASCII's letters does not
    /// matter.
    Like(Option<u32>),
    /// `*`, `?` and `[...]`.
    Glob,
}

#[derive(Debug)]
enum Element {
    One(u32),
    Any,
    Many,
    /// Ranges, and whether those outside of them are meant.
    Set(Vec<(u32, u32)>, bool),
    /// The pattern has no end.
    Nothing,
}

/// A pattern that has been read.
#[derive(Debug)]
pub(super) struct Pattern {
    elements: Vec<Element>,
    ignores_case: bool,
}

impl Pattern {
    pub(super) fn new(language: PatternLanguage, text: &[u8]) -> Self {
        let mut rest = until_nul(text);
        let mut elements = Vec::new();
        while let Some(char) = read_char(&mut rest) {
            elements.push(match (language, char) {
                (PatternLanguage::Like(Some(escape)), char) if char == escape => {
                    read_char(&mut rest).map_or(Element::Nothing, Element::One)
                }
                (PatternLanguage::Like(_), char) if char == u32::from('%') => Element::Many,
                (PatternLanguage::Like(_), char) if char == u32::from('_') => Element::Any,
                (PatternLanguage::Glob, char) if char == u32::from('*') => Element::Many,
                (PatternLanguage::Glob, char) if char == u32::from('?') => Element::Any,
                (PatternLanguage::Glob, char) if char == u32::from('[') => set(&mut rest),
                (_, char) => Element::One(char),
            });
        }
        Self { elements, ignores_case: language != PatternLanguage::Glob }
    }

    /// Whether a text is as the pattern says. After a `%`, only the latest one has to be tried again, at the next
    /// character.
    pub(super) fn matches(&self, text: &[u8], ticker: &mut Ticker<'_>) -> Result<bool> {
        let mut rest = until_nul(text);
        let (mut at, mut again) = (0, None);
        loop {
            let went_on = match self.elements.get(at) {
                Some(Element::Many) if at + 1 == self.elements.len() => return Ok(true),
                Some(Element::Many) => {
                    at += 1;
                    again = Some((at, rest));
                    continue;
                }
                None if rest.is_empty() => return Ok(true),
                None => false,
                Some(element) => match read_char(&mut rest) {
                    Some(char) => {
                        ticker.tick(element.cost())?;
                        self.fits(element, char)
                    }
                    // The rest of the pattern wants more, at any place.
                    None => return Ok(false),
                },
            };
            if went_on {
                at += 1;
                continue;
            }
            let Some((from, mut later)) = again else { return Ok(false) };
            if read_char(&mut later).is_none() {
                return Ok(false);
            }
            (at, rest) = (from, later);
            again = Some((from, later));
        }
    }

    fn fits(&self, element: &Element, char: u32) -> bool {
        match element {
            Element::One(wanted) => *wanted == char || self.ignores_case && lower(*wanted) == lower(char),
            Element::Any => true,
            Element::Set(ranges, inverted) => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&char)) != *inverted
            }
            Element::Many | Element::Nothing => false,
        }
    }
}

impl Element {
    fn cost(&self) -> usize {
        match self {
            Self::Set(ranges, _) => 1 + ranges.len(),
            _ => 1,
        }
    }
}

/// Of ASCII alone; others are as they are.
fn lower(char: u32) -> u32 {
    u8::try_from(char).map_or(char, |byte| u32::from(byte.to_ascii_lowercase()))
}

/// The characters between `[` and `]`.
fn set(rest: &mut &[u8]) -> Element {
    let mut ranges = Vec::new();
    let mut next = read_char(rest);
    let inverted = next == Some(u32::from('^'));
    if inverted {
        next = read_char(rest);
    }
    if next == Some(u32::from(']')) {
        ranges.push((u32::from(']'), u32::from(']')));
        next = read_char(rest);
    }
    let mut prior = 0;
    while let Some(char) = next.filter(|char| *char != u32::from(']')) {
        if char == u32::from('-') && prior > 0 && !matches!(rest.first(), Some(b']') | None) {
            let last = read_char(rest).unwrap_or_default();
            ranges.push((prior, last));
            prior = 0;
        } else {
            ranges.push((char, char));
            prior = char;
        }
        next = read_char(rest);
    }
    if next.is_some() { Element::Set(ranges, inverted) } else { Element::Nothing }
}
