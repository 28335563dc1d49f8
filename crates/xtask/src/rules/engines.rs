//! Engines own no thread, no clock and no console, so that the simulator can own them all.

use crate::rules::layers::Layers;
use crate::source::{Finding, Import, SourceFile};

/// Modules whose place `tidegate_media::sync` or the caller takes. `Arc` decides nothing and a
/// `Duration` is a number: they are free.
const STOLEN: [[&str; 2]; 5] =
    [["std", "sync"], ["std", "thread"], ["std", "time"], ["core", "sync"], ["core", "time"]];
const FREE: [&str; 3] = ["Arc", "Weak", "Duration"];
const LOUD: [&str; 3] = ["info", "warn", "error"];
const CONSOLE: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];

/// Locks, atomics, threads and clocks of the standard library in product code of an engine.
pub(crate) fn own_concurrency(file: &SourceFile, layers: &Layers) -> Vec<Finding> {
    if !layers.is_engine(&file.krate) {
        return Vec::new();
    }
    let mut lines: Vec<_> = file.imports.iter().filter(|import| is_stolen(import)).map(|import| import.line).collect();
    for [outer, inner] in STOLEN {
        lines.extend(qualified(file, outer, inner));
    }
    lines.sort_unstable();
    lines.dedup();
    let product = lines.into_iter().filter(|line| !file.is_test(*line));
    product
        .map(|line| {
            file.finding(
                line,
                "engine-sync",
                "take locks and atomics from `tidegate_media::sync`, time from the caller",
            )
        })
        .collect()
}

fn is_stolen(import: &Import) -> bool {
    let inside = STOLEN.iter().any(|module| import.path.iter().zip(module).filter(|(a, b)| a == b).count() == 2);
    inside && !import.path.get(2).is_some_and(|name| FREE.contains(&name.as_str()))
}

/// Lines with the path `outer::inner::…` in an expression or a type.
fn qualified(file: &SourceFile, outer: &str, inner: &str) -> Vec<usize> {
    let path = [outer, ":", ":", inner, ":", ":"];
    let starts = file.tokens.windows(path.len() + 1).filter(|window| {
        let same = window.iter().zip(path).all(|(token, text)| token.text == text);
        let imported = window[path.len()].text == "{";
        same && !imported && !FREE.contains(&window[path.len()].text.as_str())
    });
    starts.map(|window| window[0].line).collect()
}

/// Messages above debug in an engine, and console output in any library of the product. Examples
/// are programs, and cargo reads what the build script of a crate prints.
pub(crate) fn output(file: &SourceFile, layers: &Layers) -> Vec<Finding> {
    let is_program = file.path.contains("/examples/") || file.path == format!("crates/{}/build.rs", file.krate);
    if !layers.is_library(&file.krate) || is_program {
        return Vec::new();
    }
    let loud = if layers.is_engine(&file.krate) { &LOUD[..] } else { &[] };
    let lines = CONSOLE.iter().chain(loud).flat_map(|name| file.find(&[name, "!"]));
    let product = lines.filter(|line| !file.is_test(*line));
    product
        .map(|line| file.finding(line, "engine-output", "return what happened; the program decides what is said"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    const TABLE: &str =
        "| crate | layer | is | may use |\n| `media` | L0 | m | — |\n| `btt` | L2 | b | — |\n| `cli` | L4 | c | — |";

    fn layers() -> Layers {
        Layers::parse(TABLE).expect("the sample has a table")
    }

    fn stolen(path: &str, text: &str) -> usize {
        own_concurrency(&sample(path, text), &layers()).len()
    }

    #[test]
    fn concurrency_of_the_standard_library_is_found_in_engines() {
        let engine = "crates/btt/src/x.rs";
        assert_eq!(stolen(engine, "use std::sync::Mutex;"), 1);
        assert_eq!(stolen(engine, "use std::{fmt, sync::atomic::AtomicU64};"), 1);
        assert_eq!(stolen(engine, "use std::thread;"), 1);
        assert_eq!(stolen(engine, "fn f() { std::thread::spawn(g); }"), 1);
        assert_eq!(stolen(engine, "fn f() { let t = std::time::Instant::now(); }"), 1);
        assert_eq!(stolen(engine, "use core::sync::atomic::AtomicU64;"), 1);
    }

    #[test]
    fn other_crates_and_tests_may_use_it() {
        assert_eq!(stolen("crates/cli/src/x.rs", "use std::sync::Mutex;"), 0);
        assert_eq!(stolen("crates/btt/tests/x.rs", "use std::sync::Mutex;"), 0);
        assert_eq!(stolen("crates/btt/src/x.rs", "use std::sync::Arc; use tidegate_media::sync::Mutex;"), 0);
    }

    #[test]
    fn libraries_are_silent() {
        let count = |path, text| output(&sample(path, text), &layers()).len();
        assert_eq!(count("crates/btt/src/x.rs", "fn f() { log::warn!(\"x\"); println!(\"y\"); }"), 2);
        assert_eq!(count("crates/media/src/x.rs", "fn f() { eprintln!(\"y\"); }"), 1);
        assert_eq!(count("crates/btt/src/x.rs", "fn f() { log::debug!(\"x\"); }"), 0);
        assert_eq!(count("crates/btt/examples/x.rs", "fn main() { println!(\"y\"); }"), 0);
        assert_eq!(count("crates/btt/build.rs", "fn main() { println!(\"y\"); }"), 0);
        assert_eq!(count("crates/btt/src/build.rs", "fn main() { println!(\"y\"); }"), 1);
        assert_eq!(count("crates/cli/src/x.rs", "fn f() { println!(\"y\"); }"), 0);
    }
}
