//! What stands on a medium is written once, in `layout`: a record's size, the place of a field in
//! it, the value that marks it.
//!
//! The records are those that `on_media!` declares in `layout`. In the crates above it these count:
//!
//! - a place and a number added to it (`plan.entry_at(entry) + 8`): the number is a field's place;
//! - an integer constant named after a record (`ELEMENT_BYTES`): the size or the version of one;
//! - a constant of bytes that are not all zero: the mark of a record.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::Workspace;
use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::spanned::Spanned as _;
use syn::visit::Visit;

const LAYOUT: &str = "layout";
/// The macro that declares a record.
const RECORD_MACRO: &str = "on_media";
/// Last words of records' names that stand for data, too.
const OF_DATA: [&str; 2] = ["BLOCK", "FILE"];
/// Endings of names that say what of a record a constant is.
const ENDINGS: [&str; 6] = ["_AT", "_BITS", "_BYTES", "_MAGIC", "_OFFSET", "_VERSION"];
/// Verbs of `Region` whose first argument is a place.
const VERBS: [&str; 6] = ["flush", "load_u64", "read", "store_u64", "stream", "write"];

/// Facts of the medium outside of `layout`, in product crates that use it.
pub(crate) fn facts(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let nouns = nouns(&workspace.sources);
    let above = |file: &&SourceFile| layers.is_product(&file.krate) && layers.may_use(&file.krate, LAYOUT);
    workspace.sources.iter().filter(above).flat_map(|file| of_file(file, &nouns)).collect()
}

/// The last words of the records' names: `ELEMENT` of `RingElement`.
fn nouns(sources: &[SourceFile]) -> BTreeSet<String> {
    let mut records = Records(BTreeSet::new());
    sources.iter().filter(|file| file.krate == LAYOUT).for_each(|file| records.visit_file(&file.syntax));
    records.0
}

struct Records(BTreeSet<String>);

impl<'ast> Visit<'ast> for Records {
    fn visit_macro(&mut self, declaration: &'ast syn::Macro) {
        if declaration.path.is_ident(RECORD_MACRO) {
            let words = declared(declaration.tokens.clone()).iter().map(|name| last_word(name)).collect::<Vec<_>>();
            self.0.extend(words.into_iter().filter(|word| !OF_DATA.contains(&word.as_str())));
        }
    }
}

/// The names after `struct` in `tokens`.
fn declared(tokens: TokenStream) -> Vec<String> {
    let mut trees = tokens.into_iter().peekable();
    let mut names = Vec::new();
    while let Some(tree) = trees.next() {
        if matches!(&tree, TokenTree::Ident(word) if word == "struct") {
            names.extend(trees.peek().map(ToString::to_string));
        }
    }
    names
}

fn last_word(name: &str) -> String {
    name[name.rfind(char::is_uppercase).unwrap_or(0)..].to_uppercase()
}

fn of_file(file: &SourceFile, nouns: &BTreeSet<String>) -> Vec<Measured> {
    let mut facts = Facts { nouns, found: Vec::new() };
    facts.visit_file(&file.syntax);
    facts.found.sort_by_key(|(span, _)| span.start().line);
    let product = facts.found.into_iter().map(|(span, what)| (span.start().line, what));
    product
        .filter(|(line, _)| !file.is_test(*line))
        .map(|(line, what)| Measured {
            file: file.path.clone(),
            line,
            rule: "stray-fact",
            place: file.krate.clone(),
            item: String::new(),
            size: 1,
            advice: format!("{what} stands on the medium: name it in `layout`"),
        })
        .collect()
}

struct Facts<'a> {
    nouns: &'a BTreeSet<String>,
    found: Vec<(Span, String)>,
}

impl Facts<'_> {
    fn is_named_after_a_record(&self, name: &str) -> bool {
        let mut stems = ENDINGS.iter().filter_map(|ending| name.strip_suffix(ending));
        stems.any(|stem| stem.rsplit('_').next().is_some_and(|word| self.nouns.contains(word)))
    }

    fn constant(&mut self, name: &syn::Ident, value: &syn::Expr) {
        if has_marking_bytes(value) || is_number(value) && self.is_named_after_a_record(&name.to_string()) {
            self.found.push((name.span(), format!("`{name}`")));
        }
    }
}

impl<'ast> Visit<'ast> for Facts<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(&item.ident, &item.expr);
        syn::visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(&item.ident, &item.expr);
        syn::visit::visit_impl_item_const(self, item);
    }

    fn visit_expr_binary(&mut self, sum: &'ast syn::ExprBinary) {
        if matches!(sum.op, syn::BinOp::Add(_)) && is_place(&sum.left) && is_number(&sum.right) {
            self.found.push((sum.op.span(), "the place of a field".to_owned()));
        }
        syn::visit::visit_expr_binary(self, sum);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let first = call.args.first().filter(|_| VERBS.contains(&call.method.to_string().as_str()));
        if let Some(syn::Expr::Binary(sum)) = first
            && matches!(sum.op, syn::BinOp::Add(_))
            && matches!(&*sum.left, syn::Expr::Path(path) if path.path.is_ident("at"))
            && is_number(&sum.right)
        {
            self.found.push((call.method.span(), "the place of a field".to_owned()));
        }
        syn::visit::visit_expr_method_call(self, call);
    }
}

