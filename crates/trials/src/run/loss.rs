//! A power cut under a run that is over: another boot, and files without what only the pool had.

use crate::namespace::Namespace;
use crate::run::Testbed;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_disk_cache::{DiskCache, NoDisk, Options};
use tidegate_layout::kept::{Counting, KeptSize, STRIP_BYTES, STRIP_NAME_AT};
use tidegate_media::{BlockDevice, Lba, MappedRegion, Region};
use tidegate_preload_wire::{VOID, session_number};
use tidegate_wal::name::{Told, told};
use tidegate_wal::strip::{Record, records};
use zerocopy::FromBytes;

const BLOCK: u64 = 4096;
/// Blocks of a slot, and slots of a family, as in the pools of runs.
const FILE_BLOCKS: u64 = 1 << 24;
pub(super) const FAMILY_SLOTS: u64 = 64;
const SLOTS: u64 = 1 << 24;

/// What only a pool has.
#[derive(Default)]
pub(super) struct Only {
    /// Slots, and from where to where in their files.
    pub(super) ranges: Vec<(u64, u64, u64)>,
    /// The strips that tell of names: where they lie, their slots, and what they tell.
    pub(super) names: Vec<(usize, u64, Told)>,
}

impl Only {
    fn add(&mut self, strip_at: usize, counting: Counting, records: Vec<Record>) {
        let slot = u64::from(counting.slot);
        if records.first().is_some_and(|first| first.at == STRIP_NAME_AT) {
            self.names.push((strip_at, slot, told(records).expect("no strip is damaged")));
        } else {
            let range = |record: Record| (slot, record.at, record.at + record.bytes.len() as u64);
            self.ranges.extend(records.into_iter().map(range));
        }
    }
}

impl Testbed {
    /// As if the power had failed while the pool was what it is: what only the pool had is spoilt
    /// in the files besides, and the journal is of another boot. How many ranges those are.
    pub fn cut_the_power(&self) -> u64 {
        let names = self.names_of_families();
        let mut lost = 0;
        for (slot, from, end) in self.only_in_the_pool().ranges {
            let Some(path) = names.get(&(slot / FAMILY_SLOTS)) else { continue };
            let Ok(file) = File::options().write(true).open(path) else { continue };
            let end = end.min(file.metadata().expect("a file has a size").len());
            if from < end {
                let spoilt = vec![0xee; usize::try_from(end - from).expect("at most a block")];
                file.write_all_at(&spoilt, from).expect("the file can be written");
                lost += 1;
            }
        }
        self.change_boot();
        self.leave_files_alone();
        lost
    }

    /// As if nobody had written the files since the system came up. A trial writes them, and nobody
    /// can set back what the kernel knows of that; so the journal says that a recovery did it.
    pub fn leave_files_alone(&self) {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel tells");
        let mut journal = File::options().append(true).open(self.journal()).expect("a run was left");
        for family in self.names_of_families().keys() {
            write!(journal, "\nrecovering {} {family}\n", boot.trim()).expect("the journal can be written");
        }
    }

    /// As if the files had been changed since the power came back by a clock that was behind: the
    /// journal says that they were younger when they were held.
    pub fn set_back_the_clock(&self) {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let mut parts = journal.split("\"changed\":");
        let mut later = parts.next().expect("a beginning").to_owned();
        for part in parts {
            let (second, rest) = part.split_at(part.find(|letter: char| !letter.is_ascii_digit()).expect("JSON"));
            let second = second.parse::<u64>().expect("a second") + 1_000_000;
            later += &format!("\"changed\":{second}{rest}");
        }
        fs::write(self.journal(), later).expect("the journal can be written");
    }

    /// The journal is of another boot, and of a pool that outlives the power.
    pub fn change_boot(&self) {
        self.change_boot_of("power-fail");
    }

