//! Functions and files stay short enough to be read at once, crates and folders small enough to be
//! known.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::{Crate, Workspace};
use std::collections::BTreeMap;
use syn::spanned::Spanned as _;
use syn::visit::Visit;

/// Most lines of code in a function, comments and blank lines not counted.
const FUNCTION_LINES_MAX: usize = 60;
/// Most lines of code in a file, comments, blank lines and test modules not counted.
const FILE_LINES_MAX: usize = 600;
/// Most lines of code in a product crate, tests not counted.
const CRATE_LINES_MAX: usize = 7_000;
/// What the lines of a crate beyond the limit are counted in: a change of a few lines is no matter
/// of this rule.
const CRATE_LINES_UNIT: usize = 1_000;
/// Most files in a folder of a product crate, tests not counted.
const FOLDER_FILES_MAX: usize = 15;
/// Folders of like things, a file each, of which there may be any number.
const FOLDERS_OF_LIKES: [&str; 2] = ["commands", "evict"];

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
        place: file.path.clone(),
        item: String::new(),
        size,
        advice: format!("{size} lines of code, {FILE_LINES_MAX} allowed: cut the file by phase"),
    };
    (size > FILE_LINES_MAX).then_some(measured).into_iter().collect()
}

/// Product crates that are too long, in thousands of lines begun beyond the limit.
pub(crate) fn crates(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let product = workspace.crates.iter().filter(|krate| layers.is_product(&krate.name));
    let lines = |krate: &Crate| {
        let files = workspace.sources.iter().filter(|file| file.krate == krate.name && !file.tests_only);
        files.map(SourceFile::product_lines_of_code).sum::<usize>()
    };
    let measured = |krate: &Crate| {
        let lines = lines(krate);
        let size = lines.saturating_sub(CRATE_LINES_MAX).div_ceil(CRATE_LINES_UNIT);
        (size > 0).then(|| Measured {
            file: format!("{}/Cargo.toml", krate.folder),
            line: 1,
            rule: "crate-length",
            place: krate.name.clone(),
            item: String::new(),
            size,
            advice: format!("{lines} lines of code, {CRATE_LINES_MAX} allowed: carve a crate out of it"),
        })
    };
    product.filter_map(measured).collect()
}

/// Folders of product crates with too many files, tests not counted.
pub(crate) fn folders(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in workspace.sources.iter().filter(|file| layers.is_product(&file.krate) && !file.tests_only) {
        let (folder, _) = file.path.rsplit_once('/').unwrap_or_default();
        *folders.entry(folder).or_default() += 1;
    }
    let of_likes = |folder: &str| folder.split('/').any(|name| FOLDERS_OF_LIKES.contains(&name));
    let full = folders.into_iter().filter(|(folder, files)| *files > FOLDER_FILES_MAX && !of_likes(folder));
    full.map(|(folder, files)| Measured {
        file: folder.to_owned(),
        line: 1,
        rule: "folder-files",
        place: folder.to_owned(),
        item: String::new(),
        size: files - FOLDER_FILES_MAX,
        advice: format!("{files} files, {FOLDER_FILES_MAX} allowed: give what belongs together a folder"),
    })
    .collect()
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
            place: self.file.path.clone(),
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

    const TABLE: &str = "| crate | layer | is | may use |\n| `a` | L2 | a | — |\n| `t` | test | t | — |";

    fn workspace(files: Vec<SourceFile>) -> Workspace {
        let krate =
            |name: &str| Crate { name: name.into(), folder: format!("crates/{name}"), manifest: toml::Table::new() };
        Workspace { crates: ["a", "t"].map(krate).into(), sources: files, texts: Vec::new() }
    }

    #[test]
    fn a_long_product_crate_is_measured_without_its_tests() {
        let layers = Layers::parse(TABLE).expect("the sample has a table");
        let lines = |count| "fn f() {}\n".repeat(count);
        let sizes =
            |files: Vec<SourceFile>| crates(&workspace(files), &layers).iter().map(|m| m.size).collect::<Vec<_>>();
        let file = |path: &str, count| sample(path, &lines(count));
        assert_eq!(sizes(vec![file("crates/a/src/x.rs", 7_000), file("crates/a/tests/x.rs", 10)]), [0; 0]);
        assert_eq!(sizes(vec![file("crates/a/src/x.rs", 7_000), file("crates/a/src/y.rs", 1_001)]), [2]);
        assert_eq!(sizes(vec![file("crates/t/src/x.rs", 7_001)]), [0; 0]);
    }

    #[test]
    fn a_full_folder_is_measured_without_its_tests() {
        let layers = Layers::parse(TABLE).expect("the sample has a table");
        let files =
            |folder: &str, count| (0..count).map(|n| sample(&format!("{folder}/x{n}.rs"), "")).collect::<Vec<_>>();
        let found = |folder, count| folders(&workspace(files(folder, count)), &layers).first().map(|m| m.size);
        assert_eq!((found("crates/a/src", 15), found("crates/a/src", 17)), (None, Some(2)));
        assert_eq!(found("crates/a/src/commands/volume", 17), None);
        assert_eq!((found("crates/a/tests", 17), found("crates/t/src", 17)), (None, None));
    }
}
