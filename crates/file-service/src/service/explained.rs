//! Where the bytes of a file of a mount lie, as its service tells.

use crate::service::FileService;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use tidegate_file_cache::{FileError, Tier, TierExtent, TierMap};
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_policy::placement::EXTENT_BYTES;
use tidegate_source_files::about;

/// So many ranges are shown to people, and the others counted.
const RANGES_SHOWN_MAX: usize = 16;

/// So many of the hottest extents are shown to people.
const EXTENTS_SHOWN_MAX: usize = 4;

/// Where bytes lie that programs read, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToldTier {
    /// In DRAM: written, and not synced.
    Dram,
    /// In the pool, durably, and not in SOURCE yet.
    Pool,
    /// Likewise, and a program has it mapped.
    Mapped,
    /// In the pool, and in SOURCE too.
    PoolClean,
    /// In SOURCE alone, or a hole.
    Source,
}

/// Bytes of a file that lie in one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierRange {
    /// Offset of the first one.
    pub from: u64,
    /// One past the last one.
    pub until: u64,
    /// Where they lie.
    pub tier: ToldTier,
}

/// How hot an extent of 1 MiB is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtentTemperature {
    /// Offset of its first byte.
    pub from: u64,
    /// The sum of the weights of what was done there since it has clean bytes.
    pub temperature: f64,
}

/// Where the bytes of a file lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilePlaces {
    /// Bytes in the file.
    pub size: u64,
    /// Whether the pool has a record of the file.
    pub in_pool: bool,
    /// Whether a program writes the file by itself, through shared memory.
    pub leased: bool,
    /// The glob because of which the file bypasses the pool, when it is opened next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypassed_by: Option<String>,
    /// How the file's last program reads and writes it, if the placement asks: `looping`,
    /// `cluster-hot`, `sequential`, `random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// How hot extents with clean bytes are, if the placement measures it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temperatures: Vec<ExtentTemperature>,
    /// The bytes that were asked for, each range behind the one before.
    pub ranges: Vec<TierRange>,
    /// From where on to ask for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}

impl ToldTier {
    /// Every one, the nearest first.
    pub const ALL: [ToldTier; 5] =
        [ToldTier::Dram, ToldTier::Pool, ToldTier::Mapped, ToldTier::PoolClean, ToldTier::Source];

    /// As commands write it.
    pub fn name(self) -> &'static str {
        match self {
            ToldTier::Dram => "dram",
            ToldTier::Pool => "pool",
            ToldTier::Mapped => "mapped",
            ToldTier::PoolClean => "pool-clean",
            ToldTier::Source => "source",
        }
    }

    /// Which rule put bytes there, and what moves them.
    pub fn rules(self) -> (&'static str, &'static str) {
        match self {
            ToldTier::Dram => (
                "written, and not synced",
                "a sync brings it to the pool; if there is none, it leaves DRAM after five seconds, or when DRAM is half full",
            ),
            ToldTier::Pool => (
                "synced, and not in SOURCE yet",
                "it is written back when it is about a second old, or when the pool fills",
            ),
            ToldTier::Mapped => (
                "mapped by a program, and not in SOURCE yet",
                "it stays where it is until no program has it mapped, and is written back then",
            ),
            ToldTier::PoolClean => (
                "in SOURCE too, and read from the pool",
                "its room is used for what programs sync, and for other data that the policy of the mount prefers; a change of the file in SOURCE gives it up",
            ),
            ToldTier::Source => (
                "never written through the mount, or given up by the pool; or a hole",
                "a write and its sync bring it to the pool, and so does a read, if the policy of the mount wants to keep it; of a file that the pool has not, the second read of a small range",
            ),
        }
    }

    fn of(tier: Tier) -> ToldTier {
        match tier {
            Tier::Dram => ToldTier::Dram,
            Tier::OutOfSync => ToldTier::Pool,
            Tier::Mapped => ToldTier::Mapped,
            Tier::Clean => ToldTier::PoolClean,
            Tier::Below => ToldTier::Source,
        }
    }
}

