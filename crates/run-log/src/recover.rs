//! What a run that did not end well left in its pool, brought to the files.
//!
//! While the system has not been booted anew, the kernel has everything that was ever written: the
//! files are synced, each by itself so that a disk's failure is told, and that is all. After a
//! power cut, what was kept is written to the files that were held. A file that is missing, another
//! one, or written since the power came back is not touched, nor is one whose disk failed, in
//! whatever boot: what was kept of it goes to a folder beside the pool. So does everything from a
//! pool that is no persistent memory: of its pages the power cut left those that the kernel
//! happened to write back, and the files may be newer.
//!
//! When a file was written is told by the clock. If that was behind when the system came up, and
//! was put right since, a file that was written meanwhile seems to be from before. It is found out
//! if the file seems to be even older than when its hold began: then it is *doubtful*, and what was
//! kept of it goes to the folder beside the pool, not over it.
//!
//! A name and a file that is at it may be held at once, and what was kept of both may count. While
//! a strip tells what the name leads to, and the name was not given up since, the name wins, and
//! what was kept of the file goes aside. For the strip tells of files that were made where there
//! was none. So by then the file that was held there had lost that name, and not by being renamed,
//! or while it had another one: either would have ended its hold first. What was synced to it is of
//! a file that its program has removed, though the supervisor had not let go of it yet. While the
//! strip tells nothing, the file wins: it may well be what the name leads to.
//!
//! The journal goes last. Until then everything can be done again, as often as the power fails, or
//! a disk, or somebody kills the recovery. Meanwhile others may use what was brought, and what they
//! make of it is newer than the pool. So the journal says of each file and name, when it is durable
//! and before the next one is touched, that it was brought, and what became of it; who does it
//! again passes over it, whatever lies there by then, and tells what became of it as if he had
//! brought it himself.
//!
//! - *Cut before the line*: the file is brought once more. It is either as the last recovery left
//!   it, in part or whole, or somebody has used it before it was told that it is there.
//! - *Cut in the line*: what is there of it is no line, and it is as if it had been cut before.
//! - *Cut behind the line*: nothing of the file is written again. The pool still has it, and nobody
//!   asks for it.
//! - *A file system that is not mounted*: what was kept of its files stays in the pool, and the
//!   journal with it. What is found under their names is on another file system, and says nothing.
//!   Recovery is done again when that one is mounted, and passes over what it had brought by then.
//! - *In the boot of the run*, where all files that have not failed have everything by then, the
//!   journal says that before the failed ones are brought: what was kept of the others is older
//!   than what programs make of them from then on.

use super::beside::Beside;
use super::file_system::FileSystem;
use super::folder;
use super::ground::{Brought, Found, Ground, Target, Unlike};
use super::held_file::{self, IfUnmounted, System, booted_seconds};
use super::journal::{self, Journal, Kind, Left, Named};
use super::kept::{BLOCK, BLOCK_BYTES, FAMILY_SLOTS, Files, Opened, Parts, block_of, size_block, size_in, slot_of};
use super::version;
use crate::failure::{Failure, RunFailure};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_disk_cache::OpenError;
use tidegate_host::Doing;
use tidegate_host::owned;
use tidegate_layout::kept::Counting;
use tidegate_media::{BlockDevice, Domain, MappedRegion, Region};
use tidegate_preload_wire::session_number;
use tidegate_wal::name::{Told, told};
use tidegate_wal::strip::Record;

/// What recovery did.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Whether a run was left that did not end well.
    pub was_left: bool,
    /// Files that were written.
    pub written: Vec<PathBuf>,
    /// What was put aside.
    pub salvaged: Vec<Salvaged>,
    /// Whether the pool has nothing that can be read: the power failed, and it is no persistent
    /// memory.
    pub is_lost: bool,
    /// Files that a program had removed and the power cut had not: where they were, and where their
    /// bytes are.
    pub removed: Vec<(PathBuf, PathBuf)>,
    /// What lies where a program had removed files, and was left alone.
    pub left: Vec<LeftAlone>,
    /// What stays in the pool until its file system is mounted.
    pub unmounted: Vec<Unmounted>,
}

