//! The text of a configuration, read again and again until all its mistakes are known.

/// Mistakes of one text that are told at once.
const MISTAKES_MAX: usize = 64;

/// Where a parser refused a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedAt {
    /// At this line, from 1.
    Line(usize),
    /// A key is missing.
    MissingKey,
    /// At no line.
    Nowhere,
}

/// Reads `text`, which is TOML, by `read`. If that refuses it, reads it again without the line that
/// was refused, so that the failures are all mistakes, in the order of their lines. A line that
/// cannot be left out, as one within a value of several lines, ends that early.
pub fn read_all<T, F>(
    text: &str,
    read: impl Fn(&str) -> Result<T, F>,
    refused_at: impl Fn(&F) -> RefusedAt,
) -> Result<T, Vec<F>> {
    let (mut left, mut found) = (text.to_owned(), Vec::new());
    loop {
        let failure = match read(&left) {
            Ok(all) if found.is_empty() => return Ok(all),
            Ok(_) => break,
            Err(failure) => failure,
        };
        let at = match refused_at(&failure) {
            RefusedAt::Line(line) => line,
            // It may be missing because its line was left out.
            RefusedAt::MissingKey if !found.is_empty() => break,
            RefusedAt::MissingKey | RefusedAt::Nowhere => 0,
        };
        found.push((at, failure));
        let next = without_entry(&left, at).filter(|next| next.parse::<toml::Table>().is_ok());
        match next.filter(|_| found.len() < MISTAKES_MAX) {
            Some(next) => left = next,
            None => break,
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Err(found.into_iter().map(|(_, failure)| failure).collect())
}

/// `text` with an empty line in the place of the line `at`, from 1; of a table's head, with all its
/// lines. `None`: there is no such line, or it is empty.
fn without_entry(text: &str, at: usize) -> Option<String> {
    let lines: Vec<_> = text.lines().collect();
    let first = at.checked_sub(1)?;
    let is_head = |line: &str| line.trim_start().starts_with('[');
    let refused = lines.get(first).filter(|line| !line.trim().is_empty())?;
    let end_of_table = lines[at..].iter().position(|line| is_head(line)).map_or(lines.len(), |more| at + more);
    let left_out = first..if is_head(refused) { end_of_table } else { at };
    let line = |(nth, line): (usize, &&str)| {
        if left_out.contains(&nth) { "\n".to_owned() } else { format!("{line}\n") }
    };
    Some(lines.iter().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parser that takes the key `good` with a number, and misses it in tables without any.
    fn read(text: &str) -> Result<toml::Table, (RefusedAt, String)> {
        let table: toml::Table = text.parse().map_err(|_| (RefusedAt::Line(1), "no TOML".to_owned()))?;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if !line.starts_with("good = ") && line != "[good]" {
                return Err((RefusedAt::Line(at + 1), line.to_owned()));
            }
        }
        if text.contains("[good]\n\n") { Err((RefusedAt::MissingKey, "good".to_owned())) } else { Ok(table) }
    }

    fn lines(text: &str) -> Vec<RefusedAt> {
        let refused = read_all(text, read, |(at, _)| *at).expect_err("a bad text");
        refused.into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn all_mistakes_are_found_and_none_that_follows_from_another() {
        assert!(read_all("good = 1\n", read, |(at, _)| *at).is_ok());
        assert_eq!(lines("bad = 1\ngood = 1\nbad_too = 2\n"), [1, 3].map(RefusedAt::Line));
        assert_eq!(lines("[bad]\na = 1\nb = 1\n\n[good]\ngood = 1\nc = 2\n"), [1, 7].map(RefusedAt::Line));
        assert_eq!(lines("[good]\n\n"), [RefusedAt::MissingKey]);
        assert_eq!(lines("[good]\nbad = 1\n"), [RefusedAt::Line(2)], "the key is missing without that line");
    }

    #[test]
    fn the_end_comes_early_where_no_line_can_be_left_out() {
        assert_eq!(lines("= 1\n= 2\nbad = 1\n"), [RefusedAt::Line(1)]);
        assert_eq!(lines("good = [\n1,\n2]\nbad = 1\n"), [2, 3].map(RefusedAt::Line));
        let many: String = (0..1000).map(|nth| format!("bad{nth} = 1\n")).collect();
        assert_eq!(lines(&many).len(), MISTAKES_MAX);
        let nowhere = read_all("a = 1", |_| Err::<(), _>("no"), |_| RefusedAt::Nowhere);
        assert_eq!(nowhere, Err(vec!["no"]));
    }
}