impl FilePlaces {
    fn of(map: TierMap) -> FilePlaces {
        let told =
            |TierExtent { range, tier }| TierRange { from: range.start, until: range.end, tier: ToldTier::of(tier) };
        let ranges = map.extents.into_iter().map(told).collect();
        let pattern = map.pattern.map(|pattern| pattern.to_string());
        let warm = |(from, temperature)| ExtentTemperature { from, temperature };
        let temperatures = map.temperatures.into_iter().map(warm).collect();
        FilePlaces {
            size: map.size,
            in_pool: true,
            leased: map.is_leased,
            bypassed_by: None,
            pattern,
            temperatures,
            ranges,
            next: map.next,
        }
    }

    /// Of a file of which the pool has nothing.
    fn in_source(size: u64, range: &Range<u64>) -> FilePlaces {
        let (from, until) = (range.start, range.end.min(size));
        let all = (from < until).then_some(TierRange { from, until, tier: ToldTier::Source });
        FilePlaces { ranges: Vec::from_iter(all), ..FilePlaces::empty(size) }
    }

    /// Of no bytes.
    fn empty(size: u64) -> FilePlaces {
        FilePlaces {
            size,
            in_pool: false,
            leased: false,
            bypassed_by: None,
            pattern: None,
            temperatures: Vec::new(),
            ranges: Vec::new(),
            next: None,
        }
    }

    /// What the file has to do with the pool, for people.
    pub fn state(&self) -> &'static str {
        match (self.in_pool, self.leased) {
            (_, true) => "a program writes it by itself, without requests",
            (true, false) => "the pool has a record of it",
            (false, false) => "the pool has nothing of it",
        }
    }

    /// The hottest extents, the hottest first.
    fn hottest(&self) -> Vec<ExtentTemperature> {
        let mut hot = self.temperatures.clone();
        hot.sort_by(|one, other| other.temperature.total_cmp(&one.temperature));
        hot.truncate(EXTENTS_SHOWN_MAX);
        hot
    }

    /// Adds the next answer behind this one.
    pub(crate) fn append(&mut self, more: FilePlaces) {
        for range in more.ranges {
            match self.ranges.last_mut() {
                Some(last) if last.until == range.from && last.tier == range.tier => last.until = range.until,
                _ => self.ranges.push(range),
            }
        }
        let last = self.temperatures.last().map(|last| last.from);
        self.temperatures.extend(more.temperatures.into_iter().filter(|extent| Some(extent.from) != last));
        self.next = more.next;
    }
}

