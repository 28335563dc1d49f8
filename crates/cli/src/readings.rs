//! Numbers that the layers of a volume keep about their work, each with its name, unit and meaning, so that whoever shows them
//! needs to know none of them.

use serde::{Deserialize, Serialize};
use tidegate_btt::Btt;
use tidegate_media::{Counters, MappedRegion, Region};

/// One number.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Reading {
    /// Which layer and what, in words joined by underscores: `region_fences`.
    pub(crate) name: String,
    /// What it counts.
    pub(crate) help: String,
    /// Whether it only grows.
    pub(crate) kind: ReadingKind,
    /// What one of it is.
    pub(crate) unit: Unit,
    /// Which of several such numbers it is, if there are several: a word, and what it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<(String, String)>,
    /// The number.
    pub(crate) value: u64,
}

/// How a number behaves.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadingKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Time, in nanoseconds.
    Nanoseconds,
}

impl Reading {
    /// A number of things that only grows.
    pub(crate) fn counter(name: &str, help: &str, unit: Unit, value: u64) -> Reading {
        Reading { name: name.to_owned(), help: help.to_owned(), kind: ReadingKind::Counter, unit, label: None, value }
    }

    /// A number of things there are now.
    pub(crate) fn gauge(name: &str, help: &str, unit: Unit, value: u64) -> Reading {
        Reading { kind: ReadingKind::Gauge, ..Reading::counter(name, help, unit, value) }
    }

    /// What came since `before`, if it only grows; else how it is now.
    pub(crate) fn since(&self, before: &Reading) -> Reading {
        match self.kind {
            ReadingKind::Counter => Reading { value: self.value.saturating_sub(before.value), ..self.clone() },
            ReadingKind::Gauge => self.clone(),
        }
    }

    /// The one of several such numbers that is about the `label` called `of`.
    pub(crate) fn labelled(self, label: &str, of: &str) -> Reading {
        Reading { label: Some((label.to_owned(), of.to_owned())), ..self }
    }

    /// The number, if it only grows.
    pub(crate) fn counted(&self) -> Option<u64> {
        (self.kind == ReadingKind::Counter).then_some(self.value)
    }
}

/// A layer of a volume that keeps numbers.
pub(crate) trait Watched: Send + Sync {
    /// All its numbers, always the same ones in the same order.
    fn readings(&self) -> Vec<Reading>;
}

impl<R: Region> Watched for Btt<R> {
    fn readings(&self) -> Vec<Reading> {
        vec![Reading::counter("table_moved_blocks", "Blocks moved to level wear", Unit::Count, self.moved())]
    }
}

impl Watched for MappedRegion {
    fn readings(&self) -> Vec<Reading> {
        let Counters { bytes_stored, lines_flushed, lines_256_touched, fences } = self.counters();
        let counter = |name, help, unit, value| Reading::counter(name, help, unit, value);
        vec![
            counter("region_stored", "Bytes stored to the region", Unit::Bytes, bytes_stored),
            counter("region_flushed_lines", "Lines of 64 bytes flushed or streamed", Unit::Count, lines_flushed),
            counter("region_touched_256_byte_lines", "Lines of 256 bytes of those", Unit::Count, lines_256_touched),
            counter("region_fences", "Fences", Unit::Count, fences),
        ]
    }
}
