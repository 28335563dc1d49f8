//! The map in ARCHITECTURE.md is whole: its drawing has every crate of the product, its table every
//! folder.

use crate::markdown::{cells, quoted};
use crate::rules::layers::{Layers, Row};
use crate::source::Finding;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "map";
const DOCUMENT: &str = "ARCHITECTURE.md";
/// The section with the table of folders.
const FOLDERS: &str = "## Folders";
/// Most rows of that table.
const ROWS_MAX: usize = 45;

/// Crates that the drawing lacks or puts elsewhere, folders without a row or with two, rows of what
/// is not there.
pub(crate) fn map(workspace: &Workspace, layers: &Layers) -> Vec<Finding> {
    let text = workspace.text(DOCUMENT).unwrap_or_default();
    let folders_of = |tests: bool| {
        let files = workspace.sources.iter().filter(|file| tests || !file.tests_only);
        files.filter_map(|file| folder_of(&file.path)).collect()
    };
    let tables = folders(text, &folders_of(false), &folders_of(true));
    drawing(text, layers).into_iter().chain(tables).collect()
}

fn finding(line: usize, advice: String) -> Finding {
    Finding { file: DOCUMENT.to_owned(), line, rule: RULE, advice }
}

/// The drawing has a line for each level, as `L2 engines  btt  disk-cache`; `*` marks a crate to
/// come.
fn drawing(text: &str, layers: &Layers) -> Vec<Finding> {
    let mut drawn: BTreeMap<&str, (usize, u8, bool)> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let level = words.next().and_then(|word| word.strip_prefix('L')).and_then(|digit| digit.parse().ok());
        if let Some(level) = level {
            drawn.extend(
                words.skip(1).map(|word| (word.trim_end_matches('*'), (index + 1, level, word.ends_with('*')))),
            );
        }
    }
    let wrong = |row: &Row| match drawn.get(row.name.as_str()) {
        None => Some(finding(1, format!("draw `{}` at its level, with `*` if it is still to come", row.name))),
        Some((line, level, later)) => {
            let right = Some(*level) == row.level && *later == row.later;
            (!right).then(|| finding(*line, format!("the table has another level for `{}`, or `later`", row.name)))
        }
    };
    let unknown = drawn.iter().filter(|(name, _)| layers.row(name).is_none());
    let unknown =
        unknown.map(|(name, (line, ..))| finding(*line, format!("`{name}` has no row in the table of crates")));
    layers.product().filter_map(wrong).chain(unknown).collect()
}

/// The folder below a crate's `src` in which a file lies.
fn folder_of(path: &str) -> Option<String> {
    let (folder, _) = path.rsplit_once('/')?;
    let (_, inner) = folder.split_once("/src/")?;
    (!inner.is_empty()).then(|| format!("{folder}/"))
}

/// The table has each of `expected` once, and only such as are `there`. A row names folders by
/// their path, and those after the first from the same crate's `src`.
fn folders(text: &str, expected: &BTreeSet<String>, there: &BTreeSet<String>) -> Vec<Finding> {
    let section = text.lines().enumerate().skip_while(|(_, line)| *line != FOLDERS).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let rows: Vec<_> =
        section.map(|(index, line)| (index + 1, cells(line))).filter(|(_, cells)| cells.len() == 2).skip(2).collect();
    let mut found = Vec::new();
    let mut named: BTreeSet<String> = BTreeSet::new();
    for (line, cells) in &rows {
        let mut base = String::new();
        for folder in quoted(&cells[0]) {
            let path = if folder.starts_with("crates/") { folder } else { format!("{base}{folder}") };
            base = path.split_once("/src/").map_or_else(String::new, |(krate, _)| format!("{krate}/src/"));
            if !path.ends_with('/') {
                found.push(finding(*line, format!("`{path}` is a file: name its folder")));
            } else if !there.contains(&path) && !path.ends_with("/src/") {
                found.push(finding(*line, format!("`{path}` has no Rust file of its own: remove it")));
            } else if !named.insert(path.clone()) {
                found.push(finding(*line, format!("`{path}` has another row already")));
            }
        }
    }
    let missing = expected.difference(&named);
    found.extend(missing.map(|folder| finding(1, format!("add `{folder}` to the table of folders"))));
    if rows.len() > ROWS_MAX {
        found.push(finding(1, format!("{} rows of folders, {ROWS_MAX} allowed: join rows", rows.len())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &str =
        "| crate | layer | is | may use |\n| `a` | L0 | a | — |\n| `b` | L2 | b | — |\n| `c` | L3, later | c | — |";

    fn drawn(drawing: &str) -> usize {
        super::drawing(drawing, &Layers::parse(LAYERS).expect("the sample has a table")).len()
    }

    #[test]
    fn a_wrong_drawing_is_found() {
        assert_eq!(drawn("L3 fronts   c*\nL2 engines  b\nL0 facts  a\n\nb ─ a\n"), 0);
        assert_eq!(drawn("L3 fronts   c*\nL2 engines  b\n"), 1);
        assert_eq!(drawn("L3 fronts   c\nL2 engines  b\nL0 facts  a\n"), 1);
        assert_eq!(drawn("L3 fronts   c*  b\nL0 facts  a\n"), 1);
        assert_eq!(drawn("L3 fronts   c*\nL2 engines  b  d\nL0 facts  a\n"), 1);
    }

    #[test]
    fn folders_without_a_row_are_found() {
        let paths = ["crates/a/src/lib.rs", "crates/a/src/x/y.rs", "crates/a/src/z/y.rs"];
        let expected = paths.into_iter().filter_map(folder_of).collect();
        let found = |rows: &str| {
            folders(&format!("{FOLDERS}\n\n| folders | what |\n| --- | --- |\n{rows}\n## Next\n"), &expected, &expected)
                .len()
        };
        assert_eq!(found("| `crates/a/src/x/`, `z/` | both |"), 0);
        assert_eq!(found("| `crates/a/src/x/` | one |"), 1);
        assert_eq!(found("| `crates/a/src/x/`, `z/` | both |\n| `crates/a/src/x/` | again |"), 1);
        assert_eq!(found("| `crates/a/src/x/`, `z/`, `w/` | three |"), 1);
        assert_eq!(found("| `crates/a/src/x/`, `z/`, `lib.rs` | three |"), 1);
        assert_eq!(found(&"| | |\n".repeat(46)), 3);
    }
}
