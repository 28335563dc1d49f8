//! Names that say nothing: modules that gather leftovers, types that could be anything, tests
//! without a claim.

use crate::source::{Finding, SourceFile};
use syn::visit::Visit;

const MODULES: [&str; 8] = ["utils", "common", "helpers", "misc", "types", "core", "base", "prelude"];
const TYPE_ENDINGS: [&str; 6] = ["Manager", "Handler", "Processor", "Context", "Helper", "Impl"];
const VARIANTS: [&str; 1] = ["Other"];
const TESTS: [&str; 4] = ["basic", "it_works", "simple", "works"];

/// Modules, types, variants and tests with a banned name.
pub(crate) fn names(file: &SourceFile) -> Vec<Finding> {
    let mut names = Names { file, found: Vec::new() };
    names.module(&module_name(&file.path), 1);
    names.visit_file(&file.syntax);
    names.found
}

/// The module a path stands for: its stem, or its folder for `mod.rs`.
pub(crate) fn module_name(path: &str) -> String {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    stem.rsplit('/').next().unwrap_or(stem).to_owned()
}

struct Names<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
}

impl Names<'_> {
    fn module(&mut self, name: &str, line: usize) {
        if MODULES.contains(&name) {
            let advice = format!("the module `{name}` says nothing: name it after what it holds");
            self.found.push(self.file.finding(line, "module-name", advice));
        }
    }

    fn type_name(&mut self, ident: &syn::Ident) {
        let name = ident.to_string();
        if let Some(ending) = TYPE_ENDINGS.iter().find(|ending| ends_with_word(&name, ending)) {
            let advice = format!("`{name}` hides what it is behind `{ending}`: name the thing in the domain's nouns");
            self.found.push(self.file.finding(ident.span().start().line, "type-name", advice));
        }
    }
}

/// Whether the last CamelCase word of `name` is `word`.
fn ends_with_word(name: &str, word: &str) -> bool {
    name.strip_suffix(word).is_some_and(|rest| !rest.ends_with(|c: char| c.is_uppercase()))
}

/// Whether a test's name is a stock phrase, or `test_` and one word.
fn claims_nothing(name: &str) -> bool {
    TESTS.contains(&name) || name.strip_prefix("test_").is_some_and(|rest| !rest.contains('_'))
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module(&item.ident.to_string(), item.ident.span().start().line);
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_name(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_name(&item.ident);
        for variant in item.variants.iter().filter(|variant| VARIANTS.iter().any(|name| variant.ident == name)) {
            let advice = format!("name the cases that `{}::{}` lumps together", item.ident, variant.ident);
            self.found.push(self.file.finding(variant.ident.span().start().line, "variant-name", advice));
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_name(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.type_name(&item.ident);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let name = function.sig.ident.to_string();
        let is_test = function.attrs.iter().any(|attr| attr.path().is_ident("test"));
        if is_test && claims_nothing(&name) {
            let advice = format!("name the test `{name}` after the claim it proves");
            self.found.push(self.file.finding(function.sig.ident.span().start().line, "test-name", advice));
        }
        syn::visit::visit_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        names(&sample(path, text)).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn modules_that_say_nothing_are_found() {
        assert_eq!(rules("crates/a/src/utils.rs", ""), ["module-name"]);
        assert_eq!(rules("crates/a/tests/common/mod.rs", ""), ["module-name"]);
        assert_eq!(rules("crates/a/src/lib.rs", "mod core;"), ["module-name"]);
        assert_eq!(rules("crates/a/src/lane.rs", "mod base64;"), [""; 0]);
    }

    #[test]
    fn types_that_say_nothing_are_found() {
        assert_eq!(rules("crates/a/src/x.rs", "struct LaneManager; trait Handler {} type X = u8;"), ["type-name"; 2]);
        assert_eq!(rules("crates/a/src/x.rs", "struct LaneManagers; enum Implied {}"), [""; 0]);
        assert_eq!(rules("crates/a/src/x.rs", "enum E { Other(u8), Another }"), ["variant-name"]);
    }

    #[test]
    fn tests_without_a_claim_are_found() {
        assert_eq!(rules("crates/a/src/x.rs", "#[test] fn test_basic() {}"), ["test-name"]);
        assert_eq!(rules("crates/a/src/x.rs", "#[test] fn test_files_are_found() {} fn test_bench() {}"), [""; 0]);
    }
}
