//! One Rust file as the rules see it: tokens, comments, syntax tree, and which lines are test code.

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr as _;
use syn::visit::Visit;

/// A place where a rule is broken, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root of the repository.
    pub(crate) file: String,
    /// Line in the file, from 1.
    pub(crate) line: usize,
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// What to do.
    pub(crate) advice: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}

/// One leaf of the token tree; documentation comments are not among them.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// The token as written: an identifier, one character of punctuation, a bracket, or a literal.
    pub(crate) text: String,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// One line of comment, of any kind.
#[derive(Clone, Debug)]
pub(crate) struct Comment {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The text from the comment's opening characters on.
    pub(crate) text: String,
}

/// A path brought into scope by a `use` item, with groups taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    /// Segments; the last one is `*` for a glob.
    pub(crate) path: Vec<String>,
    /// Line of its last segment.
    pub(crate) line: usize,
    /// Whether the item has a visibility of any kind.
    pub(crate) public: bool,
}

/// A parsed Rust file.
pub(crate) struct SourceFile {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// The crate it belongs to, without the common prefix.
    pub(crate) krate: String,
    /// Every token of code, in order.
    pub(crate) tokens: Vec<Token>,
    /// Every line of comment, documentation included, in order.
    pub(crate) comments: Vec<Comment>,
    /// Every `use`, in order.
    pub(crate) imports: Vec<Import>,
    /// Structs, enums, traits and aliases.
    pub(crate) types: Vec<TypeName>,
    /// The syntax tree.
    pub(crate) syntax: syn::File,
    /// Lines that carry at least one token of code.
    code_lines: BTreeSet<usize>,
    /// Lines of items under `#[cfg(test)]` or `#[test]`.
    test_lines: Vec<RangeInclusive<usize>>,
    /// Whether the whole file is test code.
    pub(crate) tests_only: bool,
}

impl SourceFile {
    /// Parses `text`, which stands at `path` in the crate `krate`.
    pub(crate) fn parse(path: &str, krate: &str, text: &str) -> Result<SourceFile> {
        let stream = TokenStream::from_str(text).map_err(|e| anyhow::anyhow!("{path}: not Rust: {e}"))?;
        let syntax = syn::parse2(stream.clone()).with_context(|| format!("{path}: not Rust"))?;
        let mut walk = Walk::over(text);
        walk.stream(stream);
        let mut shape = Shape::default();
        shape.visit_file(&syntax);
        Ok(SourceFile {
            path: path.to_owned(),
            krate: krate.to_owned(),
            comments: walk.comments(),
            tokens: walk.tokens,
            imports: shape.imports,
            types: shape.types,
            syntax,
            code_lines: walk.code_lines,
            test_lines: shape.test_lines,
            tests_only: path.contains("/tests/") || path.ends_with("/tests.rs"),
        })
    }

    /// Whether `line` is test code.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests_only || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Lines of code in `lines`: those with at least one token outside comments.
    pub(crate) fn lines_of_code(&self, lines: RangeInclusive<usize>) -> usize {
        self.code_lines.range(lines).count()
    }

    /// Lines of code in the file; test modules beside product code are left out.
    pub(crate) fn product_lines_of_code(&self) -> usize {
        self.code_lines.iter().filter(|line| self.tests_only || !self.is_test(**line)).count()
    }

    /// The lines at which the tokens of `pattern` stand in a row.
    pub(crate) fn find(&self, pattern: &[&str]) -> Vec<usize> {
        let matches = |window: &&[Token]| window.iter().zip(pattern).all(|(token, text)| token.text == *text);
        self.tokens.windows(pattern.len()).filter(matches).map(|window| window[0].line).collect()
    }

    /// A finding in this file.
    pub(crate) fn finding(&self, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding { file: self.path.clone(), line, rule, advice: advice.into() }
    }

    /// Modules without a body declared under `#[cfg(test)]`: their files are test code.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let test_module = |item: &syn::Item| match item {
            syn::Item::Mod(module) if module.content.is_none() && only_for_tests(&module.attrs) => {
                Some(module.ident.to_string())
            }
            _ => None,
        };
        self.syntax.items.iter().filter_map(test_module).collect()
    }
}

/// Whether `attrs` keep an item for tests: `#[test]`, or a `#[cfg]` that asks for `test`.
pub(crate) fn only_for_tests(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("test")
            || attr.path().is_ident("cfg")
                && attr.meta.require_list().is_ok_and(|list| {
                    let predicate = list.tokens.to_string();
                    predicate.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "test")
                        && !predicate.replace(' ', "").contains("not(test)")
                })
    })
}

