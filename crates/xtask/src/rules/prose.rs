//! Pages and preambles can be read: short lines, paragraphs and sentences, and subjects that are
//! nouns.

use crate::exceptions::Measured;
use crate::markdown::{Paragraph, numbered, outside_code, paragraphs, plain, sentences, words};
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::{Text, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const README: &str = "README.md";
/// Most lines of the README.
const README_LINES_MAX: usize = 220;
/// Most columns of a line of Markdown or of a comment; apart are tables, code,
/// longer words, and items that are one link.
const COLUMNS_MAX: usize = 100;
/// Most words of a paragraph or an item of a list.
const PARAGRAPH_WORDS_MAX: usize = 90;
/// Most words of a sentence in pages for readers.
const SENTENCE_WORDS_MAX: usize = 35;
/// Words that stand where a noun should.
const GHOSTS: [&str; 8] = ["what", "who", "whoever", "whatever", "nobody", "somebody", "nothing", "something"];
/// Words to each ghost of a page for readers: half a percent.
const PAGE_WORDS_PER_GHOST: usize = 200;
/// Words to each ghost of all preambles: one and a half percent.
const PREAMBLE_WORDS_PER_GHOST: usize = 67;
/// Files that are named for their ghosts.
const WORST_SHOWN: usize = 12;
/// Openings of a doc comment that lean on the item before it.
const LEANING: [&str; 3] = ["The same", "and ", "And "];

/// Whether the page at `path` is for readers: the README, the guide and the reference.
pub(crate) fn is_for_readers(path: &str) -> bool {
    path == README
        || path.ends_with(".md") && ["docs/guide/", "docs/reference/"].iter().any(|folder| path.starts_with(folder))
}

/// What of all pages is too long, or has too many ghosts.
pub(crate) fn pages(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    workspace.texts.iter().filter(|text| text.path.ends_with(".md")).flat_map(page).collect()
}

fn page(text: &Text) -> Vec<Measured> {
    let measured = |line, rule, size, advice| Measured {
        file: text.path.clone(),
        line,
        rule,
        place: text.path.clone(),
        item: String::new(),
        size,
        advice,
    };
    let paragraphs = paragraphs(numbered(&text.text));
    let mut found = Vec::new();
    let lines = text.text.lines().count();
    if text.path == README && lines > README_LINES_MAX {
        let advice = format!("{lines} lines, {README_LINES_MAX} allowed: move what is no first look to the guide");
        found.push(measured(1, "readme-length", lines - README_LINES_MAX, advice));
    }
    let running = outside_code(numbered(&text.text));
    for (line, columns) in running.filter(|(_, text)| !text.starts_with('|')).filter_map(too_wide) {
        found.push(measured(line, "page-columns", 1, wide(columns)));
    }
    for Paragraph { line, text: words_of } in &paragraphs {
        let count = words(&plain(words_of)).count();
        if count > PARAGRAPH_WORDS_MAX {
            let advice = format!(
                "{count} words in a paragraph, {PARAGRAPH_WORDS_MAX} allowed: cut it, or make a table of its cases"
            );
            found.push(measured(*line, "paragraph", 1, advice));
        }
    }
    if !is_for_readers(&text.path) {
        return found;
    }
    for Paragraph { line, text: sentences_of } in &paragraphs {
        let plain = plain(sentences_of);
        for sentence in sentences(&plain).into_iter().filter(|sentence| words(sentence).count() > SENTENCE_WORDS_MAX) {
            let start: Vec<_> = sentence.split_whitespace().take(5).collect();
            let advice = format!(
                "{} words in the sentence \"{} …\", {SENTENCE_WORDS_MAX} allowed: cut it",
                words(sentence).count(),
                start.join(" ")
            );
            found.push(measured(*line, "sentence", 1, advice));
        }
    }
    found.extend(
        too_many(&ghosts(&paragraphs), PAGE_WORDS_PER_GHOST)
            .map(|(line, size, advice)| measured(line, "ghost", size, advice)),
    );
    found
}

/// The line and its columns, if it is too wide and could be broken.
fn too_wide((line, text): (usize, &str)) -> Option<(usize, usize)> {
    let columns = text.chars().count();
    let link = text.trim_start().starts_with("- [") && text.ends_with(')') && text.matches("](").count() == 1;
    let breaks = !link && text.split_whitespace().all(|word| word.chars().count() <= COLUMNS_MAX);
    (columns > COLUMNS_MAX && breaks).then_some((line, columns))
}

fn wide(columns: usize) -> String {
    format!("{columns} columns, {COLUMNS_MAX} allowed: break the line")
}

/// Comments that are too wide, counted by crate. Comments behind code go with the code.
pub(crate) fn comment_columns(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    let texts: BTreeMap<_, _> = workspace.texts.iter().map(|text| (text.path.as_str(), text.text.as_str())).collect();
    workspace
        .sources
        .iter()
        .flat_map(|file| wide_comments(file, texts.get(file.path.as_str()).unwrap_or(&"")))
        .collect()
}

fn wide_comments(file: &SourceFile, text: &str) -> Vec<Measured> {
    let comments: BTreeSet<_> = file.comments.iter().map(|comment| comment.line).collect();
    let lines = numbered(text);
    let alone = lines.filter(|(line, text)| comments.contains(line) && text.trim_start().starts_with("//"));
    let measured = |(line, columns)| Measured {
        file: file.path.clone(),
        line,
        rule: "comment-columns",
        place: file.krate.clone(),
        item: String::new(),
        size: 1,
        advice: wide(columns),
    };
    alone.filter_map(too_wide).map(measured).collect()
}

/// The words of a text, and the lines of the ghosts among them.
struct Ghosts {
    words: usize,
    lines: Vec<usize>,
}

fn ghosts(paragraphs: &[Paragraph]) -> Ghosts {
    let mut found = Ghosts { words: 0, lines: Vec::new() };
    for paragraph in paragraphs {
        for word in words(&plain(&paragraph.text)) {
            found.words += 1;
            let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            if GHOSTS.contains(&word.as_str()) {
                found.lines.push(paragraph.line);
            }
        }
    }
    found
}

/// The ghosts beyond one for each `words_per_ghost` words begun: the first line, how many, and what
/// to do.
fn too_many(ghosts: &Ghosts, words_per_ghost: usize) -> Option<(usize, usize, String)> {
    let allowed = ghosts.words.div_ceil(words_per_ghost);
    let size = ghosts.lines.len().saturating_sub(allowed);
    let lines: Vec<_> = ghosts.lines.iter().map(usize::to_string).collect();
    let advice = format!(
        "{} of {} words are what, who, nobody or nothing, {allowed} allowed: name the noun (lines {})",
        ghosts.lines.len(),
        ghosts.words,
        lines.join(", ")
    );
    (size > 0).then(|| (ghosts.lines[0], size, advice))
}

/// Preambles with too many ghosts in all, and doc comments that do not stand alone.
pub(crate) fn comments(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    let leaning = workspace.sources.iter().flat_map(leaning);
    preambles(&workspace.sources).into_iter().chain(leaning).collect()
}

fn preambles(files: &[SourceFile]) -> Option<Measured> {
    let of_file = |file: &SourceFile| {
        let lines = file.comments.iter().filter_map(|comment| Some((comment.line, comment.text.strip_prefix("//!")?)));
        ghosts(&paragraphs(lines))
    };
    let mut all: Vec<_> = files.iter().map(|file| (file.path.as_str(), of_file(file))).collect();
    let words = all.iter().map(|(_, ghosts)| ghosts.words).sum::<usize>();
    let count = all.iter().map(|(_, ghosts)| ghosts.lines.len()).sum::<usize>();
    let size = count.saturating_sub(words.div_ceil(PREAMBLE_WORDS_PER_GHOST));
    all.sort_by_key(|(_, ghosts)| std::cmp::Reverse(ghosts.lines.len()));
    let worst = all.iter().take(WORST_SHOWN).map(|(path, ghosts)| format!("{path} has {}", ghosts.lines.len()));
    let worst: Vec<_> = worst.collect();
    (size > 0).then(|| Measured {
        file: all[0].0.to_owned(),
        line: 1,
        rule: "preamble-ghost",
        place: "all".to_owned(),
        item: String::new(),
        size,
        advice: format!(
            "{count} of {words} words in preambles are what, who, nobody or nothing: name the noun ({})",
            worst.join(", ")
        ),
    })
}

/// Doc comments that open as if the comment before them went on.
fn leaning(file: &SourceFile) -> Vec<Measured> {
    let mut found = Vec::new();
    let mut next = 0;
    for (line, text) in
        file.comments.iter().filter_map(|comment| Some((comment.line, comment.text.strip_prefix("///")?.trim_start())))
    {
        let opens = line != next;
        next = line + 1;
        if opens && LEANING.iter().any(|start| text.starts_with(start)) {
            found.push(Measured {
                file: file.path.clone(),
                line,
                rule: "leaning-comment",
                place: file.krate.clone(),
                item: String::new(),
                size: 1,
                advice: "name the subject: a doc comment is read alone".to_owned(),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        page(&Text { path: path.into(), text: text.into() }).into_iter().map(|measured| measured.rule).collect()
    }

    #[test]
    fn long_pages_paragraphs_and_sentences_are_found() {
        assert_eq!(rules("README.md", &"# Title\n".repeat(221)), ["readme-length"]);
        assert_eq!(rules("README.md", &"One more word.\n".repeat(31)), ["paragraph"]);
        assert_eq!(rules("docs/guide/a.md", &"word\n".repeat(36)), ["sentence"]);
        assert_eq!(rules("docs/a.md", &"word\n".repeat(36)), [""; 0]);
        assert_eq!(
            rules("README.md", &format!("{}\n\n{}", "One more word.\n".repeat(30), "word\n".repeat(35))),
            [""; 0]
        );
    }

    #[test]
    fn wide_lines_are_found() {
        let (wide, code) = (format!("{} end\n", "a word".repeat(17)), "x".repeat(101));
        assert_eq!(rules("docs/a.md", &wide), ["page-columns"]);
        assert_eq!(rules("docs/a.md", &format!("| {wide}\n```\n{wide}```\n{code}\n")), [""; 0]);
        let found = |text: &str| wide_comments(&sample("crates/a/src/x.rs", text), text).len();
        assert_eq!(found(&format!("/// {wide}fn f() {{\n    // {wide}}}\n")), 2);
        assert_eq!(found(&format!("fn f() {{ g(\"{}\") }} // {wide}", "a word".repeat(16))), 0);
    }

    #[test]
    fn ghosts_are_found() {
        let paragraph = format!("{}\n", "Two words.\n".repeat(40));
        assert_eq!(rules("README.md", &format!("What is. Who is.\n\n{}", paragraph.repeat(2))), ["ghost"]);
        assert_eq!(rules("README.md", &format!("What is.\n\n{}", paragraph.repeat(2))), [""; 0]);
        assert_eq!(rules("docs/media-model.md", "What is. Who is.\n"), [""; 0]);
    }

    #[test]
    fn ghosts_of_preambles_are_found() {
        let file = |text: &str| sample("crates/a/src/x.rs", text);
        let found = |text: &str| preambles(&[file(text)]).map(|measured| measured.size);
        assert_eq!(found("//! What is it? Who?\nfn f() {}"), Some(1));
        assert_eq!(found("//! What is it?\n// Who?\nfn f() {}"), None);
    }

    #[test]
    fn doc_comments_that_lean_are_found() {
        let found = |text: &str| leaning(&sample("crates/a/src/x.rs", text)).len();
        assert_eq!(found("/// The same of two.\nfn f() {}\n/// and a third.\nfn g() {}"), 2);
        assert_eq!(found("/// Adds one thing\n/// and another.\nfn f() {}"), 0);
    }
}
