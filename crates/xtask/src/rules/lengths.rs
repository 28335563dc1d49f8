//! Functions and files stay short enough to be read at once.

use crate::exceptions::Measured;
use crate::source::SourceFile;
use syn::spanned::Spanned as _;
use syn::visit::Visit;

/// Most lines of code in a function, comments and blank lines not counted.
const FUNCTION_LINES_MAX: usize = 60;
/// Most lines of code in a file, comments, blank lines and test modules not counted.
const FILE_LINES_MAX: usize = 600;

/// Every function that is too long.
pub(crate) fn functions(file: &SourceFile) -> Vec<Measured> {
    let mut functions = Functions { file, owner: Vec::new(), found: Vec::new() };
    functions.visit_file(&file.syntax);
    functions.found
}

/// The file, if it is too long.
pub(crate) fn files(file: &SourceFile) -> Vec<Measured> {
    let size = file.product_lines_of_code();
    let measured = Measured {
        file: file.path.clone(),
        line: 1,
        rule: "file-length",
        item: String::new(),
        size,
        advice: format!("{size} lines of code, {FILE_LINES_MAX} allowed: cut the file by phase"),
    };
    (size > FILE_LINES_MAX).then_some(measured).into_iter().collect()
}

struct Functions<'a> {
    file: &'a SourceFile,
    owner: Vec<String>,
    found: Vec<Measured>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let from = signature.span().start().line;
        let size = self.file.lines_of_code(from..=body.span().end().line);
        if size <= FUNCTION_LINES_MAX {
            return;
        }
        let name = signature.ident.to_string();
        let item = self.owner.last().map_or_else(|| name.clone(), |owner| format!("{owner}::{name}"));
        self.found.push(Measured {
            file: self.file.path.clone(),
            line: from,
            rule: "function-length",
            advice: format!("`{item}` has {size} lines of code, {FUNCTION_LINES_MAX} allowed: cut it by step"),
            item,
            size,
        });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.owner.push(name.unwrap_or_else(|| "impl".to_owned()));
        syn::visit::visit_item_impl(self, item);
        self.owner.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.owner.push(item.ident.to_string());
        syn::visit::visit_item_trait(self, item);
        self.owner.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn function_of(lines: usize) -> SourceFile {
        let body = "    // why\n    f();\n\n".repeat(lines - 2);
        sample("crates/a/src/x.rs", &format!("impl T {{\nfn f() {{\n{body}}}\n}}\n"))
    }

    #[test]
    fn a_long_function_is_measured_without_comments() {
        assert_eq!(functions(&function_of(60)).len(), 0);
        let found = functions(&function_of(61));
        assert_eq!((found[0].size, found[0].item.as_str(), found[0].line), (61, "T::f", 2));
    }

    #[test]
    fn a_long_file_is_measured_without_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn g() {}\n".repeat(100));
        let file = |lines| sample("crates/a/src/x.rs", &("fn f() {}\n// why\n".repeat(lines) + &tests));
        assert_eq!(files(&file(600)).len(), 0);
        assert_eq!(files(&file(601))[0].size, 601);
    }
}