/// A file whose file system is not mounted where it was.
#[derive(Debug)]
pub struct Unmounted {
    /// The file.
    pub file: PathBuf,
    /// Where it lies.
    pub file_system: FileSystem,
}

/// What lies where a program had removed the last file.
#[derive(Debug)]
pub struct LeftAlone {
    /// Where.
    pub file: PathBuf,
    /// Why it was not removed.
    pub unlike: Unlike,
}

/// What is said of such a file.
pub const LEFT_ALONE: &str = "it was left alone, though the file that a program had there was removed";

/// What was synced to a file that was not written.
#[derive(Debug)]
pub struct Salvaged {
    /// The file.
    pub file: PathBuf,
    /// Why it was not written.
    pub unlike: Unlike,
    /// Where its data is instead.
    pub to: PathBuf,
}

impl Recovered {
    /// Adds what became of what was kept of the file at `path`, if anything was.
    fn add(&mut self, path: &Path, brought: Option<Brought>) {
        let file = path.to_owned();
        match brought {
            None | Some(Brought::Gone) => {}
            Some(Brought::Written) => self.written.push(file),
            Some(Brought::Aside { unlike, to }) => self.salvaged.push(Salvaged { file, unlike, to }),
            Some(Brought::Removed(to)) => self.removed.push((file, to)),
            Some(Brought::Left(unlike)) => self.left.push(LeftAlone { file, unlike }),
        }
    }

    /// Whether a file in the folder of `named` was put aside, as others use it since the power came
    /// back.
    fn has_changed_beside(&self, named: &Named) -> bool {
        let beside = |salvaged: &Salvaged| salvaged.file.parent() == named.path.parent();
        let changed = |unlike| matches!(unlike, Unlike::Changed | Unlike::ClockBehind);
        self.salvaged.iter().any(|salvaged| changed(salvaged.unlike) && beside(salvaged))
    }

    /// A file, or a name, of which nobody knows whether it was changed since the power came back.
    pub fn doubtful(&self) -> Option<&Path> {
        let aside = self.salvaged.iter().map(|salvaged| (&salvaged.file, salvaged.unlike));
        let left = self.left.iter().map(|left| (&left.file, left.unlike));
        aside.chain(left).find(|(_, unlike)| *unlike == Unlike::ClockBehind).map(|(file, _)| file.as_path())
    }

    /// Refuses to go on with the `pool` while it has anything that files lack.
    pub(super) fn refuse_unmounted(&self, pool: &Path) -> Result<(), RunFailure> {
        let Some(Unmounted { file_system, .. }) = self.unmounted.first() else { return Ok(()) };
        let (pool, files) = (pool.to_owned(), self.unmounted.len());
        Err(RunFailure::Unmounted { pool, files, file_system: file_system.to_string() })
    }

    /// Says what was done, if anything was.
    pub(super) fn tell(&self) {
        for Unmounted { file, file_system } in &self.unmounted {
            tracing::warn!("what was synced to {} stays in the pool: {file_system} is not there", file.display());
        }
        for path in &self.written {
            tracing::warn!("recovered what was synced to {}", path.display());
        }
        for (path, to) in &self.removed {
            tracing::warn!("{} had been removed: what the power cut left of it is in {}", path.display(), to.display());
        }
        for LeftAlone { file, unlike } in &self.left {
            tracing::warn!("{} {}: {LEFT_ALONE}", file.display(), unlike.told());
        }
        for Salvaged { file, unlike, to } in &self.salvaged {
            tracing::warn!("{} {}: what was synced to it is in {}", file.display(), unlike.told(), to.display());
        }
    }
}

