//! Every file says at its head what it is and why.

use crate::source::{Finding, SourceFile};

const ROOT_LINES_MIN: usize = 3;

/// Files without a preamble, and crate roots with too short a one.
pub(crate) fn preambles(file: &SourceFile) -> Vec<Finding> {
    let needed = if is_crate_root(&file.path) { ROOT_LINES_MIN } else { 1 };
    let found = preamble_lines(file);
    let advice = format!("begin the file with {needed} or more lines of `//!`: what it is and why (found {found})");
    (found < needed).then(|| file.finding(1, "preamble", advice)).into_iter().collect()
}

/// Whether `path` is the root of a library or a program; single test files are not held to it.
pub(crate) fn is_crate_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (name, folder) = (parts.next(), parts.next());
    matches!((name, folder), (Some("lib.rs" | "main.rs"), Some("src"))) || folder == Some("bin")
}

/// Lines of `//!` with words in them, before the first token of code.
fn preamble_lines(file: &SourceFile) -> usize {
    let first_code = file.tokens.first().map_or(usize::MAX, |token| token.line);
    let head = file.comments.iter().take_while(|comment| comment.line < first_code);
    head.filter(|comment| comment.text.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn found(path: &str, text: &str) -> usize {
        preambles(&sample(path, text)).len()
    }

    #[test]
    fn files_without_a_preamble_are_found() {
        assert_eq!(found("crates/a/src/x.rs", "fn f() {}"), 1);
        assert_eq!(found("crates/a/src/x.rs", "fn f() {\n    //! late\n}"), 1);
        assert_eq!(found("crates/a/src/lib.rs", "//! One.\n//!\n//! Two.\nfn f() {}"), 1);
    }

    #[test]
    fn preambles_are_accepted() {
        assert_eq!(found("crates/a/src/x.rs", "//! What.\nfn f() {}"), 0);
        assert_eq!(found("crates/a/src/main.rs", "//! One.\n//! Two.\n//!\n//! Three.\n#![forbid(unsafe_code)]"), 0);
    }
}
