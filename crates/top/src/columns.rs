//! The columns of the table: their heads and texts, and which of them a narrow screen leaves out.

use crate::figure::Figure;
use crate::notation::{bytes, count, figure, microseconds, percent, seconds};
use crate::rows::TopRow;

/// A column of the table.
pub(crate) struct TopColumn {
    /// The first line.
    pub(crate) head: &'static str,
    /// Characters of its texts on a screen, where longer ones are cut.
    pub(crate) width: u16,
    /// Screens with too few columns leave the greatest ones out.
    rank: u8,
    /// Where its texts stand.
    pub(crate) side: TextSide,
    /// The text of a row.
    pub(crate) text: fn(&TopRow) -> String,
}

/// Where a text stands in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextSide {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// The fewest characters of a name on a screen.
pub(crate) const NAME_WIDTH: u16 = 10;

/// Every column, from left to right.
pub(crate) const COLUMNS: [TopColumn; 15] = [
    words("NAME", NAME_WIDTH, 0, |row| row.name.clone()),
    words("KIND", 10, 12, |row| row.kind.to_string()),
    words("STATE", 15, 1, state),
    numbers("REQ/S", 6, 9, |row| figure(row.rates.requests_per_second, count)),
    numbers("READS/S", 8, 6, |row| figure(row.rates.reads_per_second, count)),
    numbers("WRITES/S", 9, 5, |row| figure(row.rates.writes_per_second, count)),
    numbers("SYNCS/S", 8, 10, |row| figure(row.rates.syncs_per_second, count)),
    numbers("READ B/S", 10, 3, |row| figure(row.rates.read_bytes_per_second, bytes)),
    numbers("WRITTEN B/S", 12, 2, |row| figure(row.rates.written_bytes_per_second, bytes)),
    numbers("P50", 8, 11, |row| figure(row.rates.p50_us, microseconds)),
    numbers("P99", 8, 7, |row| figure(row.rates.p99_us, microseconds)),
    numbers("DIRTY", 10, 4, |row| figure(dirty(row), bytes)),
    numbers("BACK B/S", 10, 13, |row| figure(row.rates.written_back_bytes_per_second, bytes)),
    numbers("ETA", 6, 8, |row| figure(row.rates.eta_seconds, seconds)),
    words("HITS", 28, 14, hits),
];

const fn words(head: &'static str, width: u16, rank: u8, text: fn(&TopRow) -> String) -> TopColumn {
    TopColumn { head, width, rank, side: TextSide::Left, text }
}

const fn numbers(head: &'static str, width: u16, rank: u8, text: fn(&TopRow) -> String) -> TopColumn {
    TopColumn { head, width, rank, side: TextSide::Right, text }
}

/// The bytes that are not yet written back.
pub(crate) fn dirty(row: &TopRow) -> Figure {
    row.dirty_bytes.map_or(Figure::Absent, |bytes| Figure::Known(bytes as f64))
}

/// The state, or how old the numbers of a row are that does not answer.
fn state(row: &TopRow) -> String {
    match (&row.silent, row.age_seconds) {
        (Some(_), Some(age)) => format!("no answer {}", seconds(age)),
        (Some(_), None) => row.state.clone(),
        (None, _) if row.trouble.is_some() => "trouble".to_owned(),
        (None, _) => row.state.clone(),
    }
}

/// From which tier reads came.
fn hits(row: &TopRow) -> String {
    let all_absent = row.hits.iter().all(|hits| hits.share == Figure::Absent);
    match row.hits.first() {
        None => "–".to_owned(),
        Some(first) if all_absent => figure(first.share, percent),
        Some(first) if first.share == Figure::Awaited => figure(first.share, percent),
        Some(_) => {
            let shares = row.hits.iter().map(|hits| format!("{} {}", hits.tier, figure(hits.share, percent)));
            shares.collect::<Vec<_>>().join(" ")
        }
    }
}

/// The columns that a screen so wide has room for, from left to right, and the characters that are
/// left for the name.
pub(crate) fn fitting(width: u16) -> (Vec<&'static TopColumn>, u16) {
    let mut ranked: Vec<_> = COLUMNS.iter().enumerate().collect();
    ranked.sort_by_key(|(_, column)| column.rank);
    let mut free = width;
    let mut chosen = Vec::new();
    for (index, column) in ranked {
        let needed = column.width + u16::from(!chosen.is_empty());
        if needed > free && !chosen.is_empty() {
            break;
        }
        free = free.saturating_sub(needed);
        chosen.push((index, column));
    }
    chosen.sort_by_key(|(index, _)| *index);
    (chosen.into_iter().map(|(_, column)| column).collect(), NAME_WIDTH.min(width) + free)
}

/// The whole table as text: every column, as wide as its longest text.
pub(crate) fn table(rows: &[TopRow]) -> String {
    let mut lines = vec![String::new(); rows.len() + 1];
    for column in &COLUMNS {
        let texts = rows.iter().map(column.text);
        let texts: Vec<String> = std::iter::once(column.head.to_owned()).chain(texts).collect();
        let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        for (line, text) in lines.iter_mut().zip(texts) {
            match column.side {
                TextSide::Left => line.push_str(&format!("{text:<width$}  ")),
                TextSide::Right => line.push_str(&format!("{text:>width$}  ")),
            }
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rows::tests::{mount, volume};

    fn heads(width: u16) -> Vec<&'static str> {
        fitting(width).0.into_iter().map(|column| column.head).collect()
    }

    #[test]
    fn a_narrow_screen_has_the_columns_that_say_most() {
        assert_eq!(heads(1), ["NAME"]);
        assert_eq!(heads(40), ["NAME", "STATE", "WRITTEN B/S"]);
        let wide = ["NAME", "STATE", "WRITES/S", "READ B/S", "WRITTEN B/S", "DIRTY"];
        assert_eq!(heads(80), [&wide[..2], &["READS/S"], &wide[2..]].concat());
        assert_eq!(heads(200).len(), COLUMNS.len());
    }

    #[test]
    fn columns_never_take_more_than_the_screen_has() {
        for width in 0..250 {
            let (columns, name) = fitting(width);
            let others: u16 = columns.iter().skip(1).map(|column| column.width + 1).sum();
            assert!(others + name <= width.max(1), "{width}: {others} and {name}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_row_below_its_heads() {
        let text = table(&[volume("db", 0), mount("/srv/app", 0)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("NAME      KIND") && lines[0].ends_with("HITS"), "{text}");
        assert!(lines[1].starts_with("db        volume") && lines[2].starts_with("/srv/app  mount"), "{text}");
        assert!(lines[1].contains("  …  ") && lines[1].ends_with('–'), "a first look has no rates: {text}");
    }

    #[test]
    fn a_row_that_does_not_answer_says_how_old_its_numbers_are() {
        let silent = TopRow { silent: Some("no answer".to_owned()), age_seconds: Some(12.3), ..volume("db", 0) };
        assert_eq!(state(&silent), "no answer 12 s");
        let trouble = TopRow { trouble: Some("the disk refuses".to_owned()), ..volume("db", 0) };
        assert_eq!(state(&trouble), "trouble");
        assert_eq!(state(&volume("db", 0)), "read-write");
    }
}
