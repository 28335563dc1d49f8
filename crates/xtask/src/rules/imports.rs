//! Every name in a file can be traced to the line that brought it in.

use crate::source::{Finding, Import, SourceFile};

/// Glob imports and glob re-exports. Tests may take in all of what they test, and a test
/// framework's prelude.
pub(crate) fn globs(file: &SourceFile) -> Vec<Finding> {
    let is_glob = |import: &&Import| import.path.last().is_some_and(|last| last == "*");
    let offered = |import: &Import| {
        import.path == ["super", "*"] || import.path.iter().rev().nth(1).is_some_and(|m| m == "prelude")
    };
    let allowed = |import: &Import| !import.public && offered(import) && file.is_test(import.line);
    let globs = file.imports.iter().filter(is_glob).filter(|import| !allowed(import));
    globs.map(|import| file.finding(import.line, "glob", advice(import))).collect()
}

fn advice(import: &Import) -> String {
    let verb = if import.public { "re-export" } else { "import" };
    format!("{verb} what is needed from `{}` by name", import.path[..import.path.len() - 1].join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn found(text: &str) -> usize {
        globs(&sample("crates/a/src/x.rs", text)).len()
    }

    #[test]
    fn globs_are_found() {
        assert_eq!(found("pub use error::*;"), 1);
        assert_eq!(found("use std::{io::*, fmt};"), 1);
        assert_eq!(found("use super::*; use proptest::prelude::*;"), 2);
        assert_eq!(found("#[cfg(test)] mod tests { pub use super::*; }"), 1);
    }

    #[test]
    fn tests_may_take_in_what_they_test() {
        assert_eq!(found("use std::fmt;\n#[cfg(test)] mod tests { use super::*; use proptest::prelude::*; }"), 0);
    }
}
