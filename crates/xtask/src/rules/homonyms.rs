//! A type's name stands for one thing, or for two at most.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::{Finding, SourceFile};
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use syn::visit::Visit;

/// Most types of the product with one name.
const NAMESAKES_MAX: usize = 2;
/// Names that mean the same in every module.
const FREE: [&str; 3] = ["Error", "Options", "Counters"];

/// Names of the product that stand for too many types.
pub(crate) fn homonyms(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut places: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for file in workspace.sources.iter().filter(|file| layers.is_product(&file.krate)) {
        let mut types = Types { file, found: Vec::new() };
        types.visit_file(&file.syntax);
        for (name, line) in types.found {
            places.entry(name).or_default().push(file.finding(line, "homonym", ""));
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

struct Types<'a> {
    file: &'a SourceFile,
    found: Vec<(String, usize)>,
}

impl Types<'_> {
    fn name(&mut self, ident: &syn::Ident) {
        let line = ident.span().start().line;
        if !self.file.is_test(line) {
            self.found.push((ident.to_string(), line));
        }
    }
}

impl<'ast> Visit<'ast> for Types<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.name(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.name(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.name(&item.ident);
    }
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
