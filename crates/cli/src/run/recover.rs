//! What a run that did not end well left in its pool, brought to the files.
//!
//! While the system has not been booted anew, the kernel has everything that was ever written: the files are synced, and that is all. After a power cut, what
//! was kept is written to the files that were held. A file that is missing or another one is not touched: what was kept of it goes to a folder
//! beside the pool.

use super::held_file;
use super::journal::{self, Left, Named};
use super::kept::{
    BLOCK, BLOCK_BYTES, Cache, FAMILY_SLOTS, Files, Parts, VoidMap, block_of, size_block, size_in, slot_of,
};
use crate::failure::{Doing, Failure, RunFailure, VolumeFailure};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_media::{BlockDevice, MappedRegion};

/// What recovery did.
pub(super) struct Recovered {
    /// The pool, of which nothing is needed any more.
    pub(super) region: Arc<MappedRegion>,
    written: Vec<PathBuf>,
    salvaged: Vec<(PathBuf, PathBuf)>,
}

impl Recovered {
    /// Says what was done, if anything was.
    pub(super) fn tell(&self) {
        for path in &self.written {
            tracing::warn!("recovered what was synced to {}", path.display());
        }
        for (path, to) in &self.salvaged {
            tracing::warn!(
                "{} is missing or another file now: what was synced to it is in {}",
                path.display(),
                to.display()
            );
        }
    }
}

/// The blocks of one file that only the pool has, by the slot and number.
type Blocks = Vec<(u32, u64)>;

/// Brings everything in `pool` to its files, and removes the journal then.
pub(super) fn recover(pool: &Path, journal_at: &Path, region: MappedRegion) -> Result<Recovered, Failure> {
    let mut recovered = Recovered { region: Arc::new(region), written: Vec::new(), salvaged: Vec::new() };
    let unreadable = |error| Failure::from(VolumeFailure::of_io(journal_at, Doing::Read, error));
    let Some(left) = Left::read(journal_at).map_err(unreadable)? else { return Ok(recovered) };
    let booted = journal::this_boot().map_err(Failure::system("asking which boot this is"))?;
    if !left.is_void && left.boot == booted {
        rustix::fs::sync();
    } else if !left.is_void {
        bring(pool, &left, &mut recovered)?;
    }
    journal::remove(journal_at).map_err(unreadable)?;
    Ok(recovered)
}

fn bring(pool: &Path, left: &Left, recovered: &mut Recovered) -> Result<(), Failure> {
    if left.holds.is_empty() {
        return Ok(());
    }
    let parts = Parts::of(pool, Arc::clone(&recovered.region))?;
    let refused = |why: String| RunFailure::Pool { pool: pool.to_owned(), why };
    let (cache, void) = parts.open(Arc::new(Files::default())).map_err(|error| refused(error.to_string()))?;
    let blocks = blocks_by_family(&cache, &void);
    for named in &left.holds {
        let Some(blocks) = blocks.get(&named.family) else { continue };
        let brought = bring_file(pool, &cache, named, blocks, recovered);
        brought.map_err(|error| RunFailure::NotRecovered { file: named.path.clone(), why: error.to_string() })?;
    }
    Ok(())
}

fn blocks_by_family(cache: &Cache, void: &VoidMap) -> BTreeMap<u32, Blocks> {
    let mut families = BTreeMap::<u32, Blocks>::new();
    for lba in cache.dirty_lbas() {
        let (slot, block) = slot_of(lba);
        if slot != 0 && !void.has(slot) {
            families.entry(slot / FAMILY_SLOTS).or_default().push((slot, block));
        }
    }
    families
}

fn bring_file(pool: &Path, cache: &Cache, named: &Named, blocks: &Blocks, recovered: &mut Recovered) -> io::Result<()> {
    if held_file::is_same(named)? == Some(true) {
        let file = OpenOptions::new().write(true).open(&named.path)?;
        write_blocks(cache, &file, blocks)?;
        file.sync_all()?;
        recovered.written.push(named.path.clone());
        return Ok(());
    }
    let folder = salvage_folder(pool);
    std::fs::create_dir_all(&folder)?;
    let name = named.path.file_name().unwrap_or_default().to_string_lossy();
    let to = folder.join(format!("{}-{}-{name}", named.inode, named.family));
    let file = File::create(&to)?;
    write_blocks(cache, &file, blocks)?;
    file.sync_all()?;
    recovered.salvaged.push((named.path.clone(), to));
    Ok(())
}

fn salvage_folder(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".salvaged");
    PathBuf::from(name)
}

/// Writes what was kept into `file`, and nothing behind the size that was kept with it.
fn write_blocks(cache: &Cache, file: &File, blocks: &Blocks) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let read = |lba, block: &mut [u8]| cache.read(lba, block).map_err(|error| io::Error::other(error.to_string()));
    for (slot, number) in blocks {
        read(size_block(*slot), &mut block)?;
        let now = file.metadata()?.len();
        // The size is not in the pool any more if the disk has it.
        let size = size_in(&block).unwrap_or(now);
        if now < size {
            file.set_len(size)?;
        }
        let at = number * BLOCK_BYTES;
        let len = usize::try_from(size.saturating_sub(at).min(BLOCK_BYTES)).expect("at most a block");
        read(block_of(*slot, *number), &mut block)?;
        file.write_all_at(&block[..len], at)?;
    }
    Ok(())
}
