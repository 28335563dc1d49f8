//! One term per thing: the words that `docs/glossary.md` replaces do not come back.
//!
//! The last column of its tables says what is banned: `Name` as the name of a type, `name` as the
//! name of a module, and a phrase without backticks in strings that users see, in the README and in
//! the guide. Strings of one word are keys rather than messages, and are free.

use crate::exceptions::Measured;
use crate::markdown::{cells, numbered, paragraphs, quoted};
use crate::rules::layers::Layers;
use crate::rules::names::module_name;
use crate::rules::prose::is_for_readers;
use crate::source::SourceFile;
use crate::workspace::{Text, Workspace};
use std::collections::{BTreeMap, BTreeSet};

const GLOSSARY: &str = "docs/glossary.md";
/// The head of the last column.
const REPLACES: &str = "replaces";
/// What stands in a table's cell that replaces nothing.
const NOTHING: &str = "—";
/// Most words of a bold phrase that is a term; longer ones are emphasis.
const TERM_WORDS_MAX: usize = 3;

/// A word that is banned, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Banned {
    Type(String),
    Module(String),
    Text(String),
}

/// The glossary as its tables say it.
#[derive(Debug, Default)]
struct Glossary {
    /// Terms that are explained, in lower case.
    terms: BTreeSet<String>,
    /// What is banned, with what to use instead.
    banned: BTreeMap<Banned, String>,
}

impl Glossary {
    fn parse(text: &str) -> Glossary {
        let mut glossary = Glossary::default();
        let mut in_table = false;
        for row in text.lines().map(cells) {
            let (Some(first), Some(last)) = (row.first(), row.last()) else {
                in_table = false;
                continue;
            };
            if last == REPLACES {
                in_table = true;
            } else if in_table && !first.starts_with("--") {
                glossary.terms.extend(bold(first).into_iter().map(|term| term.to_lowercase()));
                let entries = last.split(", ").filter(|entry| *entry != NOTHING);
                glossary.banned.extend(entries.map(|entry| (Banned::parse(entry), first.clone())));
            }
        }
        glossary
    }

    fn explains(&self, term: &str) -> bool {
        let term = term.to_lowercase();
        let singular = |suffix: &str, end: &str| {
            term.strip_suffix(suffix).is_some_and(|stem| self.terms.contains(&format!("{stem}{end}")))
        };
        self.terms.contains(&term) || singular("s", "") || singular("es", "") || singular("ies", "y")
    }
}

impl Banned {
    fn parse(entry: &str) -> Banned {
        match quoted(entry).pop() {
            Some(name) if name.starts_with(char::is_uppercase) => Banned::Type(name),
            Some(name) => Banned::Module(name),
            None => Banned::Text(entry.trim_matches('"').to_lowercase()),
        }
    }

    fn key(&self) -> (&'static str, &str) {
        match self {
            Banned::Type(word) => ("type", word),
            Banned::Module(word) => ("module", word),
            Banned::Text(word) => ("text", word),
        }
    }
}

/// The phrases of a text in bold.
fn bold(text: &str) -> Vec<&str> {
    text.split("**").skip(1).step_by(2).collect()
}

/// Banned words, counted by word.
pub(crate) fn words(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let glossary = Glossary::parse(workspace.text(GLOSSARY).unwrap_or_default());
    let mut found = Vec::new();
    for file in &workspace.sources {
        found.extend(names(file, &glossary));
        if layers.is_product(&file.krate) {
            found.extend(messages(file, &glossary));
        }
    }
    found.extend(
        workspace.texts.iter().filter(|text| is_for_readers(&text.path)).flat_map(|text| page(text, &glossary)),
    );
    found
}

fn measured(path: &str, line: usize, banned: &Banned, glossary: &Glossary) -> Option<Measured> {
    let instead = glossary.banned.get(banned)?;
    let (kind, word) = banned.key();
    Some(Measured {
        file: path.to_owned(),
        line,
        rule: "word",
        place: kind.to_owned(),
        item: word.to_owned(),
        size: 1,
        advice: format!("{kind} `{word}`: the glossary says {instead}"),
    })
}

/// Names of the file's module and types.
fn names(file: &SourceFile, glossary: &Glossary) -> Vec<Measured> {
    let module = (!file.path.contains("/tests/")).then(|| (Banned::Module(module_name(&file.path)), 1));
    let types = file.types.iter().map(|found| (Banned::Type(found.name.clone()), found.line));
    types.chain(module).filter_map(|(banned, line)| measured(&file.path, line, &banned, glossary)).collect()
}

/// Phrases in the file's string literals of more than one word.
fn messages(file: &SourceFile, glossary: &Glossary) -> Vec<Measured> {
    let strings = file
        .tokens
        .iter()
        .filter(|token| !file.is_test(token.line) && token.text.starts_with(['"', 'r']) && token.text.contains(' '));
    strings.flat_map(|token| phrases(&token.text, &file.path, token.line, glossary)).collect()
}