/// Brings everything in the pool on `region` to its files, or else to the folder `salvage`, and
/// removes the journal then. Nothing is needed of the pool any more, and it says so itself. What
/// stays in the pool, as its file system is not mounted, keeps the journal there too.
pub(super) fn recover(
    beside: &Beside,
    region: &Arc<MappedRegion>,
    salvage: PathBuf,
    if_unmounted: IfUnmounted,
) -> Result<Recovered, Failure> {
    let (pool, journal_at) = (beside.pool(), beside.journal());
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => {
            let why = format!("its journal {}: {error}", journal_at.display());
            RunFailure::Pool { pool: pool.to_owned(), why }.into()
        }
        _ => RunFailure::of_file(&journal_at, Doing::Read, error),
    };
    let Some(mut left) = Left::read(&journal_at).map_err(unreadable)? else {
        refuse_orphans(pool, &journal_at, region)?;
        return Ok(Recovered::default());
    };
    let salvage = held_file::own_salvage(&salvage)?;
    let boot = journal::this_boot().map_err(Failure::system("asking which boot this is"))?;
    if left.boot == boot {
        // Before the sync: what a program of that run commits and takes for durable was written
        // before.
        journal::shut_strips(&journal_at).map_err(unreadable)?;
        rustix::fs::sync();
    }
    let booted = booted_seconds().map_err(Failure::system("asking when the system came up"))?;
    let ground = System { salvage, session: left.session.clone(), booted, if_unmounted };
    let mut journal = Journal::of(journal::log_at(&journal_at).map_err(unreadable)?, &left.session);
    sync_each(&mut left, &boot, &ground, &mut journal).map_err(unreadable)?;
    let mut recovery = Recovery { left: &left, boot, journal, ground: &ground };
    let recovered = if recovery.has_work() {
        let parts = parts_on(region, pool)?;
        match parts.damage().filter(|_| !left.outlives_power) {
            Some(why) => {
                tell_lost(pool, &left, &why);
                Recovered { is_lost: true, ..Recovered::default() }
            }
            None => recovery.bring(parts, |why| RunFailure::Pool { pool: pool.to_owned(), why })?,
        }
    } else {
        Recovered::default()
    };
    if !recovered.unmounted.is_empty() {
        return Ok(Recovered { was_left: true, ..recovered });
    }
    let parts = if version::is_pool(region) { Some(parts_on(region, pool)?) } else { None };
    let folder = journal::folder_in(&journal_at, &[owned::own()]).map_err(unreadable)?;
    recovery.end(parts).map_err(unreadable)?;
    folder.iter().for_each(|(folder, _)| folder::remove_left(folder));
    Ok(Recovered { was_left: true, ..recovered })
}

/// The parts of the pool at `path` as they were laid out.
fn parts_on(region: &Arc<MappedRegion>, path: &Path) -> Result<Parts<MappedRegion>, Failure> {
    Parts::of(path, Arc::clone(region), version::version_on(region).unwrap_or(version::NEW))
}

/// In the boot of the run, brings every file to its disk. One that cannot be brought there has
/// failed: the kernel may not have it any more. The others have everything.
pub(super) fn sync_each(left: &mut Left, boot: &str, ground: &dyn Ground, journal: &mut Journal) -> io::Result<()> {
    if left.is_void || left.boot != boot {
        return Ok(());
    }
    let files: BTreeMap<_, _> = left.holds.iter().map(|named| (&named.path, named)).collect();
    for named in files.into_values() {
        if ground.sync(named).is_ok() {
            continue;
        }
        // At once, as the kernel says so once. All holds of it: those that ended well have nothing
        // in the pool.
        for named in left.holds.iter().filter(|other| other.path == named.path) {
            journal.add_failed(named.family)?;
            left.failed.insert(named.family);
        }
    }
    // Without any nothing is brought, and the pool is made void at once.
    if !left.failed.is_empty() {
        journal.make_void()?;
        left.is_void = true;
    }
    Ok(())
}

/// Refuses a pool with something that only it may have, while nobody knows of which files. In a
/// pool that is no persistent memory there may be anything.
fn refuse_orphans(pool: &Path, journal: &Path, region: &Arc<MappedRegion>) -> Result<(), Failure> {
    if !matches!(region.domain(), Domain::PowerFail { .. }) || !version::is_pool(region) {
        return Ok(());
    }
    let opened = has_something(parts_on(region, pool)?);
    if opened.map_err(|error| RunFailure::Pool { pool: pool.to_owned(), why: error.to_string() })? {
        return Err(RunFailure::NoJournal { pool: pool.to_owned(), journal: journal.to_owned() }.into());
    }
    Ok(())
}

