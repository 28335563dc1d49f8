//! A failure is a value that keeps its facts, never a surprise and never just a sentence.

use crate::rules::layers::Layers;
use crate::source::{Finding, SourceFile};
use syn::spanned::Spanned as _;
use syn::visit::Visit;

/// `.unwrap()` outside tests.
pub(crate) fn unwraps(file: &SourceFile) -> Vec<Finding> {
    let calls = file.find(&[".", "unwrap", "("]).into_iter().filter(|line| !file.is_test(*line));
    calls
        .map(|line| file.finding(line, "unwrap", "return the error, or `expect` with the reason it cannot fail"))
        .collect()
}

/// Functions of the product whose error is only a `String`. A test's verdict may be one.
pub(crate) fn string_errors(file: &SourceFile, layers: &Layers) -> Vec<Finding> {
    if !layers.is_product(&file.krate) {
        return Vec::new();
    }
    let mut signatures = Signatures { file, found: Vec::new() };
    signatures.visit_file(&file.syntax);
    signatures.found
}

struct Signatures<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let line = signature.fn_token.span.start().line;
        if let syn::ReturnType::Type(_, answer) = &signature.output
            && error_is_string(answer)
            && !self.file.is_test(line)
        {
            let advice = "give the error a type of its own that keeps the facts";
            self.found.push(self.file.finding(answer.span().start().line, "string-error", advice));
        }
    }
}

/// Whether `answer` is a `Result<_, String>`.
fn error_is_string(answer: &syn::Type) -> bool {
    let syn::Type::Path(path) = answer else { return false };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else { return false };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    match arguments.args.iter().nth(1) {
        Some(syn::GenericArgument::Type(syn::Type::Path(error))) => error.path.is_ident("String"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn unwraps_outside_tests_are_found() {
        let count = |text| unwraps(&sample("crates/a/src/x.rs", text)).len();
        assert_eq!(count("fn f() { g().unwrap(); assert!(h().unwrap()); }"), 2);
        assert_eq!(count("fn f() { g().unwrap_or(1); }\n#[cfg(test)]\nmod tests { fn f() { g().unwrap(); } }"), 0);
        assert_eq!(unwraps(&sample("crates/a/tests/x.rs", "fn f() { g().unwrap(); }")).len(), 0);
    }

    #[test]
    fn errors_that_are_only_sentences_are_found() {
        let layers = Layers::parse("| crate | layer | is | may use |\n| `a` | L3 | a | — |").expect("a table");
        let count = |text| string_errors(&sample("crates/a/src/x.rs", text), &layers).len();
        assert_eq!(count("fn f() -> Result<u8, String> { g() }"), 1);
        assert_eq!(count("impl T { fn f() -> std::result::Result<(), String> { g() } }"), 1);
        assert_eq!(count("fn f() -> Result<String, Error> { g() }\n#[test]\nfn t() -> Result<(), String> { g() }"), 0);
    }
}
