//! Markdown as the rules read it: table rows, and paragraphs of running text without their markup.

/// A paragraph or an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    /// Its first line, from 1.
    pub(crate) line: usize,
    /// Its text on one line, with markup as written.
    pub(crate) text: String,
}

/// What stands for code between backticks: one word.
const CODE: &str = "Code";
/// Abbreviations whose point ends no sentence.
const ABBREVIATIONS: [&str; 4] = ["e.g.", "i.e.", "v.", "cf."];

/// The cells of a table's row; none if `line` is not one.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let Some(inner) = line.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The words between backticks.
pub(crate) fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The lines of a text, numbered from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// The path from the root of the repository that `link` leads to on the page at `page`.
pub(crate) fn resolved(page: &str, link: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Numbered lines without those of fenced code.
pub(crate) fn outside_code<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut code = false;
    lines.filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The running text of numbered lines: no headings, tables, code or HTML.
pub(crate) fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut open = false;
    let mut last = 0;
    for (number, line) in outside_code(lines) {
        let text = line.trim().trim_start_matches("> ");
        let apart = text.is_empty() || ["#", "|", "<"].iter().any(|start| text.starts_with(start));
        let item = item_of_list(text);
        let joined = open && item.is_none() && number == last + 1;
        last = number;
        if apart {
            open = false;
        } else if joined && let Some(paragraph) = found.last_mut() {
            paragraph.text.push(' ');
            paragraph.text.push_str(text);
        } else {
            found.push(Paragraph { line: number, text: item.unwrap_or(text).to_owned() });
            open = true;
        }
    }
    found
}

/// The text of a list's item.
fn item_of_list(text: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].iter().find_map(|bullet| text.strip_prefix(bullet));
    bullet.or_else(|| {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < text.len()).then(|| rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))).flatten()
    })
}

/// `text` without its markup: code is one word, a link is its text.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        out.push_str(if index % 2 == 0 { part } else { CODE });
    }
    let mut plain = String::new();
    let mut rest = out.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain.replace(['*', '[', ']', '_'], "")
}

/// The sentences of a plain text.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(' ') {
        let (before, after) = (&text[start..at], &text[at + 1..]);
        let ended = before.trim_end_matches([')', '"', '”']).ends_with(['.', '!', '?']);
        let abbreviated = ABBREVIATIONS.iter().any(|short| before.ends_with(short));
        let begins = after.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '(' || c == '"');
        if ended && begins && !abbreviated {
            found.push(before);
            start = at + 1;
        }
    }
    found.push(&text[start..]);
    found.retain(|sentence| words(sentence).next().is_some());
    found
}

/// The words of a plain text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == '—' || c == '/').filter(|word| word.contains(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(markdown: &str) -> Vec<(usize, String)> {
        let lines = numbered(markdown);
        paragraphs(lines).into_iter().map(|paragraph| (paragraph.line, paragraph.text)).collect()
    }

    #[test]
    fn paragraphs_are_told_from_all_else() {
        let markdown =
            "# Title\n\nOne\ntwo.\n\n- item\n  goes on\n- next\n\n| a | b |\n\n```sh\ncode\n```\n1. first\n> said\n";
        let expected = [(3, "One two."), (6, "item goes on"), (8, "next"), (15, "first said")];
        assert_eq!(texts(markdown), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn markup_is_taken_off() {
        assert_eq!(plain("**Run** [the page](a/b.md) and `tidegate serve`."), "Run the page and Code.");
    }

    #[test]
    fn sentences_and_words_are_counted() {
        let text = "One is here, e.g. This. Is it two? Yes (three.) End of 4.5 s";
        assert_eq!(sentences(text), ["One is here, e.g. This.", "Is it two?", "Yes (three.)", "End of 4.5 s"]);
        assert_eq!(words("a — b, and/or 4 %").count(), 5);
    }

    #[test]
    fn rows_have_cells() {
        assert_eq!(cells("| a | `b`, `c d` |"), ["a", "`b`, `c d`"]);
        assert_eq!(quoted("`b`, `c d`"), ["b", "c d"]);
        assert_eq!(cells("a | b"), [""; 0]);
    }
}