/// Whether the pool has blocks or records that count.
pub(super) fn has_something<R: Region>(parts: Parts<R>) -> Result<bool, OpenError> {
    let pool = parts.open(Arc::new(Files::default()))?;
    Ok(!blocks_by_family(&pool).is_empty() || pool.strips.heads().any(|counting| counts(&pool, counting)))
}

/// Of a pool that is no persistent memory nothing was promised after a power cut.
fn tell_lost(pool: &Path, left: &Left, why: &str) {
    let files = left.holds.iter().map(|named| &named.path).collect::<BTreeSet<_>>().len();
    tracing::warn!(
        "the pool {} is no persistent memory, and did not outlive the power: {why}; what only it had of {files} files is lost",
        pool.display()
    );
}

/// A recovery of one run.
pub(super) struct Recovery<'a> {
    /// What the run left.
    pub(super) left: &'a Left,
    /// The boot of the system that is running.
    pub(super) boot: String,
    /// The run's journal, to be written on.
    pub(super) journal: Journal,
    /// The files.
    pub(super) ground: &'a dyn Ground,
}

/// The blocks of one file that only the pool has, by the slot and number.
type Blocks = Vec<(u32, u64)>;

/// What only the pool has of one file: blocks, and records that go over them, the oldest first. An
/// absorbed block may be newer than some of those: then a newer record has its bytes too, or no
/// sync has promised them.
struct Only {
    blocks: Blocks,
    records: Vec<Record>,
}

