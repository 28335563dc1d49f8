//! Which types make up a volume: a mapped region, perhaps an emulated medium over it, the block
//! translation table or a cache of a disk, and over that what the region's domain or the user asks
//! for. The one place that names them.

use crate::cached_disk::cache::{Cached, CachedDisk};
use crate::cached_disk::contents;
use crate::cached_disk::disk::{self, Disk, DiskLocation, DiskPlan};
use crate::cached_disk::online::{Front as CacheFront, OnlineDisk};
use crate::cached_disk::owner;
use crate::cached_disk::stale_check::{self, IfChanged};
use crate::cached_disk::volatile::Stake;
use crate::failure::{DiskFailure, Doing, Failure, MirrorFailure, Step, VolumeFailure, WriteCacheFailure};
use crate::options::VolumePlan;
use crate::stats::registry::MetricSource;
use crate::volume::read_only::ReadOnly;
use crate::volume::write_cache::{self, ActiveWriteCache, Costs, ReadsOnly, VolumeIdentity, WriteCacheSize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_background::FirstStep;
use tidegate_btt::{Btt, OpenError, OpenOptions, Repair, Survey, Writes, check};
use tidegate_disk_cache::{Identity as CacheIdentity, Mode};
use tidegate_host::progress::Drain;
use tidegate_media::emulate::Emulated;
use tidegate_media::{Access, BlockDevice, DiskAccess, Domain, FileBacked, Region};
use tidegate_ublk::never_wait_for_devices;
use tidegate_volume_region::VolumeRegion;
use tidegate_volume_region::damage::Damage;
use tidegate_volume_region::description::{Description, Memory};
use tidegate_volume_region::mirror::{self, MirrorPlan};
use tidegate_volume_region::region::{self, cache_finding, cache_in, disk_cache_in};
use tidegate_volume_region::xattrs::Xattr;
use uuid::Uuid;

/// A volume ready to be served.
pub struct Volume {
    /// Its blocks.
    pub device: Arc<dyn BlockDevice>,
    /// Whether it takes writes: a damaged volume takes none, whatever was wished.
    pub access: Access,
    /// Its layers that keep numbers about their work.
    pub layers: Vec<Arc<dyn MetricSource>>,
    /// Its layer that holds blocks on their way to the memory, if it has one.
    pub drain: Option<Arc<dyn Drain>>,
    /// What there is to say about it.
    pub facts: Description,
    /// The cache in front of the blocks, or why there is none.
    pub cache: Result<Arc<ActiveWriteCache>, String>,
    /// Blocks that a killed server had left in its cache.
    pub completed: u64,
    /// The disk behind it, if it caches one.
    pub disk: Option<Arc<OnlineDisk>>,
    /// Where its table lies, if it has one.
    table: Option<(PathBuf, Arc<VolumeRegion>)>,
}

impl Volume {
    /// Clients may come from now on. If one side of a mirror is served alone, it says so, durably,
    /// and the other side is stale; only then does its disk get what it lacks. A server that is
    /// refused before leaves the mirror whole.
    ///
    /// # Errors
    /// The side loses the store.
    pub fn begin(&self) -> Result<(), Failure> {
        let disk = self.disk.as_ref().map_or(Ok(()), |disk| disk.begin());
        Ok(disk.and_then(|()| self.table.iter().try_for_each(|(path, region)| mirror::go_alone(path, region)))?)
    }
}

/// A volume's engine, not yet behind anything.
struct Engine {
    blocks: Arc<dyn BlockDevice>,
    /// Their table, if it keeps numbers.
    watched: Option<Arc<dyn MetricSource>>,
    survey: Survey,
    costs: Option<Costs>,
}

/// An open table.
struct Table {
    region: Arc<VolumeRegion>,
    engine: Engine,
    /// Whether it may be written after all.
    access: Access,
}

/// The blocks that clients get, and what is in front of them.
struct Front {
    device: Arc<dyn BlockDevice>,
    cache: Result<Arc<ActiveWriteCache>, String>,
    completed: u64,
}

/// Opens the volume that `plan` describes; interrupted writes are finished. Damage is told, and a
/// volume that a write could damage further is opened for reading only.
pub fn open(plan: &VolumePlan) -> Result<Volume, Failure> {
    if plan.ublk.is_some() {
        never_wait_for_devices();
    }
    let path = plan.pmem.as_path();
    let region = Arc::new(map(plan, plan.access)?);
    if let Some(identity) = disk_cache_in(path, &region)? {
        return open_cache(plan, region, identity);
    }
    if plan.disk != DiskPlan::default() {
        return Err(contents::no_cache(path, &region).into());
    }
    let Table { region, mut engine, access } = open_table(plan, region)?;
    let watched = engine.watched.take();
    let damage = Damage::of(path, &engine.survey);
    damage.iter().for_each(|damage| tracing::warn!("the volume in {} is damaged: {damage}", path.display()));
    let facts = Description::of(path, Memory::of(&region), &engine.survey.summary).with_damage(damage);
    let front = match access {
        Access::ReadWrite => writable(plan, engine, &region)?,
        Access::Private | Access::PrivateUnlocked => {
            let reads_only = if access == plan.access { ReadsOnly::AsAsked } else { ReadsOnly::Damaged };
            if plan.mirror == MirrorPlan::Absent {
                write_cache::refuse_leftover(VolumeIdentity { pmem: path, uuid: facts.uuid }, reads_only)?;
            }
            Front { device: Arc::new(ReadOnly(engine.blocks)), cache: Err("off: read-only".to_owned()), completed: 0 }
        }
    };
    let Front { device, cache, completed } = front;
    region.engine_is_open();
    let mut layers: Vec<Arc<dyn MetricSource>> = vec![Arc::clone(&region) as _];
    layers.extend(watched);
    layers.extend(cache.as_ref().ok().map(|write_cache| write_cache.watched()));
    let facts = facts.behind_a_cache(cache.is_ok());
    let drain = cache.as_ref().ok().map(|write_cache| Arc::clone(write_cache) as Arc<dyn Drain>);
    let table = Some((plan.pmem.clone(), region));
    Ok(Volume { device, access, layers, drain, facts, cache, completed, disk: None, table })
}

/// Opens the table on `region`, as `plan` says or, if it must not be written, in a mapping from
/// which no store reaches the file.
fn open_table(plan: &VolumePlan, region: Arc<VolumeRegion>) -> Result<Table, Failure> {
    match engine_on(plan, &region, plan.access) {
        Ok(engine) => Ok(Table { region, engine, access: plan.access }),
        Err(OpenError::Unwritable(_)) => {
            // Its lock has to go first.
            drop(region);
            let region = Arc::new(map(plan, Access::Private)?);
            let opened = engine_on(plan, &region, Access::Private);
            let engine = opened.map_err(|error| no_table(&plan.pmem, &region, error))?;
            Ok(Table { region, engine, access: Access::Private })
        }
        Err(error) => Err(no_table(&plan.pmem, &region, error).into()),
    }
}

/// Why the table on `region` is not used. Where rules are broken, a check tells how many.
pub fn no_table(path: &Path, region: &VolumeRegion, error: OpenError) -> VolumeFailure {
    let broken = matches!(error, OpenError::Corrupt(_)).then(|| refuse_unsound(path, region).err()).flatten();
    broken.unwrap_or_else(|| VolumeFailure::of_open(path, region.len(), error))
}

fn engine_on(plan: &VolumePlan, region: &Arc<VolumeRegion>, access: Access) -> Result<Engine, OpenError> {
    match plan.emulate {
        None => engine(plan, Arc::clone(region), access, region.reader().domain()),
        Some(profile) => engine(plan, Emulated::new(Arc::clone(region), profile), access, region.reader().domain()),
    }
}

/// Opens the cache `identity` in `region`, and its disk.
fn open_cache(plan: &VolumePlan, region: Arc<VolumeRegion>, identity: CacheIdentity) -> Result<Volume, Failure> {
    let (path, writable) = (plan.pmem.as_path(), plan.access == Access::ReadWrite);
    if let WriteCacheSize::Bytes(_) = plan.cache {
        return Err(DiskFailure::WriteCacheAsked { pmem: path.to_owned() }.into());
    }
    if plan.level_wear.is_some() {
        return Err(DiskFailure::WearLevelingAsked { pmem: path.to_owned() }.into());
    }
    if region.reader().domain() == Domain::DiskFile {
        refuse_unsound_cache(path, &*region)?;
    }
    if writable {
        Stake::of(path, &region, &identity).admit(Step::Serve(plan.disk.mode), plan.disk.volatile)?;
    }
    let access = if writable { DiskAccess::ReadWrite } else { DiskAccess::ReadOnly };
    let location = DiskLocation { path: plan.disk.path.as_deref(), force: plan.disk.force };
    let disk = disk::open_of(path, &identity, location, access)?;
    disk::growth(path, &identity, &disk).iter().for_each(|growth| tracing::warn!("{}: {growth}", path.display()));
    owner::refuse_taken(&disk, &identity, owner::if_claimed(plan.disk.force))?;
    stale_check::check(path, &region, &identity, &disk, IfChanged::Refuse)?;
    if writable {
        owner::take(&disk, path, identity.uuid)?;
        stale_check::clear_stamp(path, &region)?;
        region::files(&region).for_each(|file| Xattr::Disk.write(file, &disk.path));
    }
    let facts = Description::of_disk_cache(path, Memory::of(&region), &identity);
    let live = Arc::new(OnlineDisk::new(plan.clone(), disk.clone(), front(plan, region, disk)?, front));
    let off = Err("off: the volume is a cache itself".to_owned());
    Ok(Volume {
        device: Arc::clone(&live) as Arc<dyn BlockDevice>,
        access: plan.access,
        layers: vec![Arc::clone(&live) as Arc<dyn MetricSource>],
        drain: None,
        facts,
        cache: off,
        completed: 0,
        disk: Some(live),
        table: None,
    })
}

/// The cache in `region`, in front of `disk`, as `plan` says.
fn front(plan: &VolumePlan, region: Arc<VolumeRegion>, disk: Disk) -> Result<CacheFront, Failure> {
    let (path, writable) = (plan.pmem.as_path(), plan.access == Access::ReadWrite);
    let first = if region.is_unsaid() { FirstStep::AtRelease } else { FirstStep::AtStart };
    let (blocks, cached) = match plan.emulate {
        None => cached(plan, Arc::clone(&region), (disk, first))?,
        Some(profile) => cached(plan, Emulated::new(Arc::clone(&region), profile), (disk, first))?,
    };
    region.engine_is_open();
    let io = |error| VolumeFailure::of_io(path, Doing::Write, error);
    let device = if writable { synced(&region, blocks).map_err(io)? } else { Arc::new(ReadOnly(blocks)) };
    let ordered = cache_in(path, &*region)?.is_some_and(|identity| identity.journal_blocks > 0);
    Ok(CacheFront { region, ordered, device, cached })
}

/// The region of `plan`, with its twin.
fn map(plan: &VolumePlan, access: Access) -> Result<VolumeRegion, Failure> {
    if plan.mirror != MirrorPlan::Absent {
        refuse_for_mirrors(plan)?;
    }
    Ok(mirror::open(&plan.pmem, &plan.mirror, access)?)
}

/// Refuses what volumes without a mirror may have.
fn refuse_for_mirrors(plan: &VolumePlan) -> Result<(), Failure> {
    let path = plan.pmem.clone();
    if plan.emulate.is_some() {
        return Err(MirrorFailure::Emulated { path }.into());
    }
    match plan.cache {
        WriteCacheSize::Bytes(_) => Err(WriteCacheFailure::Mirrored { path }.into()),
        WriteCacheSize::Auto | WriteCacheSize::Off => Ok(()),
    }
}

/// `blocks`, whose flushes sync the files of `region` if they lie on a disk.
fn synced(region: &VolumeRegion, blocks: Arc<dyn BlockDevice>) -> io::Result<Arc<dyn BlockDevice>> {
    if region.reader().domain() != Domain::DiskFile {
        return Ok(blocks);
    }
    region::files(region)
        .try_fold(blocks, |blocks, file| Ok(Arc::new(FileBacked::new(blocks, file)?) as Arc<dyn BlockDevice>))
}

/// A volume's blocks, and the cache that they are.
type DiskAndCache = (Arc<dyn BlockDevice>, Arc<dyn CachedDisk>);

/// The blocks of a cache in `region` in front of `disk`, which is destaged to from `first` on, and
/// the cache.
fn cached<R: Region + 'static>(
    plan: &VolumePlan,
    region: R,
    (disk, first): (Disk, FirstStep),
) -> Result<DiskAndCache, Failure> {
    // Nothing is to be changed, so nothing is taken in.
    let mode = if plan.access == Access::ReadWrite { plan.disk.mode } else { Mode::PassThrough };
    let path = disk.path.clone();
    let cached = Cached::open(region, disk, &DiskPlan { mode, ..plan.disk.clone() });
    let cached = cached.map_err(|error| Failure::of_opening(&plan.pmem, &path, error))?;
    let started = if plan.access == Access::ReadWrite { cached.start(&plan.pmem, first) } else { Ok(cached) };
    let cached = Arc::new(started.map_err(Failure::system("starting the thread that writes to the disk"))?);
    Ok((cached.device(), cached))
}

