//! Nothing unfinished and nothing dead stays in the tree.

use crate::source::{Comment, Finding, SourceFile};

const RULE_DEAD: &str = "dead-code";
const RULE_TODO: &str = "todo";
/// Words that mark unfinished work, cut in two so that this file does not break its own rule.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Attributes that keep dead code.
pub(crate) fn dead_code(file: &SourceFile) -> Vec<Finding> {
    let around = [("(", ")"), ("(", ","), (",", ")"), (",", ",")];
    let silenced = around.into_iter().flat_map(|(before, after)| file.find(&[before, "dead_code", after]));
    silenced
        .map(|line| file.finding(line, RULE_DEAD, "remove what nobody uses instead of silencing the lint"))
        .collect()
}

/// Macros and comments for work not done; a comment may stay if it names its issue as `#123`.
pub(crate) fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let macros = [concat!("to", "do"), concat!("unimpl", "emented")].map(|name| file.find(&[name, "!"]));
    let macros =
        macros.into_iter().flatten().map(|line| file.finding(line, RULE_TODO, "finish it, or return an error"));
    let marked = file.comments.iter().filter(|comment| is_marked(&comment.text) && !names_issue(&comment.text));
    macros
        .chain(marked.map(|comment| file.finding(comment.line, RULE_TODO, "do it now, or name its issue as #123")))
        .collect()
}

fn is_marked(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| MARKS.contains(&word))
}

fn names_issue(text: &str) -> bool {
    text.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Comments that are code: they parse as a statement that does something.
pub(crate) fn commented_out(file: &SourceFile) -> Vec<Finding> {
    let advice = "remove commented-out code; history keeps it";
    let code = file.comments.iter().filter(|comment| is_code(comment));
    code.map(|comment| file.finding(comment.line, "commented-out", advice)).collect()
}

fn is_code(comment: &Comment) -> bool {
    let documentation = ["///", "//!", "/*"].iter().any(|opening| comment.text.starts_with(opening));
    let Some(text) = comment.text.strip_prefix("//").map(str::trim).filter(|_| !documentation) else {
        return false;
    };
    let acts = text.contains('=') || text.contains('(') || text.starts_with("use ");
    text.ends_with(';') && acts && syn::parse_str::<syn::Stmt>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn file(text: &str) -> SourceFile {
        sample("crates/a/src/x.rs", text)
    }

    #[test]
    fn silenced_dead_code_is_found() {
        assert_eq!(dead_code(&file("#[allow(dead_code)]\nfn f() {}")).len(), 1);
        assert_eq!(dead_code(&file("#![expect(unused, dead_code)]\nfn f() {}")).len(), 1);
        assert_eq!(dead_code(&file("#[allow(clippy::large_enum_variant)]\nfn f() {}")).len(), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(unfinished(&file("fn f() { todo!() }")).len(), 1);
        let mark = MARKS[0];
        assert_eq!(unfinished(&file(&format!("// {mark}: later\nfn f() {{}}"))).len(), 1);
        assert_eq!(unfinished(&file(&format!("// {mark} #12: later\nfn f() {{}}"))).len(), 0);
        assert_eq!(unfinished(&file("fn f() { done() }")).len(), 0);
    }

    #[test]
    fn commented_out_code_is_found() {
        assert_eq!(commented_out(&file("fn f() {\n    // let x = g(1);\n}")).len(), 1);
        assert_eq!(
            commented_out(&file("fn f() {\n    // a fence (its own) comes first;\n    // see open.\n}")).len(),
            0
        );
    }
}
