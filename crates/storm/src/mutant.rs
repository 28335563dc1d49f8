//! Sites and what may be broken at them: each flush, fence and store of an engine is known by its
//! place in the source.

use crate::stack_base::Base;
use std::fmt;
use std::panic::Location;
use tidegate_crashcheck::btt::Bug;
use tidegate_crashcheck::disk_cache::GroupPart;
use tidegate_virtual_cores::{Flaw, FlawKind};

/// What stands at a place in an engine's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteKind {
    /// A fence.
    Fence,
    /// A flush.
    Flush,
    /// A store of any kind.
    Store,
    /// Where threads give way or wait for a lock.
    Wait,
    /// A lock that is held while something is done.
    Lock,
    /// A load of what the same operation has loaded before.
    Recheck,
    /// An indivisible change of an atomic.
    Change,
}

impl From<FlawKind> for SiteKind {
    fn from(kind: FlawKind) -> SiteKind {
        match kind {
            FlawKind::Lock => SiteKind::Lock,
            FlawKind::Recheck => SiteKind::Recheck,
            FlawKind::Change => SiteKind::Change,
        }
    }
}

/// A place in an engine's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeSite {
    /// What stands there.
    pub kind: SiteKind,
    /// The file, from the workspace's root.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl CodeSite {
    pub(crate) fn at(kind: SiteKind, place: &'static Location<'static>) -> CodeSite {
        CodeSite { kind, file: place.file(), line: place.line() }
    }

    /// The line of code, as far as the source is there.
    pub fn text(&self) -> String {
        let [line, ..] = self.lines();
        line
    }

    /// That line, and the two before it.
    pub(crate) fn lines(&self) -> [String; 3] {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let source = std::fs::read_to_string(format!("{root}/{}", self.file)).unwrap_or_default();
        let lines: Vec<&str> = source.lines().take(self.line as usize).collect();
        [0, 1, 2].map(|back| lines.iter().nth_back(back).map_or("", |line| line.trim()).to_owned())
    }
}

impl fmt::Display for CodeSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}:{}", self.kind, self.file, self.line)
    }
}

/// A mistake planted in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// The flush or fence at this site does nothing.
    Ignored(CodeSite),
    /// The store at this site comes after the next flush or store of its thread.
    Late(CodeSite),
    /// The volume's memory betrays the engine.
    Planted(Bug),
    /// Something between client and cache gets lost.
    Mislaid(Mislaid),
    /// A lock, a second look or an indivisible change is left out.
    Flawed(Flaw),
    /// None, and places where one could be are counted.
    Survey,
}

impl Mutant {
    /// What a script that is to show it stands on, if not all are as good.
    pub(crate) fn base(&self) -> Option<Base> {
        match self {
            Mutant::Ignored(site) | Mutant::Late(site) if site.file.contains("btt/") => Some(Base::Table),
            Mutant::Flawed(flaw) if flaw.file.contains("btt/") => Some(Base::Table),
            Mutant::Planted(_) => Some(Base::Table),
            Mutant::Ignored(site) | Mutant::Late(site) if is_of_files(site.file) => Some(Base::Files),
            Mutant::Flawed(flaw) if is_of_files(flaw.file) => Some(Base::Files),
            Mutant::Mislaid(Mislaid::FileSyncs) => Some(Base::Files),
            Mutant::Flawed(flaw) if is_of_order(flaw.file) => Some(Base::OrderedDisk),
            Mutant::Mislaid(Mislaid::GroupFlush(_)) => Some(Base::OrderedDisk),
            Mutant::Ignored(site) | Mutant::Late(site) if is_of_disk_cache(site.file) => Some(Base::DiskCache),
            Mutant::Flawed(flaw) if is_of_disk_cache(flaw.file) => Some(Base::DiskCache),
            Mutant::Mislaid(Mislaid::DiskFlushes) => Some(Base::Disk),
            Mutant::Mislaid(Mislaid::Together) => Some(Base::DiskCache),
            _ => None,
        }
    }
}

/// Whether only a disk cache uses what this file has.
fn is_of_disk_cache(file: &str) -> bool {
    file.contains("crates/disk-cache/") || file.contains("crates/wal/")
}

/// Whether only files have use for what this file has.
fn is_of_files(file: &str) -> bool {
    file.contains("crates/file-cache/")
}

/// Whether only an ordered disk has use for what this file has.
fn is_of_order(file: &str) -> bool {
    file.contains("disk-cache/src/destage/ordered.rs") || file.contains("disk-cache/src/destage/disk_journal.rs")
}

/// What gets lost between client and cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mislaid {
    /// Flushes are answered and not made.
    Flushes,
    /// Forced writes go through the cache as others do.
    Force,
    /// The slots of a killed process are not completed.
    Slots,
    /// Writes of several blocks are made one by one.
    Together,
    /// Flushes of the disk below are answered and not made.
    DiskFlushes,
    /// Syncs of a file below a pool are answered and not made.
    FileSyncs,
    /// Of an ordered disk, the flush that follows this part of putting a group in place.
    GroupFlush(GroupPart),
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutant::None | Mutant::Survey => write!(f, "nothing broken"),
            Mutant::Ignored(site) => write!(f, "left out: {site}: {}", site.text()),
            Mutant::Late(site) => write!(f, "late: {site}: {}", site.text()),
            Mutant::Planted(bug) => write!(f, "planted: {bug:?}"),
            Mutant::Flawed(Flaw { kind, file, line }) => {
                let site = CodeSite { kind: SiteKind::from(*kind), file, line: *line };
                write!(f, "left out: {site}: {}", site.text())
            }
            Mutant::Mislaid(what) => write!(f, "mislaid: {what:?}"),
        }
    }
}