impl Recovery<'_> {
    /// Whether anything in the pool counts.
    pub(super) fn has_work(&self) -> bool {
        self.left.holds.iter().any(|named| self.counts(named))
    }

    /// Whether what was kept of `named` counts: the kernel has everything else.
    fn counts(&self, named: &Named) -> bool {
        self.left.failed.contains(&named.family) || !self.left.is_void && self.left.boot != self.boot
    }

    /// Brings what counts in the pool to its files. `refused` says that the pool cannot be read.
    pub(super) fn bring<R: Region>(
        &mut self,
        parts: Parts<R>,
        refused: impl Fn(String) -> RunFailure,
    ) -> Result<Recovered, Failure> {
        let pool = parts.open(Arc::new(Files::default())).map_err(|error| refused(error.to_string()))?;
        let mut blocks = blocks_by_family(&pool);
        let mut recovered = Recovered { was_left: true, ..Recovered::default() };
        let left = self.left;
        // Names last: a file of theirs belongs to others beside it.
        let counting = left.holds.iter().filter(|named| self.counts(named));
        let (files, names): (Vec<_>, Vec<_>) = counting.partition(|named| named.kind == Kind::File);
        let told: BTreeSet<_> =
            names.iter().filter(|named| self.is_told(&pool, named)).map(|named| &named.path).collect();
        for named in files.into_iter().chain(names) {
            let blocks = blocks.remove(&named.family).unwrap_or_default();
            let not_recovered =
                |error: io::Error| RunFailure::NotRecovered { file: named.path.clone(), why: error.to_string() };
            let others =
                Others { have_removed: told.contains(&named.path), have_changed: recovered.has_changed_beside(named) };
            let brought = match left.recovered.get(&named.family) {
                Some(brought) => Ok(Some(brought.clone())),
                None => match self.missing(&pool, named, &blocks).map_err(not_recovered)? {
                    Some(file_system) => {
                        recovered.unmounted.push(Unmounted { file: named.path.clone(), file_system });
                        continue;
                    }
                    None => self.bring_one(&pool, named, blocks, others),
                },
            };
            recovered.add(&named.path, brought.map_err(not_recovered)?);
        }
        Ok(recovered)
    }

    /// The file system of `named`, if something was kept of that which is to be written there, and
    /// it is not mounted.
    fn missing<R: Region>(&self, pool: &Opened<R>, named: &Named, blocks: &Blocks) -> io::Result<Option<FileSystem>> {
        let is_kept = !blocks.is_empty() || !self.records(pool, named)?.is_empty();
        if is_kept && self.unlike(named).is_none() { self.ground.missing(named) } else { Ok(None) }
    }

    /// Brings what was kept of `named`, durably, and has the journal say so. None: there is
    /// nothing.
    fn bring_one<R: Region>(
        &mut self,
        pool: &Opened<R>,
        named: &Named,
        blocks: Blocks,
        others: Others,
    ) -> io::Result<Option<Brought>> {
        let brought = match named.kind {
            Kind::File => self.bring_file(pool, named, blocks, others.have_removed)?,
            Kind::Name => self.bring_name(pool, named, others.have_changed)?,
        };
        let told = brought.iter().try_for_each(|brought| self.journal.add_recovered(named.family, brought));
        told.map_err(|error| {
            other(format!("it is where it belongs, but the journal of holds cannot be written: {error}"))
        })?;
        Ok(brought)
    }

    /// Nothing of the pool counts any more: it says so first, and the journal goes then.
    pub(super) fn end<R: Region>(self, pool: Option<Parts<R>>) -> io::Result<()> {
        if let Some(parts) = pool {
            let families = self.left.holds.iter().map(|named| named.family);
            parts.make_void(families).map_err(|error| io::Error::other(error.to_string()))?;
        }
        self.journal.end()
    }

    /// Writes what was kept of one file, to it or else aside.
    fn bring_file<R: Region>(
        &mut self,
        pool: &Opened<R>,
        named: &Named,
        blocks: Blocks,
        removed: bool,
    ) -> io::Result<Option<Brought>> {
        let only = Only { blocks, records: self.records(pool, named)? };
        if only.blocks.is_empty() && only.records.is_empty() {
            return Ok(None);
        }
        if removed {
            let (target, to) = self.ground.salvage(named)?;
            write(pool, &*target, &only, u64::MAX)?;
            return Ok(Some(Brought::Removed(to)));
        }
        let resumed = self.left.is_recovering(&self.boot, named.family);
        let found = match self.unlike(named) {
            Some(unlike) => Found::Unlike(unlike),
            None => self.ground.find(named, resumed)?,
        };
        let (target, brought) = self.target(named, found, resumed)?;
        let durable = if matches!(brought, Brought::Written) { target.len()? } else { u64::MAX };
        write(pool, &*target, &only, durable)?;
        Ok(Some(brought))
    }

    /// Why nothing is written where `named` was, whatever lies there.
    fn unlike(&self, named: &Named) -> Option<Unlike> {
        if self.left.failed.contains(&named.family) {
            Some(Unlike::Failed)
        } else {
            (!self.left.outlives_power).then_some(Unlike::Newer)
        }
    }

    /// Where what was kept of `named` goes, by what was `found` in its place, and what has become
    /// of it then.
    fn target(&mut self, named: &Named, found: Found, resumed: bool) -> io::Result<(Box<dyn Target>, Brought)> {
        match found {
            Found::Same(target) => {
                if !resumed {
                    self.journal.add_recovering(&self.boot, named.family)?;
                }
                Ok((target, Brought::Written))
            }
            Found::Unlike(unlike) => {
                let (target, to) = self.ground.salvage(named)?;
                Ok((target, Brought::Aside { unlike, to }))
            }
        }
    }

    /// Sees to it that the file has the name `named` that was synced last, or none if that was
    /// removed. Not `beside_changed` ones: somebody has begun to use what the power cut left.
    fn bring_name<R: Region>(
        &mut self,
        pool: &Opened<R>,
        named: &Named,
        beside_changed: bool,
    ) -> io::Result<Option<Brought>> {
        let resumed = self.left.is_recovering(&self.boot, named.family);
        let unlike = self.unlike(named).or(beside_changed.then_some(Unlike::Beside));
        let (born_ns, attributes, records) = match told(self.records(pool, named)?).map_err(other)? {
            Told::Unknown => return Ok(None),
            Told::Gone(born_ns) => {
                let left = |unlike| if self.ground.has_name(named) { Brought::Left(unlike) } else { Brought::Gone };
                return unlike
                    .map_or_else(|| self.ground.remove_name(named, born_ns), |unlike| Ok(left(unlike)))
                    .map(Some);
            }
            Told::File { born_ns, attributes, records } => (born_ns, attributes, records),
        };
        // What a recovery made before another cut was born later, too.
        let born_ns = if self.left.was_recovering(named.family) { u64::MAX } else { born_ns };
        let found = match unlike {
            Some(unlike) => Found::Unlike(unlike),
            None => self.ground.find_name(named, resumed, born_ns)?,
        };
        let (target, brought) = self.target(named, found, resumed)?;
        target.set_len(0)?;
        records.iter().try_for_each(|record| target.write(record.at, &record.bytes))?;
        target.set_attributes(attributes)?;
        target.sync()?;
        Ok(Some(brought))
    }

    /// Whether a strip tells what has the name `named`, and did so to the end: of one that was
    /// given up others may have made a file and held that.
    fn is_told<R: Region>(&self, pool: &Opened<R>, named: &Named) -> bool {
        if self.left.failed.contains(&named.family) {
            return false;
        }
        // What cannot be read is told of when it is to be brought.
        self.records(pool, named).is_ok_and(|records| !records.is_empty())
    }

    /// What its program committed of `named` by itself, and nobody absorbed.
    fn records<R: Region>(&self, pool: &Opened<R>, named: &Named) -> io::Result<Vec<Record>> {
        let Some(strip) = named.strip else { return Ok(Vec::new()) };
        let counts = |counting: Counting| counting.slot / FAMILY_SLOTS == named.family && counts(pool, counting);
        let session = session_number(self.left.session.as_bytes());
        pool.strips.records(strip, session, counts).map_err(other)
    }
}

