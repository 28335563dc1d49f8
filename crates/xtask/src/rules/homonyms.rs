//! A type's name stands for one thing, or for two at most.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::Finding;
use crate::workspace::Workspace;
use std::collections::BTreeMap;

/// Most types of the product with one name.
const NAMESAKES_MAX: usize = 2;
/// Names that mean the same in every module.
const FREE: [&str; 3] = ["Error", "Options", "Counters"];

/// Names of the product that stand for too many types.
pub(crate) fn homonyms(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut places: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for file in workspace.sources.iter().filter(|file| layers.is_product(&file.krate)) {
        for found in file.types.iter().filter(|found| !found.is_alias && !file.is_test(found.line)) {
            places.entry(found.name.clone()).or_default().push(file.finding(found.line, "homonym", ""));
        }
    }
    let shared =
        places.into_iter().filter(|(name, places)| places.len() > NAMESAKES_MAX && !FREE.contains(&name.as_str()));
    let measured = |(name, places): (String, Vec<Finding>)| {
        let others: Vec<_> = places[1..].iter().map(|place| format!("{}:{}", place.file, place.line)).collect();
        Measured {
            file: places[0].file.clone(),
            line: places[0].line,
            rule: "homonym",
            place: "all".to_owned(),
            item: String::new(),
            size: 1,
            advice: format!(
                "`{name}` is {} types, {NAMESAKES_MAX} allowed: tell them apart by name (also {})",
                places.len(),
                others.join(", ")
            ),
        }
    };
    shared.map(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn names_of_three_types_are_found() {
        let layers = Layers::parse("| crate | layer | is | may use |\n| `a` | L2 | a | — |\n| `t` | test | t | — |")
            .expect("a table");
        let found = |last: (&str, &str)| {
            let files = [
                ("crates/a/src/x.rs", "struct Place; struct Error;"),
                ("crates/a/src/y.rs", "enum Place {} struct Error;"),
                last,
            ];
            let sources = files.iter().map(|(path, text)| sample(path, text)).collect();
            homonyms(&Workspace { crates: Vec::new(), sources, texts: Vec::new() }, &layers).len()
        };
        assert_eq!(found(("crates/a/src/z.rs", "trait Place {} enum Error {}")), 1);
        assert_eq!(found(("crates/a/src/z.rs", "#[cfg(test)] struct Place; enum Error {}")), 0);
        assert_eq!(found(("crates/t/src/z.rs", "struct Place;")), 0);
    }
}
