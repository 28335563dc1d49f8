//! Words that were meant where another one was written.

/// A word that is as many edits away was meant.
const MISSPELLING_EDITS_MAX: usize = 3;

/// The one of `known` that `word` was meant to be, if it is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |other: &str| strsim::damerau_levenshtein(word, other);
    // A short word is near to all others.
    let is_near = |other: &&str| edits(other) <= MISSPELLING_EDITS_MAX && edits(other) < other.chars().count();
    known.into_iter().min_by_key(|other| edits(other)).filter(is_near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found_and_a_short_one_is_not_taken_for_any() {
        let modes = ["write-back", "write-through", "read-only"];
        assert_eq!(nearest("write-bak", modes), Some("write-back"));
        assert_eq!(nearest("write-trough", modes), Some("write-through"));
        assert_eq!(nearest("readonly", modes), Some("read-only"));
        assert_eq!(nearest("sideways", modes), None);
        assert_eq!(nearest("abc", ["lru", "2q"]), None);
    }
}