    /// The journal is of another boot, and of a pool in the domain with this name.
    pub fn change_boot_of(&self, domain: &str) {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let [digit, first, rest] = journal.splitn(3, '\n').collect::<Vec<_>>().try_into().expect("two first lines");
        let session = first.split(' ').nth(1).expect("a run");
        fs::write(self.journal(), format!("{digit}\nrun {session} another-boot {domain}\n{rest}"))
            .expect("the journal can be written");
    }

    /// Whether a program has brought everything to the disk and said so, as it found no supervisor
    /// any more: it may live for a while longer.
    fn is_void(&self) -> bool {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        journal.lines().any(|line| line.starts_with(VOID))
    }

    /// What only the pool has for certain.
    pub(super) fn only_in_the_pool(&self) -> Only {
        let mut only = Only::default();
        if self.is_void() {
            return only;
        }
        let copy = self.folder().join("copy of the pool");
        fs::copy(self.pool(), &copy).expect("the pool can be copied");
        let bytes = fs::read(&copy).expect("it can be read");
        let void_at = bytes.len() - usize::try_from(SLOTS / 8).expect("small");
        let is_void = |slot: u64| bytes[void_at + usize::try_from(slot / 8).expect("small")] >> (slot % 8) & 1 == 1;
        let strip_bytes = usize::try_from(STRIP_BYTES).expect("small");
        let strips_at = void_at - (bytes.len() / 8 / strip_bytes).min(256) * strip_bytes;
        let disk = Arc::new(NoDisk::new(SLOTS * FILE_BLOCKS, 4096));
        let cache = DiskCache::open(Namespace::open(&copy, (bytes.len() - strips_at) as u64), disk, Options::default());
        let cache = cache.unwrap_or_else(|error| panic!("the pool does not open: {error}"));
        fs::remove_file(&copy).expect("the copy can be removed");
        let told_of = |slot| {
            let mut block = [0; 4096];
            // What the pool does not have cannot be read: there is no disk.
            cache.read(Lba(slot), &mut block).ok()?;
            let (told, _) = KeptSize::read_from_prefix(&block).expect("it fits");
            told.is_there().then_some(told)
        };
        let places = cache.dirty_lbas().into_iter().map(|lba| (lba.0 / FILE_BLOCKS, lba.0 % FILE_BLOCKS));
        only.ranges.extend(places.filter(|(slot, _)| *slot != 0 && !is_void(*slot)).map(|(slot, block)| {
            let size = told_of(slot).map_or(u64::MAX, |told| told.size.get());
            (slot, block * BLOCK, size.min((block + 1) * BLOCK))
        }));
        let counts = |counting: Counting| {
            let absorbed = told_of(counting.slot.into()).map_or(0, |told| told.absorbed.get());
            !is_void(counting.slot.into()) && u64::from(counting.filling) > absorbed
        };
        for strip_at in (strips_at..void_at).step_by(strip_bytes) {
            let region = MappedRegion::anonymous(STRIP_BYTES).expect("memory");
            region.write(0, &bytes[strip_at..strip_at + strip_bytes]);
            let found = records(&region, self.session_number(), counts).expect("no strip is damaged");
            found.into_iter().for_each(|(counting, records)| only.add(strip_at, counting, records));
        }
        only
    }

    fn session_number(&self) -> u64 {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let session = journal.lines().nth(1).and_then(|first| first.split(' ').nth(1)).expect("a run");
        session_number(session.as_bytes())
    }

    /// Where the files and names of families are.
    pub(super) fn names_of_families(&self) -> BTreeMap<u64, PathBuf> {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let field = |line: &str, name: &str| line.split_once(name).map(|(_, rest)| rest.to_owned());
        let named = |line: &str| {
            let family = field(line, "\"family\":")?.split(',').next()?.parse().ok()?;
            let path = field(line, "\"path\":\"")?.split('"').next()?.into();
            Some((family, path))
        };
        journal.lines().filter_map(named).collect()
    }
}
