//! The pages under `docs/` as a book: every page stands in its table of contents, every link leads
//! to a page and a heading, and mdBook writes it as HTML.
//!
//! CI checks and does not build: to compile mdBook takes minutes.

use crate::markdown::{numbered, outside_code, resolved};
use crate::source::Finding;
use crate::workspace::{self, Text};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The folder of the book.
const FOLDER: &str = "docs/";

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the book, then writes it as HTML to the folder `to`.
pub(crate) fn build(to: &Path) -> Result<ExitCode> {
    check()?;
    let built =
        Command::new("mdbook").args(["build", FOLDER, "--dest-dir"]).arg(to).current_dir(workspace::root()).status();
    match built {
        Ok(status) => ensure!(status.success(), "mdbook build: {status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("mdbook is not installed: run `cargo install mdbook --no-default-features --locked`")
        }
        Err(error) => bail!("cannot run mdbook: {error}"),
    }
    println!("wrote {}", to.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Fails if a page is missing in the table of contents, or a link leads to no page or heading.
pub(crate) fn check() -> Result<()> {
    let texts = workspace::texts()?;
    let pages: Vec<_> = texts.iter().filter(|text| text.path.ends_with(".md")).collect();
    let findings = judge(&pages, |path| workspace::hold(&texts, path));
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("book: {} pages, {} findings", pages.len(), findings.len());
    ensure!(findings.is_empty(), "the book has {} dead or missing links", findings.len());
    Ok(())
}

fn judge(pages: &[&Text], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages {
        for (line, link) in links(&page.text).filter(|(_, link)| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { page.path.clone() } else { resolved(&page.path, path) };
            let target = pages.iter().find(|page| page.path == path);
            let is_dead = !anchor.is_empty() && target.is_some_and(|target| !anchors(&target.text).contains(anchor));
            if is_dead || !exists(&path) {
                findings.push(finding(&page.path, line, format!("`{link}` leads to nothing: correct the link")));
            } else if page.path.starts_with(FOLDER) && !path.starts_with(FOLDER) {
                findings.push(finding(
                    &page.path,
                    line,
                    format!("`{link}` leads out of the book: name it in backticks"),
                ));
            }
        }
    }
    findings.extend(unlisted(pages));
    findings
}

/// Pages of the book that its table of contents does not list.
fn unlisted(pages: &[&Text]) -> Vec<Finding> {
    let summary = pages.iter().find(|page| page.path == SUMMARY).map_or("", |page| page.text.as_str());
    let listed: BTreeSet<_> = links(summary).map(|(_, link)| resolved(SUMMARY, link)).collect();
    let is_unlisted = |path: &str| path.starts_with(FOLDER) && path != SUMMARY && !listed.contains(path);
    let missing = pages.iter().filter(|page| is_unlisted(&page.path));
    missing.map(|page| finding(SUMMARY, 1, format!("`{}` is not listed: add it", page.path))).collect()
}

fn finding(file: &str, line: usize, advice: String) -> Finding {
    Finding { file: file.to_owned(), line, rule: "book", advice }
}

/// The targets of the links of a page, each with its line.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let of_line = |line: &str| line.match_indices("](").map(|(at, _)| at + 2).collect::<Vec<_>>();
    let target = |line: &'_ str, at: usize| line[at..].split_once(')').map(|(link, _)| (at, link.len()));
    outside_code(numbered(text)).flat_map(move |(number, line)| {
        let found: Vec<_> = of_line(line).into_iter().filter_map(|at| target(line, at)).collect();
        found.into_iter().map(move |(at, length)| (number, &line[at..at + length]))
    })
}

/// The anchors of a page's headings, as forges and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = outside_code(numbered(text)).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

/// Lower case, spaces as dashes, and of all other characters only letters, digits, dashes and
/// underscores.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pages: &[(&str, &str)]) -> Vec<(String, usize)> {
        let texts: Vec<_> =
            pages.iter().map(|(path, text)| Text { path: (*path).into(), text: (*text).into() }).collect();
        let findings = judge(&texts.iter().collect::<Vec<_>>(), |path| texts.iter().any(|text| text.path == path));
        findings.into_iter().map(|finding| (finding.file, finding.line)).collect()
    }

    #[test]
    fn dead_links_and_anchors_are_found() {
        let page = ("docs/a.md", "# A page\n\n## Of `run`: (1) all\n");
        let summary = ("docs/SUMMARY.md", "- [A](a.md)\n");
        let readme = |text| lines(&[page, summary, ("README.md", text)]);
        assert_eq!(readme("[a](docs/a.md#of-run-1-all), [b](https://b.c/d#e)\n\n```\n[c](d.md)\n```\n"), []);
        assert_eq!(readme("\n[a](docs/a.md#of-run) and [a](docs/a.md)\n"), [("README.md".to_owned(), 2)]);
        assert_eq!(readme("[a](docs/b.md)\n"), [("README.md".to_owned(), 1)]);
        assert_eq!(readme("## Here\n[a](#here) [b](#there)\n"), [("README.md".to_owned(), 2)]);
    }

    #[test]
    fn pages_that_are_not_listed_are_found() {
        let listed = lines(&[("docs/SUMMARY.md", "- [A](x/a.md)\n"), ("docs/x/a.md", ""), ("docs/b.md", "")]);
        assert_eq!(listed, [("docs/SUMMARY.md".to_owned(), 1)]);
    }

    #[test]
    fn links_out_of_the_book_are_found() {
        let pages = [("docs/SUMMARY.md", "- [A](a.md)\n"), ("docs/a.md", "[r](../README.md)\n"), ("README.md", "")];
        assert_eq!(lines(&pages), [("docs/a.md".to_owned(), 1)]);
    }
}
