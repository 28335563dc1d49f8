//! A power cut under a run that is over: another boot, and files without what only the pool had.

use crate::namespace::Namespace;
use crate::run::Stand;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_disk_cache::{DiskCache, NoDisk, Options};
use tidegate_media::{BlockDevice, Lba};

const BLOCK: u64 = 4096;
/// Blocks of a slot, and slots of a family, as in the pools of runs.
const FILE_BLOCKS: u64 = 1 << 24;
const FAMILY_SLOTS: u64 = 64;
const SLOTS: u64 = 1 << 24;

impl Stand {
    /// As if the power had failed while the pool was what it is: the kernel's blocks that only the pool had besides are spoilt, and the journal is of another
    /// boot. How many blocks those are.
    pub fn cut_the_power(&self) -> u64 {
        let names = self.names_of_families();
        let mut lost = 0;
        for (slot, block, kept) in self.blocks_only_in_the_pool() {
            let Some(path) = names.get(&(slot / FAMILY_SLOTS)) else { continue };
            let Ok(file) = File::options().write(true).open(path) else { continue };
            let size = file.metadata().expect("a file has a size").len();
            let (from, end) = (block * BLOCK, size.min(kept).min((block + 1) * BLOCK));
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
        let (first, rest) = journal.split_once('\n').expect("a first line");
        let session = first.split(' ').nth(1).expect("a run");
        fs::write(self.journal(), format!("run {session} another-boot {domain}\n{rest}"))
            .expect("the journal can be written");
    }

    /// The slots and blocks that are dirty in the pool and not void, and the size that was kept of the file, if the pool still has it.
    fn blocks_only_in_the_pool(&self) -> Vec<(u64, u64, u64)> {
        let copy = self.folder().join("copy of the pool");
        fs::copy(self.pool(), &copy).expect("the pool can be copied");
        let bytes = fs::read(&copy).expect("it can be read");
        let void = &bytes[bytes.len() - usize::try_from(SLOTS / 8).expect("small")..];
        let is_void = |slot: u64| void[usize::try_from(slot / 8).expect("small")] >> (slot % 8) & 1 == 1;
        let disk = Arc::new(NoDisk::new(SLOTS * FILE_BLOCKS, 4096));
        let cache = DiskCache::open(Namespace::open(&copy, SLOTS / 8), disk, Options::default());
        let cache = cache.unwrap_or_else(|error| panic!("the pool does not open: {error}"));
        fs::remove_file(&copy).expect("the copy can be removed");
        let size_of = |slot| {
            let mut block = [0; 4096];
            cache.read(Lba(slot), &mut block).expect("the pool can be read");
            let size = u64::from_le_bytes(block[8..16].try_into().expect("eight bytes"));
            if block[..8] == [0; 8] { u64::MAX } else { size }
        };
        let places = cache.dirty_lbas().into_iter().map(|lba| (lba.0 / FILE_BLOCKS, lba.0 % FILE_BLOCKS));
        let counting = places.filter(|(slot, _)| *slot != 0 && !is_void(*slot));
        counting.map(|(slot, block)| (slot, block, size_of(slot))).collect()
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