/// Refuses a cache that breaks any rule of its format. Entries that cannot be read are told when it
/// is open.
fn refuse_unsound_cache<R: Region>(path: &Path, region: &R) -> Result<(), VolumeFailure> {
    let sound = tidegate_disk_cache::check(region).is_ok_and(|report| report.opens());
    if sound { Ok(()) } else { Err(cache_finding(path, region)) }
}

/// What a volume needs that may change: syncs, if it lies on a disk; what a killed server left in
/// its cache; a cache of its own. A mirror has no cache and never had one: the file is named after
/// one side, and a server that is told the sides in another order would not find it.
fn writable(plan: &VolumePlan, engine: Engine, region: &VolumeRegion) -> Result<Front, Failure> {
    let Engine { blocks, survey, costs, watched: _ } = engine;
    let io = |error| VolumeFailure::of_io(&plan.pmem, Doing::Write, error);
    let device = synced(region, blocks).map_err(io)?;
    if plan.mirror != MirrorPlan::Absent {
        return Ok(Front { device, cache: Err("off: the volume is mirrored".to_owned()), completed: 0 });
    }
    let identity = VolumeIdentity { pmem: &plan.pmem, uuid: Uuid::from_bytes(survey.summary.uuid) };
    let completed = write_cache::complete_leftover(identity, &*device)?;
    let cache = ActiveWriteCache::start(plan.cache, costs, identity, Arc::clone(&device))?.map(Arc::new);
    Ok(Front { device: cache.as_ref().map_or(device, |write_cache| write_cache.device()), cache, completed })
}

