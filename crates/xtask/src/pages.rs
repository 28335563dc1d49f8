//! The pages that are generated from the code, and the generator of each.
//!
//! A page has one row in one of two tables. `cargo xtask bless` writes every page, and
//! `cargo xtask bless --check` compares every page. `cargo xtask tidy` compares the pages of
//! [`OF_LIBRARIES`] only: a page of [`OF_PROGRAM`] is compared by `bless --check`, because the
//! program has to be built for it.

use crate::source::Finding;
use crate::workspace::{self, Workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::process::{Command, ExitCode, Stdio};

/// A function of a library that returns a whole page.
type Generator = fn() -> String;

/// Pages that a function of a library returns; the library is a dependency of this crate.
const OF_LIBRARIES: [(&str, Generator); 1] = [("docs/layout.md", tidegate_layout::describe)];

/// Pages that `tidegate` prints when it is given these arguments.
const OF_PROGRAM: [(&str, &[&str]); 0] = [];

/// The package of the program `tidegate`.
const PROGRAM: &str = "tidegate-cli";

/// The pages of [`OF_LIBRARIES`] that are not what their function returns.
pub(crate) fn stale(workspace: &Workspace) -> Vec<Finding> {
    let stale = |(path, generate): (&str, Generator)| differs(path, workspace.text(path), &generate());
    OF_LIBRARIES.into_iter().filter_map(stale).collect()
}

/// Writes every page, or with `check` only says which pages differ from their source.
pub(crate) fn bless(check: bool) -> Result<ExitCode> {
    let mut stale = 0;
    for (path, page) in generated()? {
        let full = workspace::root().join(path);
        let written = fs::read_to_string(&full).ok();
        match differs(path, written.as_deref(), &page) {
            None => continue,
            Some(finding) if check => println!("{finding}"),
            Some(_) => {
                fs::create_dir_all(full.parent().unwrap_or(&full))
                    .and_then(|()| fs::write(&full, page))
                    .with_context(|| format!("cannot write {}", full.display()))?;
                println!("wrote {path}");
            }
        }
        stale += 1;
    }
    println!("bless: {stale} pages differed from their source");
    Ok(if check && stale > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every page and its text.
fn generated() -> Result<Vec<(&'static str, String)>> {
    let mut pages: Vec<_> = OF_LIBRARIES.into_iter().map(|(path, generate)| (path, generate())).collect();
    for (path, arguments) in OF_PROGRAM {
        pages.push((path, printed(arguments)?));
    }
    Ok(pages)
}

/// What `tidegate` prints when it is given `arguments`; builds the program if that is needed.
fn printed(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--package", PROGRAM, "--"]).args(arguments).current_dir(workspace::root());
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "tidegate {}: {}", arguments.join(" "), output.status);
    String::from_utf8(output.stdout)
        .with_context(|| format!("tidegate {}: printed bytes that are not UTF-8", arguments.join(" ")))
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
