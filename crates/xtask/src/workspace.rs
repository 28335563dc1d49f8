//! The repository as the rules see it: its crates, their manifests, and every tracked text file.

use crate::source::SourceFile;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every package name begins with and no folder does.
const PACKAGE_PREFIX: &str = "tidegate-";

/// A crate of the workspace.
pub(crate) struct Crate {
    /// The package's name without the common prefix.
    pub(crate) name: String,
    /// The folder from the root of the repository.
    pub(crate) folder: String,
    /// The parsed manifest.
    pub(crate) manifest: toml::Table,
}

/// A tracked text file.
pub(crate) struct Text {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// The whole of it.
    pub(crate) text: String,
}

/// The repository.
pub(crate) struct Workspace {
    /// Every member of the workspace.
    pub(crate) crates: Vec<Crate>,
    /// Every Rust file of a member.
    pub(crate) sources: Vec<SourceFile>,
    /// Every text file git tracks or would track, Rust files included.
    pub(crate) texts: Vec<Text>,
}

impl Workspace {
    /// Reads the repository this program was built from.
    pub(crate) fn load() -> Result<Workspace> {
        let root = root();
        let texts = texts()?;
        let crates = crates(&root)?;
        let mut sources = sources(&crates, &texts)?;
        mark_test_modules(&mut sources);
        Ok(Workspace { crates, sources, texts })
    }

    /// The text of the file at `path`, if it is there.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|text| text.path == path).map(|text| text.text.as_str())
    }

    /// Puts `text` in the place of the file at `path`, for what is judged after it.
    pub(crate) fn replace(&mut self, path: &str, text: String) {
        self.texts.retain(|old| old.path != path);
        self.texts.push(Text { path: path.to_owned(), text });
    }
}

/// Whether one of `texts` is at `path`, or in a folder there.
pub(crate) fn hold(texts: &[Text], path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let within =
        |text: &Text| text.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    texts.iter().any(within)
}

/// The folder of the workspace: two above this crate's own.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Files git tracks, and new ones it does not ignore; what is not UTF-8 is left out.
pub(crate) fn texts() -> Result<Vec<Text>> {
    let root = root();
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("cannot run git, which lists the files to judge")?;
    ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let names = String::from_utf8(listed.stdout).context("git listed a path that is not UTF-8")?;
    let read = |path: &str| {
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        Some(Text { path: path.to_owned(), text })
    };
    let mut paths: Vec<_> = names.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths.into_iter().filter_map(read).collect())
}

fn crates(root: &Path) -> Result<Vec<Crate>> {
    let workspace = manifest(root, ".")?;
    let members = workspace["workspace"]["members"].as_array().context("the workspace lists no members")?;
    members
        .iter()
        .map(|member| {
            let folder = member.as_str().context("a workspace member is not a string")?.to_owned();
            let manifest = manifest(root, &folder)?;
            let package = manifest["package"]["name"].as_str().context("a package has no name")?;
            let name = package.strip_prefix(PACKAGE_PREFIX).unwrap_or(package).to_owned();
            Ok(Crate { name, folder, manifest })
        })
        .collect()
}

fn manifest(root: &Path, folder: &str) -> Result<toml::Table> {
    let path = root.join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("{} is not TOML", path.display()))
}

fn sources(crates: &[Crate], texts: &[Text]) -> Result<Vec<SourceFile>> {
    let rust = texts.iter().filter(|text| text.path.ends_with(".rs"));
    rust.filter_map(|text| owner(crates, &text.path).map(|krate| (text, krate)))
        .map(|(text, krate)| SourceFile::parse(&text.path, &krate.name, &text.text))
        .collect()
}

/// The crate with the longest folder that holds `path`: crates may lie inside each other.
fn owner<'a>(crates: &'a [Crate], path: &str) -> Option<&'a Crate> {
    let holds = |krate: &&Crate| path.strip_prefix(&krate.folder).is_some_and(|rest| rest.starts_with('/'));
    crates.iter().filter(holds).max_by_key(|krate| krate.folder.len())
}

/// Files of modules that are declared under `#[cfg(test)]`, and the files below them, are test
/// code.
fn mark_test_modules(sources: &mut [SourceFile]) {
    let mut stems = Vec::new();
    for file in sources.iter() {
        let folder = module_folder(&file.path);
        stems.extend(file.test_modules().into_iter().map(|module| format!("{folder}/{module}")));
    }
    for file in sources {
        let below = |stem: &String| {
            file.path.strip_prefix(stem.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        file.tests_only |= stems.iter().any(below);
    }
}

/// The folder in which the modules of the file at `path` lie.
fn module_folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder.to_owned(),
        _ => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn files_of_test_modules_are_test_code() {
        let mut files = [
            sample("crates/a/src/lib.rs", "#[cfg(test)]\nmod oracle;\nmod open;\n"),
            sample("crates/a/src/oracle.rs", "fn f() {}\n"),
            sample("crates/a/src/oracle/deep.rs", "fn f() {}\n"),
            sample("crates/a/src/open.rs", "fn f() {}\n"),
        ];
        mark_test_modules(&mut files);
        assert_eq!(files.map(|file| file.tests_only), [false, true, true, false]);
    }

    #[test]
    fn a_file_belongs_to_the_innermost_crate() {
        let krate =
            |name: &str, folder: &str| Crate { name: name.into(), folder: folder.into(), manifest: toml::Table::new() };
        let crates = [krate("bench", "crates/bench"), krate("rivals", "crates/bench/rivals")];
        let owner = |path| owner(&crates, path).map(|krate| krate.name.as_str());
        assert_eq!(owner("crates/bench/rivals/src/main.rs"), Some("rivals"));
        assert_eq!(owner("crates/bench/src/lib.rs"), Some("bench"));
        assert_eq!(owner("crates/benchmark/src/lib.rs"), None);
    }
}