/// Refuses a volume that breaks any rule of its format.
fn refuse_unsound<R: Region>(path: &Path, region: &R) -> Result<(), VolumeFailure> {
    let report = check(region, Repair::No).map_err(|error| VolumeFailure::of_check(path, region.len(), error))?;
    let Some(first) = report.findings.first() else { return Ok(()) };
    let more = match report.findings.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(VolumeFailure::Damaged { path: path.to_owned(), why: format!("{}{more}", first.corrupt) })
}

fn engine<R: Region + 'static>(
    plan: &VolumePlan,
    region: R,
    access: Access,
    domain: Domain,
) -> Result<Engine, OpenError> {
    let writes = if access == Access::ReadWrite { Writes::Allowed } else { Writes::Refused };
    let engine =
        Btt::open(region, &OpenOptions { level_wear_every: plan.level_wear, writes, ..OpenOptions::default() })?;
    // A file's pages are DRAM already.
    let pages = domain == Domain::DiskFile && plan.emulate.is_none();
    let may_cache = plan.cache == WriteCacheSize::Auto && plan.mirror == MirrorPlan::Absent;
    let measure = writes == Writes::Allowed && may_cache && !pages;
    let costs = if measure { Costs::measure(&engine) } else { None };
    let survey = engine.survey().clone();
    let blocks = Arc::new(engine);
    let watched = plan.level_wear.map(|_| Arc::clone(&blocks) as Arc<dyn MetricSource>);
    Ok(Engine { blocks, watched, survey, costs })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::options::CreateOptions;
    use crate::volume::create::create;
    use tidegate_media::{Durability, Lba};

    /// The sides of a mirrored volume of 24 MiB in `folder`.
    pub(crate) fn mirrored(folder: &Path) -> [PathBuf; 2] {
        let sides = ["a", "b"].map(|name| folder.join(name));
        let options =
            CreateOptions { mirror: Some(sides[1].clone()), ..CreateOptions::new(sides[0].clone(), 24 << 20) };
        create(&options).expect("two regions");
        sides
    }

    #[test]
    fn a_mirror_has_no_write_cache_whichever_sides_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let [a, b] = mirrored(folder.path());
        let both = |first: &Path, other: &Path| VolumePlan {
            mirror: MirrorPlan::With(other.to_owned()),
            ..VolumePlan::of(first.to_owned(), Access::ReadWrite)
        };
        let alone = VolumePlan { mirror: MirrorPlan::Degraded, ..VolumePlan::of(a.clone(), Access::ReadWrite) };
        for (plan, generation) in [(both(&a, &b), 1), (both(&b, &a), 2), (alone, 3)] {
            for access in [Access::ReadWrite, Access::Private] {
                let cache = WriteCacheSize::Bytes(1 << 20);
                let refused = open(&VolumePlan { cache, access, ..plan.clone() }).err();
                let is_told = matches!(&refused, Some(Failure::WriteCache(WriteCacheFailure::Mirrored { .. })));
                assert!(is_told, "{refused:?}");
            }
            let volume = open(&plan).expect("a mirror");
            assert_eq!(volume.cache.err().as_deref(), Some("off: the volume is mirrored"));
            let mut found = [0; 4096];
            volume.device.read(Lba(0), &mut found).expect("a read");
            assert_eq!(found, [generation - 1; 4096], "what was written before");
            volume.device.write(Lba(0), &[generation; 4096], Durability::Fua).expect("a write");
        }
    }
}
