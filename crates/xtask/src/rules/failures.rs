//! A failure is a value that keeps its facts, never a surprise and never just a sentence.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::{Finding, SourceFile};
use crate::workspace::Workspace;
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

/// Level from which on failures are told to users.
const LEVEL_OF_USERS: u8 = 4;
/// What the names of failures that users see end with.
const FAILURE: &str = "Failure";

/// Every `match` over the variants of a failure that stands outside of an `impl From`, in the
/// program and its services. A failure is turned into its report (kind, exit code, what, why, next)
/// by one function, which is `From`: a second `match` is a second place that tells of it.
pub(crate) fn matches(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let high = |file: &&SourceFile| {
        layers.row(&file.krate).and_then(|row| row.level).is_some_and(|level| level >= LEVEL_OF_USERS)
    };
    workspace.sources.iter().filter(high).flat_map(matches_of).collect()
}

fn matches_of(file: &SourceFile) -> Vec<Measured> {
    let mut matches = Matches { of_failure: false, converts: false, lines: Vec::new() };
    matches.visit_file(&file.syntax);
    let product = matches.lines.into_iter().filter(|line| !file.is_test(*line));
    product
        .map(|line| Measured {
            file: file.path.clone(),
            line,
            rule: "failure-match",
            place: file.krate.clone(),
            item: String::new(),
            size: 1,
            advice: "tell everything about a failure in one place: the `From` that makes its report".to_owned(),
        })
        .collect()
}

struct Matches {
    /// Whether the walk is in an `impl` of a failure, and so `Self` is one.
    of_failure: bool,
    /// Whether the walk is in an `impl From`.
    converts: bool,
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Matches {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let last = |path: &syn::Path| path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let own = matches!(&*item.self_ty, syn::Type::Path(path) if last(&path.path).ends_with(FAILURE));
        let converts = item.trait_.as_ref().is_some_and(|(_, path, _)| last(path) == "From");
        let outer = (self.of_failure, self.converts);
        (self.of_failure, self.converts) = (own, converts);
        syn::visit::visit_item_impl(self, item);
        (self.of_failure, self.converts) = outer;
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let mut patterns = FailurePatterns { of_failure: self.of_failure, found: false };
        expression.arms.iter().for_each(|arm| patterns.visit_pat(&arm.pat));
        if patterns.found && !self.converts {
            self.lines.push(expression.match_token.span.start().line);
        }
        syn::visit::visit_expr_match(self, expression);
    }
}

/// Whether a pattern names a variant of a failure.
struct FailurePatterns {
    of_failure: bool,
    found: bool,
}

impl<'ast> Visit<'ast> for FailurePatterns {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let owner = path.segments.iter().rev().nth(1).map(|segment| segment.ident.to_string()).unwrap_or_default();
        self.found |= owner.ends_with(FAILURE) || self.of_failure && owner == "Self";
        syn::visit::visit_path(self, path);
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

    #[test]
    fn a_second_place_that_tells_of_a_failure_is_found() {
        let count = |text| matches_of(&sample("crates/cli/src/x.rs", text)).len();
        assert_eq!(count("impl AFailure { fn why(&self) { match self { Self::B => 1, Self::C => 2 } } }"), 1);
        assert_eq!(count("fn f(e: E) { match e { Err(x::AFailure::B { .. }) => 1, _ => 2 } }"), 1);
        assert_eq!(
            count("impl From<AFailure> for Report { fn from(f: AFailure) { match f { AFailure::B => 1 } } }"),
            0
        );
        assert_eq!(count("impl T { fn f(&self) { match self { Self::B => AFailure::B } } }"), 0);
        assert_eq!(count("#[test]\nfn t() { match e { AFailure::B => 1 } }"), 0);
    }
}
