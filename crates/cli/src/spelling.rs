//! Words that were meant where another one was written.

/// A word that is as many edits away was meant.
const MISSPELLING_EDITS_MAX: usize = 3;

/// The one of `known` that `word` was meant to be, if it is near enough.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |other: &str| strsim::damerau_levenshtein(word, other);
    // A short word is near to all others.
    let is_near = |other: &&str| edits(other) <= MISSPELLING_EDITS_MAX && edits(other) < other.chars().count();
    known.into_iter().min_by_key(|other| edits(other)).filter(is_near)
}
