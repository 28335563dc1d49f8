//! Crates with unsafe code or a protocol have tests of their own.
//!
//! Whole-stack trials find that a stack is wrong; the tests of a crate say where. They are its unit
//! tests and the files of its `tests` folder, measured by lines of code.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::{Crate, Workspace};

/// Crates with a protocol between processes or between writers.
const PROTOCOLS: [&str; 6] = ["nbd", "fuse", "file-wire", "file-cache", "namespace-log", "file-direct"];
/// Least lines of tests, per hundred lines of product code.
const TESTS_PERCENT_MIN: usize = 20;

/// Crates with too few tests of their own, by the percentage they fall short.
pub(crate) fn own_tests(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let product = workspace.crates.iter().filter(|krate| layers.is_product(&krate.name));
    product.filter_map(|krate| of_crate(krate, &workspace.sources)).collect()
}

fn of_crate(krate: &Crate, sources: &[SourceFile]) -> Option<Measured> {
    let files: Vec<_> = sources.iter().filter(|file| file.krate == krate.name).collect();
    let is_unsafe = || files.iter().any(|file| file.find(&["unsafe"]).iter().any(|line| !file.is_test(*line)));
    if !PROTOCOLS.contains(&krate.name.as_str()) && !is_unsafe() {
        return None;
    }
    let all: usize = files.iter().map(|file| file.lines_of_code(1..=usize::MAX)).sum();
    let product: usize = files.iter().filter(|file| !file.tests_only).map(|file| file.product_lines_of_code()).sum();
    let percent = 100 * (all - product) / product.max(1);
    let size = TESTS_PERCENT_MIN.saturating_sub(percent);
    (size > 0).then(|| Measured {
        file: format!("{}/Cargo.toml", krate.folder),
        line: 1,
        rule: "own-tests",
        place: krate.name.clone(),
        item: String::new(),
        size,
        advice: format!("{percent} lines of tests for 100 of code, {TESTS_PERCENT_MIN} needed: test it where it is"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn crates_with_too_few_tests_are_found() {
        let size = |name: &str, code: usize, tests: usize| {
            let text = format!(
                "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                "fn f() {}\n".repeat(code),
                "fn t() {}\n".repeat(tests)
            );
            let sources = [sample(&format!("crates/{name}/src/x.rs"), &text)];
            let krate = Crate { name: name.into(), folder: format!("crates/{name}"), manifest: toml::Table::new() };
            of_crate(&krate, &sources).map(|measured| measured.size)
        };
        assert_eq!(size("nbd", 100, 7), Some(10));
        assert_eq!((size("nbd", 100, 17), size("btt", 100, 7)), (None, None));
    }

    #[test]
    fn unsafe_code_asks_for_tests() {
        let krate = Crate { name: "a".into(), folder: "crates/a".into(), manifest: toml::Table::new() };
        let found = |text| of_crate(&krate, &[sample("crates/a/src/x.rs", text)]).is_some();
        assert!(found("fn f() { unsafe { g() } }"));
        assert!(!found("fn f() { g() }\n#[cfg(test)]\nfn t() { unsafe { g() } }"));
    }
}
