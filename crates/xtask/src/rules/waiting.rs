//! Tests wait for events, not for time.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use std::collections::BTreeMap;

/// Calls of `sleep` in tests and in the crates that only test, counted by file.
pub(crate) fn sleeps(file: &SourceFile, layers: &Layers) -> Vec<Measured> {
    let test_crate = !layers.is_product(&file.krate);
    let calls = file.find(&["sleep", "("]).into_iter().filter(|line| test_crate || file.is_test(*line));
    let mut by_file: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    calls.for_each(|line| by_file.entry(&file.path).or_default().push(line));
    let measured = |(path, lines): (&str, Vec<usize>)| Measured {
        file: path.to_owned(),
        line: lines[0],
        rule: "sleep",
        place: path.to_owned(),
        item: String::new(),
        size: lines.len(),
        advice: "wait for the event itself; where nothing tells of it, poll with a deadline in one named place"
            .to_owned(),
    };
    by_file.into_iter().map(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn sleeping_tests_are_found() {
        let layers = Layers::parse(
            "| crate | layer | is | may use |\n| `nbd` | L3 | n | — |\n| `cli` | L4 | c | — |\n| `trials` | test | t | — |",
        );
        let layers = layers.expect("the sample has a table");
        let found = |path, text| sleeps(&sample(path, text), &layers).first().map(|measured| measured.size);
        let body = "fn f() { sleep(d); thread::sleep(d); }";
        assert_eq!(found("crates/nbd/tests/x.rs", body), Some(2));
        assert_eq!(found("crates/trials/src/x.rs", body), Some(2));
        assert_eq!(found("crates/nbd/src/x.rs", body), None);
        assert_eq!(found("crates/nbd/tests/x.rs", "fn f() { wait(e); }"), None);
    }
}
