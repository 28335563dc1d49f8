//! What is built is used: crates by an artefact, public items by another crate.

use crate::exceptions::Measured;
use crate::rules::layers::{Kind, Layers, dependencies};
use crate::source::SourceFile;
use crate::workspace::{Crate, Workspace};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Product crates that no artefact (a program or a library for C) is made of.
pub(crate) fn unreached(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let product: Vec<_> = workspace.crates.iter().filter(|krate| layers.is_product(&krate.name)).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut waiting: Vec<String> =
        product.iter().filter(|krate| is_artefact(krate, workspace)).map(|krate| krate.name.clone()).collect();
    while let Some(name) = waiting.pop() {
        let krate = product.iter().find(|krate| krate.name == name);
        if let Some(krate) = krate.filter(|_| reached.insert(name)) {
            let uses = dependencies(&krate.manifest).into_iter().filter(|(kind, _)| *kind == Kind::Product);
            waiting.extend(uses.map(|(_, used)| used));
        }
    }
    let unreached = product.into_iter().filter(|krate| !reached.contains(&krate.name));
    unreached
        .map(|krate| Measured {
            file: format!("{}/Cargo.toml", krate.folder),
            line: 1,
            rule: "unreached-crate",
            place: krate.name.clone(),
            item: String::new(),
            size: 1,
            advice: "no program and no library for C is made of it: give it a front".to_owned(),
        })
        .collect()
}

fn is_artefact(krate: &Crate, workspace: &Workspace) -> bool {
    let types = krate.manifest.get("lib").and_then(|lib| lib.get("crate-type")).and_then(toml::Value::as_array);
    let for_c = types
        .into_iter()
        .flatten()
        .any(|kind| kind.as_str().is_some_and(|kind| kind == "cdylib" || kind == "staticlib"));
    let main = format!("{}/src/main.rs", krate.folder);
    for_c || krate.manifest.contains_key("bin") || workspace.sources.iter().any(|file| file.path == main)
}

/// The crate that calls the generators of pages.
const OF_PAGES: &str = "xtask";

/// How the documentation of a public item tells that crates of tests need it.
const FOR_TESTS: &str = "For tests:";

/// Public items of product crates that no other product crate names. An item is free if a public
/// signature or field of its own crate needs it, if C calls it, or if its documentation says that
/// it is there for tests and one of their crates names it. Serde names functions in strings.
pub(crate) fn unused_items(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut by_tests: BTreeSet<&str> = BTreeSet::new();
    let product = || workspace.sources.iter().filter(|file| layers.is_product(&file.krate));
    for file in &workspace.sources {
        if layers.is_product(&file.krate) || file.krate == OF_PAGES {
            let tokens = file.tokens.iter().filter(|token| !file.is_test(token.line));
            named.entry(&file.krate).or_default().extend(tokens.flat_map(|token| names(&token.text)));
        } else {
            by_tests.extend(file.tokens.iter().map(|token| token.text.as_str()));
        }
    }
    let mut items: BTreeMap<&str, Items> = BTreeMap::new();
    product().filter(|file| !file.tests_only).for_each(|file| items.entry(&file.krate).or_default().file(file));
    let mut found = Vec::new();
    for (krate, items) in &items {
        let elsewhere =
            |name: &String| named.iter().any(|(other, names)| other != krate && names.contains(name.as_str()));
        let by_tests = |item: &Item| item.is_for_tests && by_tests.contains(item.name.as_str());
        let is_free = |item: &&Item| items.needed.contains(&item.name) || elsewhere(&item.name) || by_tests(item);
        let unused = items.public.iter().filter(|item| !is_free(item));
        found.extend(unused.map(|item| Measured {
            file: item.file.clone(),
            line: item.line,
            rule: "unused-public",
            place: (*krate).to_owned(),
            item: String::new(),
            size: 1,
            advice: format!("no other product crate names `{}`: make it `pub(crate)`, or remove it", item.name),
        }));
    }
    found
}

/// The names in a token: those of a path, where a string is one.
fn names(token: &str) -> impl Iterator<Item = &str> {
    token.trim_matches('"').split("::")
}

/// A public item.
struct Item {
    name: String,
    file: String,
    line: usize,
    is_for_tests: bool,
}

fn is_for_tests(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) => line.value().trim().starts_with(FOR_TESTS),
            _ => false,
        },
        _ => false,
    })
}

/// The public items of a crate, and the names its public signatures and fields need.
#[derive(Default)]
struct Items {
    public: Vec<Item>,
    needed: BTreeSet<String>,
}

impl Items {
    fn file(&mut self, file: &SourceFile) {
        for item in &file.syntax.items {
            if let Some((ident, attrs)) = public(item) {
                let line = ident.span().start().line;
                let for_c = attrs.iter().any(|attr| {
                    attr.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("no_mangle"))
                });
                if !file.is_test(line) && !for_c {
                    let (name, file) = (ident.to_string(), file.path.clone());
                    self.public.push(Item { name, file, line, is_for_tests: is_for_tests(attrs) });
                }
            }
        }
        Surface { needed: &mut self.needed }.visit_file(&file.syntax);
    }
}

