//! The order of the lines: by which column, and which way.

use crate::columns::dirty;
use crate::figure::Figure;
use crate::rows::TopRow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// What lines are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// The name of the volume or mount.
    #[default]
    Name,
    /// Its kind.
    Kind,
    /// Its state: those that do not answer or have trouble first.
    State,
    /// Requests in a second.
    Requests,
    /// Reads in a second.
    Reads,
    /// Writes in a second.
    Writes,
    /// Flushes and syncs in a second.
    Syncs,
    /// Bytes read in a second.
    ReadBytes,
    /// Bytes written in a second.
    WrittenBytes,
    /// The time that half of the requests did not exceed.
    P50,
    /// The time that 99 of 100 requests did not exceed.
    P99,
    /// Bytes that are not yet written back.
    Dirty,
    /// Bytes written back in a second.
    WriteBack,
    /// The time until everything is written back.
    Eta,
}

/// A word that names no column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no column is called {word:?}")]
pub struct UnknownKey {
    /// The word.
    pub word: String,
}

impl SortKey {
    /// All of them, as `s` goes through them.
    pub const ALL: [SortKey; 14] = [
        SortKey::Name,
        SortKey::Kind,
        SortKey::State,
        SortKey::Requests,
        SortKey::Reads,
        SortKey::Writes,
        SortKey::Syncs,
        SortKey::ReadBytes,
        SortKey::WrittenBytes,
        SortKey::P50,
        SortKey::P99,
        SortKey::Dirty,
        SortKey::WriteBack,
        SortKey::Eta,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Kind => "kind",
            SortKey::State => "state",
            SortKey::Requests => "requests",
            SortKey::Reads => "reads",
            SortKey::Writes => "writes",
            SortKey::Syncs => "syncs",
            SortKey::ReadBytes => "read-bytes",
            SortKey::WrittenBytes => "written-bytes",
            SortKey::P50 => "p50",
            SortKey::P99 => "p99",
            SortKey::Dirty => "dirty",
            SortKey::WriteBack => "write-back",
            SortKey::Eta => "eta",
        }
    }

    /// The next one; after the last, the first.
    pub(crate) fn next(self) -> SortKey {
        let at = SortKey::ALL.iter().position(|key| *key == self).map_or(0, |at| at + 1);
        SortKey::ALL[at % SortKey::ALL.len()]
    }

    /// The number that lines are sorted by; None: they are sorted by words.
    fn number(self, row: &TopRow) -> Option<Figure> {
        let rates = &row.rates;
        Some(match self {
            SortKey::Name | SortKey::Kind | SortKey::State => return None,
            SortKey::Requests => rates.requests_per_second,
            SortKey::Reads => rates.reads_per_second,
            SortKey::Writes => rates.writes_per_second,
            SortKey::Syncs => rates.syncs_per_second,
            SortKey::ReadBytes => rates.read_bytes_per_second,
            SortKey::WrittenBytes => rates.written_bytes_per_second,
            SortKey::P50 => rates.p50_us,
            SortKey::P99 => rates.p99_us,
            SortKey::Dirty => dirty(row),
            SortKey::WriteBack => rates.written_back_bytes_per_second,
            SortKey::Eta => rates.eta_seconds,
        })
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for SortKey {
    type Err = UnknownKey;

    fn from_str(word: &str) -> Result<SortKey, UnknownKey> {
        let known = SortKey::ALL.into_iter().find(|key| key.word() == word);
        known.ok_or_else(|| UnknownKey { word: word.to_owned() })
    }
}

/// The order of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SortOrder {
    /// By which column.
    pub(crate) key: SortKey,
    /// Whether the last line is the first.
    pub(crate) is_reversed: bool,
}

impl SortOrder {
    /// Sorts lines: numbers from the greatest on, words from A on; lines without the number come
    /// last, whichever way the others go. Lines that are equal are sorted by their names.
    pub(crate) fn sort(self, rows: &mut [TopRow]) {
        rows.sort_by(|one, other| {
            self.compare(one, other).then_with(|| (&one.name, &one.file).cmp(&(&other.name, &other.file)))
        });
    }

    fn compare(self, one: &TopRow, other: &TopRow) -> Ordering {
        let numbers = self.key.number(one).zip(self.key.number(other));
        let Some((one_has, other_has)) = numbers else { return self.way(self.by_words(one, other)) };
        match (one_has.known(), other_has.known()) {
            (Some(one), Some(other)) => self.way(other.total_cmp(&one)),
            (one, other) => other.is_some().cmp(&one.is_some()),
        }
    }

    fn by_words(self, one: &TopRow, other: &TopRow) -> Ordering {
        let is_well = |row: &TopRow| row.silent.is_none() && row.trouble.is_none();
        match self.key {
            SortKey::Kind => one.kind.cmp(&other.kind),
            SortKey::State => (is_well(one), &one.state).cmp(&(is_well(other), &other.state)),
            _ => one.name.cmp(&other.name),
        }
    }

    fn way(self, order: Ordering) -> Ordering {
        if self.is_reversed { order.reverse() } else { order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Rates;
    use crate::rows::tests::{mount, volume};

    fn names(order: SortOrder, mut rows: Vec<TopRow>) -> String {
        order.sort(&mut rows);
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>().join(" ")
    }

    fn reading(name: &str, reads: Figure) -> TopRow {
        TopRow { rates: Rates { reads_per_second: reads, ..Rates::default() }, ..volume(name, 0) }
    }

    #[test]
    fn every_key_has_a_word_and_s_goes_through_all() {
        let mut key = SortKey::default();
        for expected in SortKey::ALL {
            assert_eq!((key, key.word().parse()), (expected, Ok(expected)));
            key = key.next();
        }
        assert_eq!(key, SortKey::default());
        assert_eq!("rss".parse::<SortKey>().expect_err("no column").to_string(), "no column is called \"rss\"");
    }

    #[test]
    fn numbers_come_from_the_greatest_on_and_rows_without_one_last() {
        let rows =
            [("a", Figure::Absent), ("b", Figure::Known(2.0)), ("c", Figure::Known(9.0)), ("d", Figure::Awaited)];
        let rows: Vec<_> = rows.into_iter().map(|(name, reads)| reading(name, reads)).collect();
        let order = SortOrder { key: SortKey::Reads, is_reversed: false };
        assert_eq!(names(order, rows.clone()), "c b a d");
        assert_eq!(names(SortOrder { is_reversed: true, ..order }, rows), "b c a d");
    }

    #[test]
    fn words_come_from_a_on_and_trouble_comes_first() {
        let silent = TopRow { silent: Some("no answer".to_owned()), ..volume("z", 0) };
        let rows = vec![silent, mount("a", 0), volume("m", 0)];
        let by = |key, is_reversed| names(SortOrder { key, is_reversed }, rows.clone());
        assert_eq!(by(SortKey::Name, false), "a m z");
        assert_eq!(by(SortKey::Name, true), "z m a");
        assert_eq!(by(SortKey::State, false), "z a m");
        assert_eq!(by(SortKey::Kind, false), "m z a");
    }

    #[test]
    fn every_number_has_an_order_of_its_own() {
        for key in SortKey::ALL {
            let order = SortOrder { key, is_reversed: false };
            let rows = vec![mount("b", 5 << 20), mount("a", 1 << 20)];
            assert_eq!(names(order, rows), if key == SortKey::Dirty { "b a" } else { "a b" }, "{key}");
        }
    }
}