/// Whether an expression is a place on a medium by its name: `plan.entry_at(…)`, `plan.cursors_at`.
fn is_place(expression: &syn::Expr) -> bool {
    let name = match expression {
        syn::Expr::MethodCall(call) if call.method == "start" => return call.args.is_empty(),
        syn::Expr::MethodCall(call) => call.method.to_string(),
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(_) => return false,
        },
        syn::Expr::Call(call) => return is_place(&call.func),
        syn::Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => return false,
    };
    name.to_lowercase().ends_with("_at")
}

/// Whether an expression is a number other than zero, or several of them multiplied or shifted.
fn is_number(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Lit(literal) => {
            matches!(&literal.lit, syn::Lit::Int(number) if number.base10_parse::<u128>().is_ok_and(|number| number > 0))
        }
        syn::Expr::Binary(both) => is_number(&both.left) && is_number(&both.right),
        syn::Expr::Paren(inner) => is_number(&inner.expr),
        _ => false,
    }
}

/// Whether an expression is bytes that are not all zero: `*b"name"`, `[0xff; 32]`.
fn has_marking_bytes(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Lit(literal) => matches!(&literal.lit, syn::Lit::ByteStr(_)),
        syn::Expr::Unary(deref) => has_marking_bytes(&deref.expr),
        syn::Expr::Reference(reference) => has_marking_bytes(&reference.expr),
        syn::Expr::Repeat(repeat) => is_byte(&repeat.expr),
        syn::Expr::Array(array) => array.elems.iter().any(is_byte),
        _ => false,
    }
}

/// Whether an expression is a byte in hexadecimal, other than zero.
fn is_byte(expression: &syn::Expr) -> bool {
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) = expression else { return false };
    number.to_string().starts_with("0x") && number.base10_parse::<u8>().is_ok_and(|byte| byte > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    const TABLE: &str = "| crate | layer | is | may use |\n| `layout` | L0 | l | — |\n| `btt` | L2 | b | `layout` |\n| `nbd` | L3 | n | — |";
    const RECORDS: &str = "on_media! { /// One.\n pub struct RingElement [16] { a: U64, b: U64 } pub struct InfoBlock [16] { a: U64, b: U64 } }";

    fn found(path: &str, text: &str) -> usize {
        let layers = Layers::parse(TABLE).expect("the sample has a table");
        let sources = vec![sample("crates/layout/src/ring.rs", RECORDS), sample(path, text)];
        facts(&Workspace { crates: Vec::new(), sources, texts: Vec::new() }, &layers).len()
    }

    fn in_engine(text: &str) -> usize {
        found("crates/btt/src/x.rs", text)
    }

    #[test]
    fn places_of_fields_are_found() {
        assert_eq!(in_engine("fn f() { r.store_u64(plan.entry_at(entry) + 8, word) }"), 1);
        assert_eq!(
            in_engine(
                "fn f() { r.load_u64(plan.cursors_at + 8); entry_at(1) + (1 << 3); START_AT + 8; arena.start() + 48 }"
            ),
            4
        );
        assert_eq!(in_engine("fn f() { r.load_u64(at + 8) }"), 1);
        assert_eq!(
            in_engine("fn f() { r.load_u64(at + FlogHalf::SECOND_AT); r.load_u64(plan.block_at(b) + skip) }"),
            0
        );
        assert_eq!(in_engine("fn f() { let next = at + 1; lba + 1; range.start + 1; r.read(at, &mut out) }"), 0);
    }

    #[test]
    fn sizes_of_records_are_found() {
        assert_eq!(in_engine("const ELEMENT_BYTES: u64 = 16; impl R { const RING_ELEMENT_AT: u64 = 1 << 12; }"), 2);
        assert_eq!(in_engine("const ELEMENT_BYTES: u64 = size_of::<RingElement>() as u64;"), 0);
        assert_eq!(
            in_engine(
                "const STEP_BYTES: u64 = 1 << 20; const BLOCK_BYTES: u64 = 4096; const ELEMENTS_MAX: usize = 16;"
            ),
            0
        );
    }

    #[test]
    fn marks_are_found() {
        assert_eq!(in_engine("pub const GONE: [u8; 32] = [0xff; 32]; const MAGIC: &[u8; 4] = b\"tide\";"), 2);
        assert_eq!(in_engine("const MAGIC: [u8; 4] = *b\"tide\"; const ID: [u8; 2] = [0xaa, 0x55];"), 2);
        assert_eq!(
            in_engine(
                "const ZEROES: [u8; 512] = [0; 512]; const SIZES: [u32; 2] = [512, 4096]; const NAME: &str = \"tide\";"
            ),
            0
        );
    }

    #[test]
    fn layout_tests_and_crates_without_a_medium_are_free() {
        let text = "pub const GONE: [u8; 32] = [0xff; 32]; const ELEMENT_BYTES: u64 = 16;";
        assert_eq!((found("crates/layout/src/x.rs", text), found("crates/nbd/src/x.rs", text)), (0, 0));
        assert_eq!(in_engine(&format!("#[cfg(test)] mod tests {{ {text} }}")), 0);
    }
}