/// What else was found out that is about a file or a name.
#[derive(Clone, Copy)]
struct Others {
    /// A strip tells that its program had removed the file.
    have_removed: bool,
    /// Somebody has begun to use what the power cut left beside it.
    have_changed: bool,
}

fn other(error: impl ToString) -> io::Error {
    io::Error::other(error.to_string())
}

/// Whether the records that a strip's head tells of count: their slot is not void, and their
/// filling not absorbed.
fn counts<R: Region>(pool: &Opened<R>, counting: Counting) -> bool {
    let mut block = vec![0; BLOCK];
    // A block that cannot be read says nothing.
    let told = pool.cache.read(size_block(counting.slot), &mut block).ok().and_then(|()| size_in(&block));
    let absorbed = told.map_or(0, |told| told.absorbed.get());
    !pool.void.has(counting.slot) && u64::from(counting.filling) > absorbed
}

fn blocks_by_family<R: Region>(pool: &Opened<R>) -> BTreeMap<u32, Blocks> {
    let mut families = BTreeMap::<u32, Blocks>::new();
    for lba in pool.cache.dirty_lbas() {
        let (slot, block) = slot_of(lba);
        if slot != 0 && !pool.void.has(slot) {
            families.entry(slot / FAMILY_SLOTS).or_default().push((slot, block));
        }
    }
    families
}

/// Writes what only the pool has into `target`, no block behind the size that was kept with it, and
/// brings it to its disk. A size that the pool does not have any more is `durable`: the disk had
/// it.
fn write<R: Region>(pool: &Opened<R>, target: &dyn Target, only: &Only, durable: u64) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let read = |lba, block: &mut [u8]| pool.cache.read(lba, block).map_err(other);
    for (slot, number) in &only.blocks {
        read(size_block(*slot), &mut block)?;
        let kept = size_in(&block).map(|told| told.size.get());
        let now = target.len()?;
        kept.filter(|size| now < *size).map_or(Ok(()), |size| target.set_len(size))?;
        let size = kept.unwrap_or(durable);
        let at = number * BLOCK_BYTES;
        let len = usize::try_from(size.saturating_sub(at).min(BLOCK_BYTES)).expect("at most a block");
        read(block_of(*slot, *number), &mut block)?;
        target.write(at, &block[..len])?;
    }
    only.records.iter().try_for_each(|record| target.write(record.at, &record.bytes))?;
    target.sync()
}
