//! The pages that are generated from the code, and the generator of each.
//!
//! A page has one row in one of three tables. `cargo xtask bless` writes every page, and
//! `cargo xtask bless --check` compares every page. `cargo xtask tidy` compares the pages of
//! [`OF_LIBRARIES`] and [`OF_WORKSPACE`]. A page of [`OF_TESTS`] needs the program: a test of its
//! package compares it, or writes it for `bless`.

use crate::builds::cargo_command;
use crate::limits;
use crate::source::Finding;
use crate::workspace::{self, Workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::process::ExitCode;

/// A function of a library that returns a whole page.
type Generator = fn() -> String;

/// A function that returns a whole page about the repository.
type GeneratorOfWorkspace = fn(&Workspace) -> Result<String, String>;

/// Pages that a function of a library returns; the library is a dependency of this crate.
const OF_LIBRARIES: [(&str, Generator); 1] = [("docs/layout.md", tidegate_layout::describe)];

/// Pages that a function makes of the repository, which may refuse with what is missing there.
const OF_WORKSPACE: [(&str, GeneratorOfWorkspace); 1] = [("docs/reference/limits.md", limits::page)];

/// Packages, and the beginning of the names of their tests that compare pages of `docs/reference`.
const OF_TESTS: [(&str, &str); 1] = [("tidegate-cli", "the_page_of_")];

/// The variable that makes these tests write their pages.
const BLESS: &str = "TIDEGATE_BLESS";

/// The pages that are not what their function returns, those of [`OF_TESTS`] left out.
pub(crate) fn stale(workspace: &Workspace) -> Vec<Finding> {
    let stale = |(path, page): (&str, Result<String, String>)| match page {
        Ok(page) => differs(path, workspace.text(path), &page),
        Err(advice) => Some(Finding { file: path.to_owned(), line: 1, rule: "generated-page", advice }),
    };
    generated(workspace).filter_map(stale).collect()
}

/// Writes every page, or with `check` only says which pages differ from their source.
pub(crate) fn bless(check: bool) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    let findings = stale(&workspace);
    if check {
        findings.iter().for_each(|finding| println!("{finding}"));
    } else {
        for (path, page) in generated(&workspace).filter(|(path, _)| findings.iter().any(|of| of.file == *path)) {
            let full = workspace::root().join(path);
            let page = page.map_err(anyhow::Error::msg)?;
            fs::create_dir_all(full.parent().unwrap_or(&full))
                .and_then(|()| fs::write(&full, page))
                .with_context(|| format!("cannot write {}", full.display()))?;
            println!("wrote {path}");
        }
    }
    for (package, tests) in OF_TESTS {
        let mut command = cargo_command(&["test", "--quiet", "--package", package, tests]);
        command.envs((!check).then_some((BLESS, "1")));
        let status = command.status().context("cannot run cargo")?;
        ensure!(status.success(), "the tests {tests}* of {package}: {status}");
    }
    println!("bless: {} pages differed from their source, those of tests not counted", findings.len());
    Ok(if check && !findings.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every page with its text, those of [`OF_TESTS`] left out.
fn generated(workspace: &Workspace) -> impl Iterator<Item = (&'static str, Result<String, String>)> {
    let of_libraries = OF_LIBRARIES.into_iter().map(|(path, generate)| (path, Ok(generate())));
    of_libraries.chain(OF_WORKSPACE.into_iter().map(|(path, generate)| (path, generate(workspace))))
}

fn differs(path: &str, written: Option<&str>, generated: &str) -> Option<Finding> {
    let written = written.unwrap_or_default();
    let line = 1 + written.lines().zip(generated.lines()).take_while(|(a, b)| a == b).count();
    let advice = "run `cargo xtask bless`, and read what changed".to_owned();
    (written != generated).then(|| Finding { file: path.to_owned(), line, rule: "generated-page", advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_page_is_found() {
        let line = |written, generated| differs("docs/a.md", written, generated).map(|finding| finding.line);
        assert_eq!(line(Some("a\nb\n"), "a\nb\n"), None);
        assert_eq!(line(Some("a\nb\n"), "a\nc\n"), Some(2));
        assert_eq!(line(None, "a\n"), Some(1));
    }
}