/// A walk over the token tree that tells code and comments apart.
struct Walk<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    code_lines: BTreeSet<usize>,
    /// The text with every token of code replaced by blanks: what remains are comments.
    remainder: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn over(text: &'a str) -> Walk<'a> {
        Walk { text, tokens: Vec::new(), code_lines: BTreeSet::new(), remainder: text.as_bytes().to_vec() }
    }

    fn stream(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            if self.is_documentation(&tree) {
                // `#`, perhaps `!`, and the bracket all carry the span of the comment itself.
                while trees.next_if(|next| self.is_documentation(next)).is_some() {}
                continue;
            }
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = brackets(group.delimiter());
                    self.token(open, group.span_open());
                    self.stream(group.stream());
                    self.token(close, group.span_close());
                }
                leaf => self.token(&leaf.to_string(), leaf.span()),
            }
        }
    }

    fn is_documentation(&self, tree: &TokenTree) -> bool {
        let written = &self.text[tree.span().byte_range()];
        written.starts_with("//") || written.starts_with("/*")
    }

    fn token(&mut self, text: &str, span: Span) {
        if text.is_empty() {
            return;
        }
        for byte in &mut self.remainder[span.byte_range()] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        self.code_lines.extend(span.start().line..=span.end().line);
        self.tokens.push(Token { text: text.to_owned(), line: span.start().line });
    }

    fn comments(&self) -> Vec<Comment> {
        let remainder = String::from_utf8_lossy(&self.remainder);
        let lines = remainder.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        lines.filter(|(_, line)| !line.is_empty()).map(|(line, text)| Comment { line, text: text.to_owned() }).collect()
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// A type that a file declares.
pub(crate) struct TypeName {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether it only names another type.
    pub(crate) is_alias: bool,
}

/// What one pass over the syntax tree finds: imports, types, and the lines of test code.
#[derive(Default)]
struct Shape {
    imports: Vec<Import>,
    types: Vec<TypeName>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Shape {
    fn tree(&mut self, tree: &syn::UseTree, prefix: &[String], public: bool) {
        let mut import = |name: String, span: Span| {
            let path = prefix.iter().cloned().chain([name]).collect();
            self.imports.push(Import { path, line: span.start().line, public });
        };
        match tree {
            syn::UseTree::Path(path) => {
                let deeper: Vec<_> = prefix.iter().cloned().chain([path.ident.to_string()]).collect();
                self.tree(&path.tree, &deeper, public);
            }
            syn::UseTree::Name(name) => import(name.ident.to_string(), name.ident.span()),
            syn::UseTree::Rename(rename) => import(rename.ident.to_string(), rename.ident.span()),
            syn::UseTree::Glob(glob) => import("*".to_owned(), glob.star_token.spans[0]),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, prefix, public)),
        }
    }

    fn mark(&mut self, attrs: &[syn::Attribute], from: Span, to: Span) {
        if only_for_tests(attrs) {
            self.test_lines.push(from.start().line..=to.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for Shape {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::spanned::Spanned as _;
        let attrs = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        self.mark(attrs, item.span(), item.span());
        let named = match item {
            syn::Item::Struct(item) => Some((&item.ident, false)),
            syn::Item::Enum(item) => Some((&item.ident, false)),
            syn::Item::Trait(item) => Some((&item.ident, false)),
            syn::Item::Type(item) => Some((&item.ident, true)),
            _ => None,
        };
        self.types.extend(named.map(|(ident, is_alias)| TypeName {
            name: ident.to_string(),
            line: ident.span().start().line,
            is_alias,
        }));
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.mark(&function.attrs, function.sig.fn_token.span, function.block.brace_token.span.close());
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &[], !matches!(item.vis, syn::Visibility::Inherited));
    }
}

#[cfg(test)]
pub(crate) fn sample(path: &str, text: &str) -> SourceFile {
    let krate = path.split('/').nth(1).expect("samples stand at crates/NAME/…");
    SourceFile::parse(path, krate, text).expect("samples are Rust")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_code_are_told_apart() {
        let file = sample(
            "crates/a/src/lib.rs",
            "//! What.\n\n/// Doc.\nfn f() {\n    // why\n    let s = \"// no comment\"; // tail\n}\n",
        );
        let comments: Vec<_> = file.comments.iter().map(|c| (c.line, c.text.as_str())).collect();
        assert_eq!(comments, [(1, "//! What."), (3, "/// Doc."), (5, "// why"), (6, "// tail")]);
        assert_eq!(file.product_lines_of_code(), 3);
    }

    #[test]
    fn test_modules_are_not_product_code() {
        let file = sample("crates/a/src/lib.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n");
        assert!(!file.is_test(1) && file.is_test(4));
        assert_eq!(file.product_lines_of_code(), 1);
        assert!(!sample("crates/a/src/lib.rs", "#[cfg(not(test))]\nfn f() {}\n").is_test(2));
    }

    #[test]
    fn groups_of_imports_are_taken_apart() {
        let file = sample("crates/a/src/lib.rs", "pub use std::{sync::{Mutex, atomic::*}, fmt};\n");
        let paths: Vec<_> = file.imports.iter().map(|import| import.path.join("::")).collect();
        assert_eq!(paths, ["std::sync::Mutex", "std::sync::atomic::*", "std::fmt"]);
        assert!(file.imports.iter().all(|import| import.public));
    }
}
