//! Pages of the book as plain text for a terminal: headings in capitals, tables in columns, code
//! indented, no marks.

/// Most characters of a line.
const WIDTH: usize = 96;

/// `page`, which is Markdown, as plain text.
pub fn plain(page: &str) -> String {
    let mut text = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .for_each(|line| push(&mut text, &format!("  {line}")));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            rows.retain(|row| !row.iter().all(|cell| cell.chars().all(|mark| matches!(mark, '-' | ':'))));
            push(&mut text, &table(&rows));
        } else if let Some(heading) = line.strip_prefix('#') {
            push(&mut text, &unmarked(heading.trim_start_matches('#').trim()).to_uppercase());
        } else if line.starts_with("<!--") {
            lines.next_if(|line| line.is_empty());
        } else {
            push(&mut text, &unmarked(line));
        }
    }
    text
}

fn push(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// `line` without marks of emphasis and code, and with links as their words.
fn unmarked(line: &str) -> String {
    let mut words = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, after)) = link.split_once("](") else { break };
        words += before;
        words += name;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    words += rest;
    words.replace("**", "").replace('`', "")
}

fn cells(row: &str) -> Vec<String> {
    row.trim().trim_matches('|').split(" | ").map(|cell| unmarked(cell.trim())).collect()
}

/// Rows in columns. What does not fit in the widest columns goes on in more lines.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or_default()).collect();
    while widths.iter().map(|width| width + 2).sum::<usize>() > WIDTH {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 8) else { break };
        *widest -= 1;
    }
    let mut text = String::new();
    for row in rows {
        let wrapped: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width)).collect();
        for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or_default() {
            let cell = |(lines, width): (&Vec<String>, &usize)| {
                format!("  {:<width$}", lines.get(line).map_or("", String::as_str))
            };
            push(&mut text, &wrapped.iter().zip(&widths).map(cell).collect::<String>());
        }
    }
    text.pop();
    text
}

/// `text` in lines of at most `width` characters, cut between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_and_tables_get_columns() {
        let page = "# A page\n\nSee **this** and `that` [there](x.md).\n\n| a | b |\n| --- | --- |\n| one | `two` |\n\n```sh\nls # x\n```\n";
        let expected = "A PAGE\n\nSee this and that there.\n\n  a    b\n  one  two\n\n  ls # x\n";
        assert_eq!(plain(page), expected);
    }

    #[test]
    fn a_long_cell_goes_on_below_itself() {
        let long = "word ".repeat(30);
        let text = plain(&format!("| 1 | {long} |\n"));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("     word")), "{text}");
    }
}
