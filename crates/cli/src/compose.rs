//! Which types make up a volume: a mapped region, perhaps an emulated medium over it, the block translation table, and
//! over that what the region's domain or the user asks for. The one place that names them.

use crate::drain::Drain;
use crate::facts::{Facts, Memory};
use crate::failure::{Doing, Failure, VolumeFailure};
use crate::plan::VolumePlan;
use crate::read_only::ReadOnly;
use crate::readings::Watched;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tidegate_btt::{Btt, OpenError, OpenOptions, Repair, Summary, check};
use tidegate_media::emulate::Emulated;
use tidegate_media::{Access, BlockDevice, Domain, FileBacked, MappedRegion, Region};

/// A volume ready to be served.
pub(crate) struct Volume {
    /// Its blocks.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Its layers that keep numbers about their work.
    pub(crate) layers: Vec<Arc<dyn Watched>>,
    /// Its layer that holds blocks on their way to the memory, if it has one.
    pub(crate) drain: Option<Arc<dyn Drain>>,
    /// What there is to say about it.
    pub(crate) facts: Facts,
}

/// Maps the region at `path`, locked as `access` needs.
pub(crate) fn map(path: &Path, access: Access) -> Result<MappedRegion, Failure> {
    let doing = if access == Access::ReadWrite { Doing::Write } else { Doing::Read };
    MappedRegion::open(path, access).map_err(|error| VolumeFailure::of_map(doing, error).into())
}

/// Opens the volume that `plan` describes; interrupted writes are finished.
///
/// In the domain `disk-file` a power loss may have kept any of the pages that were not synced, and nothing on the medium says
/// whether there was one: so there every open begins with a check of the whole structure.
pub(crate) fn open(plan: &VolumePlan) -> Result<Volume, Failure> {
    let (path, access) = (plan.pmem.as_path(), plan.access);
    let region = Arc::new(map(path, access)?);
    let (memory, domain, bytes) = (Memory::of(&region), region.domain(), region.len());
    let refused = |error| Failure::from(VolumeFailure::of_open(path, bytes, error));
    if domain == Domain::DiskFile {
        refuse_unsound(path, &*region)?;
    }
    let file = region.file().map(File::try_clone).transpose();
    let file = file.map_err(|error| VolumeFailure::of_io(path, Doing::Write, error))?;
    let opened = match plan.emulate {
        None => engine(Arc::clone(&region)),
        Some(profile) => engine(Emulated::new(Arc::clone(&region), profile)),
    };
    let (engine, summary) = opened.map_err(refused)?;
    let device: Arc<dyn BlockDevice> = match (access, file) {
        (Access::Private | Access::PrivateUnlocked, _) => Arc::new(ReadOnly(engine)),
        (Access::ReadWrite, Some(file)) if domain == Domain::DiskFile => {
            let synced = FileBacked::new(engine, &file);
            Arc::new(synced.map_err(|error| VolumeFailure::of_io(path, Doing::Write, error))?)
        }
        (Access::ReadWrite, _) => engine,
    };
    let facts = Facts::of(path, memory, &summary);
    Ok(Volume { device, layers: vec![region], drain: None, facts })
}

/// Refuses a volume that breaks any rule of its format.
pub(crate) fn refuse_unsound<R: Region>(path: &Path, region: &R) -> Result<(), VolumeFailure> {
    let report = check(region, Repair::No).map_err(|error| VolumeFailure::of_check(path, region.len(), error))?;
    let Some(first) = report.findings.first() else { return Ok(()) };
    let more = match report.findings.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(VolumeFailure::Damaged { path: path.to_owned(), why: format!("{}{more}", first.corrupt) })
}

fn engine<R: Region + 'static>(region: R) -> Result<(Arc<dyn BlockDevice>, Summary), OpenError> {
    let engine = Btt::open(region, &OpenOptions::default())?;
    let summary = *engine.summary();
    Ok((Arc::new(engine), summary))
}
