//! Seams stay narrow: traits with few verbs, engines with one type parameter.

use crate::rules::layers::Layers;
use crate::source::{Finding, SourceFile};
use syn::visit::Visit;

const REQUIRED_METHODS_MAX: usize = 8;
const TYPE_PARAMETERS_MAX: usize = 1;

/// Traits that ask too much of an implementor.
pub(crate) fn traits(file: &SourceFile) -> Vec<Finding> {
    let mut seams = Seams { file, engine: false, found: Vec::new() };
    seams.visit_file(&file.syntax);
    seams.found.retain(|finding| finding.rule == "wide-trait");
    seams.found
}

/// Public structs of engines with more than one type parameter.
pub(crate) fn parameters(file: &SourceFile, layers: &Layers) -> Vec<Finding> {
    let mut seams = Seams { file, engine: layers.is_engine(&file.krate), found: Vec::new() };
    seams.visit_file(&file.syntax);
    seams.found.retain(|finding| finding.rule == "type-parameters");
    seams.found
}

struct Seams<'a> {
    file: &'a SourceFile,
    engine: bool,
    found: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Seams<'_> {
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let required = |item: &&syn::TraitItem| matches!(item, syn::TraitItem::Fn(f) if f.default.is_none());
        let count = item.items.iter().filter(required).count();
        if count > REQUIRED_METHODS_MAX {
            let advice =
                format!("`{}` requires {count} methods, {REQUIRED_METHODS_MAX} allowed: narrow it", item.ident);
            self.found.push(self.file.finding(item.ident.span().start().line, "wide-trait", advice));
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let public = matches!(item.vis, syn::Visibility::Public(_));
        if self.engine && public && item.generics.type_params().count() > TYPE_PARAMETERS_MAX {
            let advice = format!("`{}` may have one type parameter, its region", item.ident);
            self.found.push(self.file.finding(item.ident.span().start().line, "type-parameters", advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn trait_of(methods: usize) -> String {
        let required: String = (0..methods).map(|n| format!("fn f{n}();")).collect();
        format!("trait T {{ {required} fn given() {{}} }}")
    }

    #[test]
    fn wide_traits_are_found() {
        let count = |methods| traits(&sample("crates/a/src/x.rs", &trait_of(methods))).len();
        assert_eq!((count(8), count(9)), (0, 1));
    }

    #[test]
    fn engines_with_many_parameters_are_found() {
        let layers = Layers::parse("| crate | layer | is | may use |\n| `btt` | L2 | b | — |").expect("a table");
        let count = |path, text| parameters(&sample(path, text), &layers).len();
        assert_eq!(count("crates/btt/src/x.rs", "pub struct Btt<R, S>(R, S);"), 1);
        assert_eq!(count("crates/btt/src/x.rs", "pub struct Btt<'a, R, const N: usize>(&'a R);"), 0);
        assert_eq!(count("crates/cli/src/x.rs", "pub struct Pair<R, S>(R, S);"), 0);
    }
}
