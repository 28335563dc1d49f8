//! Dependencies point down, as the table in ARCHITECTURE.md says: to a lower layer, among fronts
//! and among services also to a row above.

use crate::markdown::{cells, quoted};
use crate::source::Finding;
use crate::workspace::{Crate, Workspace};
use std::collections::BTreeSet;

const RULE: &str = "layers";
const DOCUMENT: &str = "ARCHITECTURE.md";
/// Crates that the tests of every crate may use besides.
const TESTS_MAY_USE: [&str; 3] = ["sim", "nbd-client", "virtio-driver"];
/// What stands in for locks and atomics under its own `--cfg`, and is no dependency of the product.
const STANDS_IN: (&str, &str) = ("cfg(virtual_cores)", "virtual-cores");
/// The layers of fronts with the crates they share, and of services with what shows them.
const SHARING: [u8; 2] = [3, 4];
/// The one engine that stands over another: the names of the files that the other has.
const OVER: (&str, &str) = ("namespace-log", "file-cache");
const HEADER: [&str; 4] = ["crate", "layer", "is", "may use"];

/// A row of the table, for one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The crate.
    pub(crate) name: String,
    /// 0 to 5, or `None` for crates that only test.
    pub(crate) level: Option<u8>,
    /// Whether the crate is still to come.
    pub(crate) later: bool,
    /// The crates it may use.
    may_use: BTreeSet<String>,
    /// The row's line in the document.
    line: usize,
}

/// The table, in the order of the document.
pub(crate) struct Layers {
    rows: Vec<Row>,
}

impl Layers {
    /// Reads the table out of the document's text; no table at all is a finding.
    pub(crate) fn parse(text: &str) -> Result<Layers, Finding> {
        let lines: Vec<_> = text.lines().enumerate().map(|(index, line)| (index + 1, cells(line))).collect();
        let Some(header) = lines.iter().position(|(_, cells)| *cells == HEADER) else {
            return Err(finding(1, format!("write the table with the columns {}", HEADER.join(" | "))));
        };
        let body = lines[header + 1..].iter().take_while(|(_, cells)| cells.len() == HEADER.len());
        let body: Vec<_> = body.filter(|(_, cells)| !cells[0].starts_with("--")).collect();
        let mut rows: Vec<Row> = body.iter().flat_map(|(line, cells)| rows_of(*line, cells)).collect();
        let known: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.level)).collect();
        for (row, uses) in rows.iter_mut().zip(body.iter().flat_map(|(_, cells)| uses_of(cells))) {
            row.may_use = resolve(&uses, &known, &row.name);
        }
        Ok(Layers { rows })
    }

    /// The rows of the product's crates, those to come included.
    pub(crate) fn product(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.level.is_some())
    }

    /// The row of the crate `name`.
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Whether the crate `name` is an engine, a cache or a policy: code that the simulator must be
    /// able to drive.
    pub(crate) fn is_engine(&self, name: &str) -> bool {
        self.row(name).is_some_and(|row| matches!(row.level, Some(1 | 2)))
    }

    /// Whether the crate `name` is part of the product; the others test it.
    pub(crate) fn is_product(&self, name: &str) -> bool {
        self.row(name).is_some_and(|row| row.level.is_some())
    }

    /// Whether the crate `name` may use the crate `used`.
    pub(crate) fn may_use(&self, name: &str, used: &str) -> bool {
        self.row(name).is_some_and(|row| row.may_use.contains(used))
    }

    /// Whether the crate `name` is part of the product but not a program: it never prints.
    pub(crate) fn is_library(&self, name: &str) -> bool {
        self.row(name).is_some_and(|row| matches!(row.level, Some(0..=3)))
    }

    /// The table agrees with itself, with the crates there are, and with what they depend on.
    pub(crate) fn check(&self, workspace: &Workspace) -> Vec<Finding> {
        let mut findings = self.check_rows(&workspace.crates);
        for krate in &workspace.crates {
            findings.extend(self.check_crate(krate));
        }
        findings
    }

    fn check_rows(&self, crates: &[Crate]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for row in &self.rows {
            let exists = crates.iter().any(|krate| krate.name == row.name);
            if exists == row.later {
                let advice = if exists { "take `later` from the row" } else { "remove the row or mark it `later`" };
                findings.push(finding(row.line, format!("{advice} of `{}`", row.name)));
            }
            for used in &row.may_use {
                findings.extend(self.check_direction(row, used));
            }
        }
        findings
    }

    fn check_direction(&self, row: &Row, used: &str) -> Option<Finding> {
        let upward = match (row.level, self.row(used)) {
            (_, None) => return Some(finding(row.line, format!("`{}` may use `{used}`, which has no row", row.name))),
            _ if (row.name.as_str(), used) == OVER => false,
            // Such crates use those of their layer whose rows stand above theirs.
            (Some(own), Some(Row { level: Some(other), line, .. })) if own == *other && SHARING.contains(&own) => {
                *line >= row.line
            }
            (Some(own), Some(Row { level: Some(other), .. })) => *other >= own,
            (Some(_), Some(Row { level: None, .. })) => true,
            (None, Some(_)) => false,
        };
        upward.then(|| finding(row.line, format!("`{}` may not use `{used}`: dependencies point down", row.name)))
    }

    fn check_crate(&self, krate: &Crate) -> Vec<Finding> {
        let manifest = format!("{}/Cargo.toml", krate.folder);
        let Some(row) = self.row(&krate.name) else {
            let advice = format!("add a row for `{}` to the table in {DOCUMENT}", krate.name);
            return vec![Finding { file: manifest, line: 1, rule: RULE, advice }];
        };
        let forbidden = |(kind, used): &(Kind, String)| {
            !row.may_use.contains(used) && (*kind == Kind::Product || !TESTS_MAY_USE.contains(&used.as_str()))
        };
        let uses = dependencies(&krate.manifest).into_iter().filter(forbidden);
        uses.map(|(_, used)| Finding {
            file: manifest.clone(),
            line: 1,
            rule: RULE,
            advice: format!(
                "`{}` may not use `{used}`: drop the dependency, or argue for it in {DOCUMENT}",
                krate.name
            ),
        })
        .collect()
    }
}

