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

/// Public items of product crates that no other product crate names. An item is free if a public
/// signature or field of its own crate needs it, or if C calls it.
pub(crate) fn unused_items(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let product = || workspace.sources.iter().filter(|file| layers.is_product(&file.krate));
    for file in workspace.sources.iter().filter(|file| layers.is_product(&file.krate) || file.krate == OF_PAGES) {
        let tokens = file.tokens.iter().filter(|token| !file.is_test(token.line));
        named.entry(&file.krate).or_default().extend(tokens.map(|token| token.text.as_str()));
    }
    let mut items: BTreeMap<&str, Items> = BTreeMap::new();
    product().filter(|file| !file.tests_only).for_each(|file| items.entry(&file.krate).or_default().file(file));
    let mut found = Vec::new();
    for (krate, items) in &items {
        let elsewhere =
            |name: &String| named.iter().any(|(other, names)| other != krate && names.contains(name.as_str()));
        let unused = items.public.iter().filter(|item| !items.needed.contains(&item.name) && !elsewhere(&item.name));
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

/// A public item.
struct Item {
    name: String,
    file: String,
    line: usize,
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
                    self.public.push(Item { name: ident.to_string(), file: file.path.clone(), line });
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
        assert_eq!(unused("#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}", ""), 0);
    }
}
