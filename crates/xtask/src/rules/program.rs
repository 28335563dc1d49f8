//! The program only reads its command line, calls services and prints their answers; bytes on a
//! medium belong to the crates below it.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::rules::records;
use crate::source::SourceFile;
use crate::workspace::Workspace;

/// The crate of the program.
const PROGRAM: &str = "cli";
/// Names of locks, and the trait whose verbs the program leaves to others.
const NOT_OF_PROGRAM: [&str; 4] = ["Mutex", "RwLock", "Condvar", "Region"];
/// Level from which no crate stores to a region.
const LEVEL_WITHOUT_STORES: u8 = 3;
/// Verbs of `Region` that store and that no other trait has.
const STORES: [&str; 3] = ["stream", "store_u64", "fence"];
/// Crates that describe records: those on a medium, those between processes, those between a guest
/// and its disk, and those between the kernel and a server.
const OF_RECORDS: [&str; 4] = ["layout", "file-wire", "ublk", "vhost-user-blk"];

/// Files of the program with a lock, an atomic, a thread, or a region.
pub(crate) fn concurrency(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    let files = workspace.sources.iter().filter(|file| file.krate == PROGRAM);
    let breach = |file: &SourceFile| {
        let (line, name) = concurrent(file)?;
        let advice = format!("`{name}` is the business of a service: give it to a crate below");
        Some(measured(file, line, "program", "", advice))
    };
    files.filter_map(breach).collect()
}

/// The first name of a lock, an atomic, a thread or a region, and its line.
fn concurrent(file: &SourceFile) -> Option<(usize, String)> {
    let is_path = |at: usize| {
        let after = |steps: usize| file.tokens.get(at + steps).map_or("", |token| token.text.as_str());
        after(1) == ";" || after(1) == ":" && after(2) == ":"
    };
    let mut found = file.tokens.iter().enumerate().filter(|(at, token)| {
        let name = token.text.as_str();
        let concurrent =
            NOT_OF_PROGRAM.contains(&name) || name.starts_with("Atomic") || name == "thread" && is_path(*at);
        concurrent && !file.is_test(token.line)
    });
    found.next().map(|(_, token)| (token.line, token.text.clone()))
}

/// Stores to a region from L3 up, and records that are laid out outside of the crates that describe
/// them.
pub(crate) fn stores(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut found = Vec::new();
    for file in workspace.sources.iter().filter(|file| layers.is_product(&file.krate)) {
        let high = layers.row(&file.krate).and_then(|row| row.level).is_some_and(|level| level >= LEVEL_WITHOUT_STORES);
        let calls = STORES.iter().filter(|_| high).flat_map(|verb| file.find(&[".", verb, "("]));
        let of_sockets = file.find(&[".", "stream", "(", ")"]);
        let calls = calls.filter(|line| !of_sockets.contains(line));
        let advice = "an engine stores to the region: call the engine";
        found.extend(
            calls
                .filter(|line| !file.is_test(*line))
                .map(|line| measured(file, line, "high-store", "", advice.to_owned())),
        );
        let records = records::records(file).into_iter().filter(|_| !OF_RECORDS.contains(&file.krate.as_str()));
        let advice = "describe the record in `layout`";
        found.extend(
            records
                .filter(|line| !file.is_test(*line))
                .map(|line| measured(file, line, "stray-record", "", advice.to_owned())),
        );
    }
    found
}

fn measured(file: &SourceFile, line: usize, rule: &'static str, item: &str, advice: String) -> Measured {
    let (place, item) = (file.krate.clone(), item.to_owned());
    Measured { file: file.path.clone(), line, rule, place, item, size: 1, advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn layers() -> Layers {
        let table = "| crate | layer | is | may use |\n| `btt` | L2 | b | — |\n| `nbd` | L3 | n | — |\n| `cli` | L4 | c | — |\n| `layout` | L0 | l | — |";
        Layers::parse(table).expect("the sample has a table")
    }

    fn workspace(path: &str, text: &str) -> Workspace {
        Workspace { crates: Vec::new(), sources: vec![sample(path, text)], texts: Vec::new() }
    }

    #[test]
    fn a_program_with_threads_or_locks_is_found() {
        let count = |path, text| concurrency(&workspace(path, text), &layers()).len();
        assert_eq!(count("crates/cli/src/x.rs", "use std::sync::Mutex; use std::sync::RwLock;"), 1);
        assert_eq!(count("crates/cli/src/x.rs", "fn f() { std::thread::spawn(g); }"), 1);
        assert_eq!(count("crates/cli/src/x.rs", "use std::sync::atomic::AtomicBool;"), 1);
        assert_eq!(count("crates/cli/src/x.rs", "fn f(region: &impl Region) { g() }"), 1);
        assert_eq!(
            count("crates/cli/src/x.rs", "fn f(thread: u8) { g(thread) }\n#[test] fn t() { std::thread::spawn(g); }"),
            0
        );
        assert_eq!(count("crates/nbd/src/x.rs", "use std::sync::Mutex;"), 0);
    }

    #[test]
    fn stores_from_above_the_engines_are_found() {
        let count = |path, text| stores(&workspace(path, text), &layers()).len();
        assert_eq!(count("crates/nbd/src/x.rs", "fn f(r: R) { r.stream(0, b); r.fence(); }"), 2);
        assert_eq!(count("crates/btt/src/x.rs", "fn f(r: R) { r.stream(0, b); r.fence(); }"), 0);
        assert_eq!(count("crates/nbd/src/x.rs", "fn f(r: R) { r.stream().read(b); }"), 0);
        assert_eq!(count("crates/btt/src/x.rs", "#[derive(FromBytes)] struct R { a: U32 }"), 1);
        assert_eq!(count("crates/layout/src/x.rs", "#[derive(FromBytes)] struct R { a: U32 }"), 0);
    }
}