fn finding(line: usize, advice: String) -> Finding {
    Finding { file: DOCUMENT.to_owned(), line, rule: RULE, advice }
}

fn rows_of(line: usize, cells: &[String]) -> Vec<Row> {
    let level = cells[1].strip_prefix('L').and_then(|rest| rest.get(..1)).and_then(|digit| digit.parse().ok());
    let later = cells[1].contains("later");
    let row = |name| Row { name, level, later, may_use: BTreeSet::new(), line };
    quoted(&cells[0]).into_iter().map(row).collect()
}

/// The last cell, once for every crate the row names.
fn uses_of(cells: &[String]) -> Vec<String> {
    vec![cells[3].clone(); quoted(&cells[0]).len()]
}

/// Crates meant by a cell: names in backticks, `L0–L3` for whole layers, `all`.
fn resolve(uses: &str, known: &[(String, Option<u8>)], own: &str) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = quoted(uses).into_iter().collect();
    let words: Vec<_> = uses.split([',', ' ']).collect();
    if words.contains(&"all") {
        names.extend(known.iter().map(|(name, _)| name.clone()).filter(|name| name != own));
    }
    for word in words {
        if let Some((low, high)) = word.split_once('–').and_then(|(low, high)| Some((level(low)?, level(high)?))) {
            let inside = |entry: &&(String, Option<u8>)| entry.1.is_some_and(|level| (low..=high).contains(&level));
            names.extend(known.iter().filter(inside).map(|(name, _)| name.clone()));
        }
    }
    names
}

fn level(word: &str) -> Option<u8> {
    word.strip_prefix('L')?.parse().ok()
}

/// What a dependency is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What is shipped.
    Product,
    /// Tests alone.
    Dev,
}