fn public(item: &syn::Item) -> Option<(&syn::Ident, &[syn::Attribute])> {
    let (visibility, ident, attrs) = match item {
        syn::Item::Fn(item) => (&item.vis, &item.sig.ident, &item.attrs),
        syn::Item::Struct(item) => (&item.vis, &item.ident, &item.attrs),
        syn::Item::Enum(item) => (&item.vis, &item.ident, &item.attrs),
        syn::Item::Trait(item) => (&item.vis, &item.ident, &item.attrs),
        syn::Item::Const(item) => (&item.vis, &item.ident, &item.attrs),
        syn::Item::Static(item) => (&item.vis, &item.ident, &item.attrs),
        syn::Item::Type(item) => (&item.vis, &item.ident, &item.attrs),
        _ => return None,
    };
    is_public(visibility).then_some((ident, attrs))
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// Walks public signatures, fields, aliases and constants, and collects the names in them.
struct Surface<'a> {
    needed: &'a mut BTreeSet<String>,
}

/// Collects every name in a type or a bound.
struct NamesIn<'a>(&'a mut BTreeSet<String>);

impl<'ast> Visit<'ast> for NamesIn<'_> {
    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        self.0.insert(segment.ident.to_string());
        syn::visit::visit_path_segment(self, segment);
    }
}

impl<'ast> Visit<'ast> for Surface<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_signature(&item.sig);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_signature(&item.sig);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_item_trait(item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_some() {
            NamesIn(self.needed).visit_generics(&item.generics);
            item.items.iter().for_each(|inner| {
                if let syn::ImplItem::Type(inner) = inner {
                    NamesIn(self.needed).visit_type(&inner.ty)
                }
            });
        }
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if is_public(&field.vis) {
            NamesIn(self.needed).visit_type(&field.ty);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_generics(&item.generics);
            syn::visit::visit_item_struct(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if is_public(&item.vis) {
            item.variants.iter().for_each(|variant| NamesIn(self.needed).visit_fields(&variant.fields));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_type(&item.ty);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if is_public(&item.vis) {
            NamesIn(self.needed).visit_type(&item.ty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    const TABLE: &str = "| crate | layer | is | may use |\n| `a` | L2 | a | — |\n| `b` | L2 | b | — |\n| `p` | L4 | p | `a` |\n| `t` | test | t | all |";

    fn layers() -> Layers {
        Layers::parse(TABLE).expect("the sample has a table")
    }

    fn krate(name: &str, manifest: &str) -> Crate {
        let manifest = manifest.parse().expect("samples are TOML");
        Crate { name: name.into(), folder: format!("crates/{name}"), manifest }
    }

    #[test]
    fn a_crate_without_an_artefact_is_found() {
        let unreached = |program: &str| {
            let crates =
                vec![krate("a", ""), krate("b", ""), krate("p", program), krate("t", "dependencies.tidegate-b = {}")];
            let workspace = Workspace { crates, sources: vec![sample("crates/p/src/main.rs", "")], texts: Vec::new() };
            unreached(&workspace, &layers()).into_iter().map(|measured| measured.place).collect::<Vec<_>>()
        };
        assert_eq!(unreached("dependencies.tidegate-a = {}"), ["b"]);
        assert_eq!(unreached("[dependencies]\ntidegate-a = {}\ntidegate-b = {}"), [""; 0]);
        assert_eq!(unreached("dev-dependencies.tidegate-a = {}"), ["a", "b"]);
    }

    #[test]
    fn public_items_that_only_tests_name_are_found() {
        let unused = |a: &str, p: &str| {
            let sources = vec![
                sample("crates/a/src/lib.rs", a),
                sample("crates/p/src/main.rs", p),
                sample("crates/t/src/lib.rs", "use a::T;"),
            ];
            unused_items(&Workspace { crates: Vec::new(), sources, texts: Vec::new() }, &layers()).len()
        };
        assert_eq!(unused("pub struct T; pub fn f() {} pub(crate) fn g() {}", "use a::f;"), 1);
        assert_eq!(unused("pub struct T; pub fn f() {}", "#[test] fn t() { a::f() }"), 2);
        assert_eq!(unused("pub struct T; pub fn f() -> Option<T> { None }", "use a::f;"), 0);
        assert_eq!(unused("/// A thing.\n///\n/// For tests: a small one.\npub struct T;", ""), 0);
        assert_eq!(unused("/// For tests: a small one.\npub struct U;", ""), 1, "no test names it");
        assert_eq!(unused("pub fn f() {}", "#[serde(with = \"a::f\")] struct S;"), 0);
        assert_eq!(unused("#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}", ""), 0);
    }
}