/// Phrases in a page's running text, and in its headings and tables.
fn page(text: &Text, glossary: &Glossary) -> Vec<Measured> {
    let lines = || numbered(&text.text);
    let of_paragraphs = paragraphs(lines()).into_iter().map(|paragraph| (paragraph.line, paragraph.text));
    let apart =
        lines().filter(|(_, line)| line.starts_with(['#', '|'])).map(|(number, line)| (number, line.to_owned()));
    of_paragraphs.chain(apart).flat_map(|(line, words)| phrases(&words, &text.path, line, glossary)).collect()
}

fn phrases(text: &str, path: &str, line: usize, glossary: &Glossary) -> Vec<Measured> {
    let text = text.to_lowercase();
    let banned =
        glossary.banned.keys().filter(|banned| matches!(banned, Banned::Text(phrase) if has_phrase(&text, phrase)));
    banned.filter_map(|banned| measured(path, line, banned, glossary)).collect()
}

/// Whether `text` has `phrase` between the bounds of words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(phrase)
        .any(|(at, _)| !text[..at].ends_with(part_of_word) && !text[at + phrase.len()..].starts_with(part_of_word))
}

/// Terms in bold that the glossary does not explain, in the README and the guide.
pub(crate) fn terms(workspace: &Workspace, _: &Layers) -> Vec<Measured> {
    let glossary = Glossary::parse(workspace.text(GLOSSARY).unwrap_or_default());
    let pages = workspace.texts.iter().filter(|text| is_for_readers(&text.path));
    pages.flat_map(|text| unexplained(text, &glossary)).collect()
}

fn unexplained(text: &Text, glossary: &Glossary) -> Vec<Measured> {
    let mut found = Vec::new();
    for paragraph in paragraphs(numbered(&text.text)) {
        let terms = bold(&paragraph.text).into_iter().filter(|phrase| {
            phrase.split_whitespace().count() <= TERM_WORDS_MAX
                && !phrase.ends_with(['.', ':', '!', '?', ')'])
                && !phrase.contains('`')
        });
        let unknown = terms.filter(|term| !glossary.explains(term));
        found.extend(unknown.map(|term| Measured {
            file: text.path.clone(),
            line: paragraph.line,
            rule: "unexplained-term",
            place: text.path.clone(),
            item: String::new(),
            size: 1,
            advice: format!("`{term}` is in bold and not in {GLOSSARY}: explain it there, or use its term"),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    const SAMPLE: &str = "\
| term | definition | replaces |
| --- | --- | --- |
| **write cache** | In DRAM. | transit, `transit`, `Transit` |
| **attach**, **detach** | Giving. | — |

| entry | banned as |
| --- | --- |
| `free` | nothing |

| use | replaces |
| --- | --- |
| lease | `Held`, `held` |
";

    fn glossary() -> Glossary {
        Glossary::parse(SAMPLE)
    }

    fn text(path: &str, text: &str) -> Text {
        Text { path: path.into(), text: text.into() }
    }

    #[test]
    fn the_glossary_is_read() {
        assert_eq!(glossary().banned.len(), 5);
        assert!(glossary().explains("Write caches") && glossary().explains("detach") && !glossary().explains("lease"));
    }

    #[test]
    fn banned_names_are_found() {
        let found = |path: &str, code: &str| names(&sample(path, code), &glossary()).len();
        assert_eq!(found("crates/a/src/transit.rs", "struct Transit; struct Transits;"), 2);
        assert_eq!(found("crates/a/src/x.rs", "struct Free; enum Held {}"), 1);
        assert_eq!(found("crates/a/src/held.rs", "enum Held {} struct Transit;"), 3);
    }

    #[test]
    fn banned_phrases_are_found_in_messages_and_pages() {
        let found = |code: &str| messages(&sample("crates/a/src/x.rs", code), &glossary()).len();
        assert_eq!(found("fn f() { g(\"the Transit cache\"); }"), 1);
        assert_eq!(found("fn f() { g(\"transit\"); h(\"in transition\"); }\n#[test]\nfn t() { g(\"a transit\") }"), 0);
        let found = |markdown: &str| page(&text("README.md", markdown), &glossary()).len();
        assert_eq!(found("A block in\ntransit.\n\n# The transit\n"), 2);
        assert_eq!(found("```\na transit\n```\n"), 0);
    }

    #[test]
    fn terms_without_a_row_are_found() {
        let found = |markdown: &str| unexplained(&text("README.md", markdown), &glossary()).len();
        assert_eq!(found("The **write cache** and the **floor**."), 1);
        assert_eq!(found("**Never do that.** And **this is a long emphasis**."), 0);
    }
}
