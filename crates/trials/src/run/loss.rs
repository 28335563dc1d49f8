//! A power cut under a run that is over: another boot, and files without what only the pool had.

use crate::namespace::Namespace;
use crate::run::Stand;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_commit::strip::records;
use tidegate_disk_cache::{DiskCache, NoDisk, Options};
use tidegate_layout::kept::{Counting, KeptSize, STRIP_BYTES};
use tidegate_media::{BlockDevice, Lba, MappedRegion, Region};
use tidegate_preload_wire::{VOID, session_number};
use zerocopy::FromBytes;

const BLOCK: u64 = 4096;
/// Blocks of a slot, and slots of a family, as in the pools of runs.
const FILE_BLOCKS: u64 = 1 << 24;
const FAMILY_SLOTS: u64 = 64;
const SLOTS: u64 = 1 << 24;

impl Stand {
    /// As if the power had failed while the pool was what it is: what only the pool had is spoilt in the files besides, and the journal is of another boot. How many
    /// ranges those are.
    pub fn cut_the_power(&self) -> u64 {
        let names = self.names_of_families();
        let mut lost = 0;
        for (slot, from, end) in self.ranges_only_in_the_pool() {
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

    /// As if nobody had written the files since the system came up. A trial writes them, and nobody can set back what the kernel knows of that; so the journal
    /// says that a recovery did it.
    pub fn leave_files_alone(&self) {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel tells");
        let mut journal = File::options().append(true).open(self.journal()).expect("a run was left");
        for family in self.names_of_families().keys() {
            write!(journal, "\nrecovering {} {family}\n", boot.trim()).expect("the journal can be written");
        }
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

    /// Whether a program has brought everything to the disk and said so, as it found no supervisor any more: it may live for a while longer.
    fn is_void(&self) -> bool {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        journal.lines().any(|line| line.starts_with(VOID))
    }

    /// What only the pool has for certain: slots, and from where to where in their files.
    fn ranges_only_in_the_pool(&self) -> Vec<(u64, u64, u64)> {
        if self.is_void() {
            return Vec::new();
        }
        let copy = self.folder().join("copy of the pool");
        fs::copy(self.pool(), &copy).expect("the pool can be copied");
        let bytes = fs::read(&copy).expect("it can be read");
        let void_at = bytes.len() - usize::try_from(SLOTS / 8).expect("small");
        let is_void = |slot: u64| bytes[void_at + usize::try_from(slot / 8).expect("small")] >> (slot % 8) & 1 == 1;
        let strip_bytes = usize::try_from(STRIP_BYTES).expect("small");
        let strips = &bytes[void_at - (bytes.len() / 16 / strip_bytes).min(256) * strip_bytes..void_at];
        let disk = Arc::new(NoDisk::new(SLOTS * FILE_BLOCKS, 4096));
        let behind = (bytes.len() - void_at + strips.len()) as u64;
        let cache = DiskCache::open(Namespace::open(&copy, behind), disk, Options::default());
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
        let counting = places.filter(|(slot, _)| *slot != 0 && !is_void(*slot));
        let mut ranges: Vec<_> = counting
            .map(|(slot, block)| {
                let size = told_of(slot).map_or(u64::MAX, |told| told.size.get());
                (slot, block * BLOCK, size.min((block + 1) * BLOCK))
            })
            .collect();
        let counts = |counting: Counting| {
            let absorbed = told_of(counting.slot.into()).map_or(0, |told| told.absorbed.get());
            !is_void(counting.slot.into()) && u64::from(counting.filling) > absorbed
        };
        for strip in strips.chunks(strip_bytes) {
            let region = MappedRegion::anonymous(STRIP_BYTES).expect("memory");
            region.write(0, strip);
            let found = records(&region, self.session_number(), counts).expect("no strip is damaged");
            for (counting, record) in
                found.into_iter().flat_map(|(counting, records)| records.into_iter().map(move |r| (counting, r)))
            {
                ranges.push((counting.slot.into(), record.at, record.at + record.bytes.len() as u64));
            }
        }
        ranges
    }

    fn session_number(&self) -> u64 {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let session = journal.lines().nth(1).and_then(|first| first.split(' ').nth(1)).expect("a run");
        session_number(session.as_bytes())
    }

    fn names_of_families(&self) -> BTreeMap<u64, PathBuf> {
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