/// The crates of this workspace that a manifest depends on.
pub(crate) fn dependencies(manifest: &toml::Table) -> Vec<(Kind, String)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let named = targets.into_iter().flatten().map(|(target, table)| (target.as_str(), table.as_table()));
    let mut found = Vec::new();
    for (target, table) in named.filter_map(|(target, table)| Some((target, table?))).chain([("", manifest)]) {
        for (section, kind) in
            [("dependencies", Kind::Product), ("build-dependencies", Kind::Product), ("dev-dependencies", Kind::Dev)]
        {
            let names = table.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
            let ours = names.filter_map(|name| name.strip_prefix("tidegate-"));
            found.extend(ours.filter(|name| (target, *name) != STANDS_IN).map(|name| (kind, name.to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| crate | layer | is | may use |
| --- | --- | --- | --- |
| `layout` | L0 | bytes | — |
| `media` | L0 | regions | — |
| `policy` | L1, later | decisions | — |
| `btt` | L2 | table | `layout`, `media` |
| `cli` | L4 | program | L0–L3 |
| `sim` | test | simulated media | `media` |
| `trials` | test | trials | all |
";

    fn krate(name: &str, manifest: &str) -> Crate {
        let manifest = manifest.parse().expect("samples are TOML");
        Crate { name: name.into(), folder: format!("crates/{name}"), manifest }
    }

    fn layers(table: &str) -> Layers {
        Layers::parse(table).expect("samples have a table")
    }

    #[test]
    fn the_table_is_read() {
        let layers = layers(TABLE);
        let may_use =
            |name: &str| layers.row(name).map(|row| row.may_use.iter().cloned().collect::<Vec<_>>().join(" "));
        assert_eq!(may_use("layout").as_deref(), Some(""));
        assert_eq!(may_use("cli").as_deref(), Some("btt layout media policy"));
        assert_eq!(may_use("trials").as_deref(), Some("btt cli layout media policy sim"));
        assert!(layers.is_engine("btt") && !layers.is_engine("media") && !layers.is_engine("sim"));
        assert!(Layers::parse("no table").is_err());
    }

    #[test]
    fn fronts_may_use_a_row_above_theirs_in_their_layer_and_engines_may_not() {
        let bad_rows = |rows: &str| {
            let layers = layers(&format!("{TABLE}{rows}"));
            layers
                .rows
                .iter()
                .flat_map(|row| row.may_use.iter().filter_map(|used| layers.check_direction(row, used)))
                .count()
        };
        assert_eq!(bad_rows("| `export` | L3 | shared | `media` |\n| `nbd` | L3 | front | `export` |\n"), 0);
        assert_eq!(bad_rows("| `nbd` | L3 | front | `export` |\n| `export` | L3 | shared | `media` |\n"), 1);
        assert_eq!(bad_rows("| `server` | L4 | shown | — |\n| `top` | L4 | shows | `server` |\n"), 0);
        assert_eq!(bad_rows("| `cache` | L2 | sibling | `btt` |\n"), 1);
    }

    #[test]
    fn an_upward_dependency_is_found() {
        let layers = layers(TABLE);
        let bad = krate("btt", "[dependencies]\ntidegate-cli.workspace = true");
        assert_eq!(layers.check_crate(&bad).len(), 1);
        let bad = krate("btt", "[dependencies]\ntidegate-sim.workspace = true");
        assert_eq!(layers.check_crate(&bad).len(), 1);
        let good = krate(
            "btt",
            "[dependencies]\ntidegate-media.workspace = true\n[dev-dependencies]\ntidegate-sim.workspace = true",
        );
        assert_eq!(layers.check_crate(&good), []);
        let unknown = krate("stray", "");
        assert_eq!(layers.check_crate(&unknown).len(), 1);
    }

    #[test]
    fn rows_and_crates_agree() {
        let all: Vec<_> = ["layout", "media", "btt", "cli", "sim", "trials"].map(|name| krate(name, "")).into();
        assert_eq!(layers(TABLE).check_rows(&all), []);
        assert_eq!(layers(TABLE).check_rows(&all[1..]).len(), 1);
        let with_policy: Vec<_> = all.into_iter().chain([krate("policy", "")]).collect();
        assert_eq!(layers(TABLE).check_rows(&with_policy).len(), 1);
    }

    #[test]
    fn the_table_itself_points_down() {
        let upward = TABLE.replace("bytes | —", "bytes | `btt`");
        let crates: Vec<_> = ["layout", "media", "btt", "cli", "sim", "trials"].map(|name| krate(name, "")).into();
        assert_eq!(layers(&upward).check_rows(&crates).len(), 1);
        let unknown = TABLE.replace("bytes | —", "bytes | `nothing`");
        assert_eq!(layers(&unknown).check_rows(&crates).len(), 1);
    }
}