/// Why a service does not tell of a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotExplained {
    #[error("SOURCE refuses it: {0}")]
    Source(#[from] Errno),
    #[error("it is no regular file")]
    NotRegular,
    #[error("{0}")]
    Pool(#[from] FileError),
}

/// Where the bytes `range` of the file lie that has this path from SOURCE on, or those of them that
/// one answer has.
pub(crate) fn explained(service: &FileService, path: &Path, range: Range<u64>) -> Result<FilePlaces, NotExplained> {
    let about = about(service.source.open_path(path)?)?;
    if FileType::from_raw_mode(about.stx_mode.into()) != FileType::RegularFile {
        return Err(NotExplained::NotRegular);
    }
    let map = service.open_files.pool.tier_map(service.source.identity(&about), range.clone())?;
    let places = map.map_or_else(|| FilePlaces::in_source(about.stx_size, &range), FilePlaces::of);
    let bypassed_by = service.open_files.bypass.of(path.as_os_str().as_bytes()).map(str::to_owned);
    Ok(FilePlaces { bypassed_by, ..places })
}

impl fmt::Display for FilePlaces {
    /// For people: sums by tier, and the first ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tier in ToldTier::ALL {
            let own = || self.ranges.iter().filter(|range| range.tier == tier);
            let (count, bytes) = (own().count(), own().map(|range| range.until - range.from).sum());
            if count > 0 {
                let (why, moved_by) = tier.rules();
                let (sum, s) = (Human(bytes), if count == 1 { "" } else { "s" });
                line(f, tier.name(), format_args!("{sum} in {count} range{s}: {why}; {moved_by}"))?;
            }
        }
        if let Some(glob) = &self.bypassed_by {
            let words = "its writes and syncs go to SOURCE, from its next opening on";
            line(f, "bypass", format_args!("the glob {glob} names the file: {words}"))?;
        }
        if let Some(pattern) = &self.pattern {
            line(f, "pattern", format_args!("its last program is {pattern}"))?;
        }
        for ExtentTemperature { from, temperature } in self.hottest() {
            line(f, "extent", format_args!("{} from {from} on: temperature {temperature:.1}", Human(EXTENT_BYTES)))?;
        }
        for TierRange { from, until, tier } in self.ranges.iter().take(RANGES_SHOWN_MAX) {
            line(f, "range", format_args!("{from}..{until} {}", tier.name()))?;
        }
        match self.ranges.len().saturating_sub(RANGES_SHOWN_MAX) {
            0 => write!(f, "ranges     {} in all", self.ranges.len()),
            more => write!(f, "ranges     {} in all, {more} of them not shown: --json shows them", self.ranges.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, until: u64, tier: ToldTier) -> TierRange {
        TierRange { from, until, tier }
    }

    #[test]
    fn parts_of_an_answer_are_one() {
        let part = |ranges: &[TierRange], next| FilePlaces {
            in_pool: true,
            ranges: ranges.to_vec(),
            next,
            ..FilePlaces::empty(100)
        };
        let mut all = part(&[range(0, 10, ToldTier::Dram), range(10, 20, ToldTier::Pool)], Some(20));
        all.append(part(&[range(20, 30, ToldTier::Pool), range(30, 100, ToldTier::Source)], None));
        let ranges = [range(0, 10, ToldTier::Dram), range(10, 30, ToldTier::Pool), range(30, 100, ToldTier::Source)];
        assert_eq!(all, part(&ranges, None));
    }

    #[test]
    fn a_file_that_the_pool_does_not_know_is_in_source() {
        assert_eq!(FilePlaces::in_source(50, &(10..u64::MAX)).ranges, [range(10, 50, ToldTier::Source)]);
        assert_eq!(FilePlaces::in_source(50, &(50..u64::MAX)).ranges, []);
    }

    #[test]
    fn people_see_sums_and_the_first_ranges() {
        let tier = |place: u64| if place.is_multiple_of(2) { ToldTier::Pool } else { ToldTier::Source };
        let ranges = (0..20).map(|place| range(place * 4096, place * 4096 + 4096, tier(place))).collect();
        let pattern = Some("looping".to_owned());
        let warm =
            |from: u64| ExtentTemperature { from: from << 20, temperature: f64::from(u8::from(from == 1)) + 0.5 };
        let temperatures = (0..2).map(warm).collect();
        let of_file =
            FilePlaces { in_pool: true, leased: true, pattern, temperatures, ranges, ..FilePlaces::empty(81_920) };
        let text = of_file.to_string();
        assert!(text.contains("pattern    its last program is looping\n"), "{text}");
        assert!(text.contains("1 MiB from 1048576 on: temperature 1.5\nextent     1 MiB from 0 on"), "{text}");
        assert!(text.contains("pool       40 KiB in 10 ranges: synced") && !text.contains("dram"), "{text}");
        assert!(text.contains("range      4096..8192 source\n"), "{text}");
        assert!(text.ends_with("ranges     20 in all, 4 of them not shown: --json shows them"), "{text}");
        let one = FilePlaces { ranges: vec![range(0, 4096, ToldTier::Pool)], ..FilePlaces::empty(4096) }.to_string();
        assert!(one.contains("pool       4 KiB in 1 range: synced"), "{one}");
    }
}
