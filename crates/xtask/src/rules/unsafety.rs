//! Unsafe code has an address, and a proof at every block.

use crate::rules::preambles::is_crate_root;
use crate::source::{Finding, SourceFile};
use syn::visit::Visit;

/// The crates that touch memory, share it with the kernel, or speak C.
const ADDRESSES: [&str; 11] = [
    "capi",
    "context-probe",
    "direct-preload",
    "media",
    "preload",
    "preload-common",
    "process-mappings",
    "program-context",
    "rivals",
    "sqlite-vfs",
    "ublk",
];
/// Lines of a statement that may stand between a proof and its block.
const STATEMENT_LINES_MAX: usize = 6;

/// Crate roots that do not forbid unsafe code, and unsafe code that nobody forbade.
pub(crate) fn addresses(file: &SourceFile) -> Vec<Finding> {
    if ADDRESSES.contains(&file.krate.as_str()) {
        return Vec::new();
    }
    let forbidden = !file.find(&["#", "!", "[", "forbid", "(", "unsafe_code"]).is_empty();
    let root = (is_crate_root(&file.path) && !forbidden)
        .then(|| file.finding(1, "forbid-unsafe", "write `#![forbid(unsafe_code)]` after the preamble"));
    let code = file.find(&["unsafe"]);
    let code = code
        .into_iter()
        .map(|line| file.finding(line, "unsafe-address", "unsafe code lives in `media` and at the borders to C only"));
    root.into_iter().chain(code).collect()
}

/// Unsafe blocks and implementations without a `// SAFETY:` comment right above.
pub(crate) fn proofs(file: &SourceFile) -> Vec<Finding> {
    let blocks = file.find(&["unsafe", "{"]).into_iter().chain(file.find(&["unsafe", "impl"]));
    let unproved = blocks.filter(|line| !is_proved(file, *line));
    unproved
        .map(|line| file.finding(line, "safety-comment", "prove the block in a `// SAFETY:` comment above it"))
        .collect()
}

fn is_proved(file: &SourceFile, line: usize) -> bool {
    let comment_at = |line: usize| file.comments.iter().find(|comment| comment.line == line);
    let mut above = (1..=line).rev();
    let first = above.by_ref().take(STATEMENT_LINES_MAX).find_map(comment_at);
    let Some(mut comment) = first else { return false };
    loop {
        if comment.text.contains("SAFETY:") {
            return true;
        }
        match comment_at(comment.line - 1) {
            Some(next) => comment = next,
            None => return false,
        }
    }
}

/// Mutable statics.
pub(crate) fn mutable_statics(file: &SourceFile) -> Vec<Finding> {
    let mut statics = Statics { file, found: Vec::new() };
    statics.visit_file(&file.syntax);
    statics.found
}

struct Statics<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Statics<'_> {
    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if let syn::StaticMutability::Mut(mutability) = &item.mutability {
            let line = mutability.span.start().line;
            self.found.push(self.file.finding(line, "static-mut", "use an atomic, a lock, or a parameter"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn unsafe_code_outside_its_address_is_found() {
        let count = |path, text| addresses(&sample(path, text)).len();
        assert_eq!(count("crates/btt/src/lib.rs", "mod x;"), 1);
        assert_eq!(count("crates/btt/src/x.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(count("crates/btt/src/lib.rs", "#![forbid(unsafe_code)]\nmod x;"), 0);
        assert_eq!(count("crates/media/src/lib.rs", "fn f() { unsafe { g() } }"), 0);
    }

    #[test]
    fn unproved_blocks_are_found() {
        let count = |text| proofs(&sample("crates/media/src/x.rs", text)).len();
        assert_eq!(count("fn f() {\n    unsafe { g() }\n}"), 1);
        assert_eq!(count("// about f\nfn f() {\n    let x = unsafe { g() };\n}"), 1);
        assert_eq!(
            count(
                "fn f() {\n    // SAFETY: g asks for nothing,\n    // and gives nothing.\n    let x =\n        unsafe { g() };\n}"
            ),
            0
        );
        assert_eq!(count("unsafe impl Send for X {}"), 1);
    }

    #[test]
    fn mutable_statics_are_found() {
        let count = |text| mutable_statics(&sample("crates/media/src/x.rs", text)).len();
        assert_eq!(count("static mut X: u8 = 0;"), 1);
        assert_eq!(count("static X: u8 = 0; fn f(x: &'static mut u8) {}"), 0);
    }
}
