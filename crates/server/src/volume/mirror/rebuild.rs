//! The copy of a side onto a new region, which becomes its twin.

use super::{map_file, once_a_second, refuse_other_domain, to_overwrite};
use crate::failure::{Doing, Failure, MirrorFailure, VolumeFailure};
use crate::volume::contents;
use std::path::Path;
use tidegate_host::default_paths::is_same_file;
use tidegate_layout::mirror::{MirrorSide, SideState};
use tidegate_media::{Access, Allocation, MappedRegion, Region};
use tidegate_mirror::page::{self, Page};
use tidegate_mirror::{MirrorError, Rebuilt};
use uuid::Uuid;

/// Whether a rebuild may overwrite what its target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetContents {
    /// Only zeroes, or what is left of the set's other side.
    Keep,
    /// Anything.
    Overwrite,
}

/// Makes the region at `target`, created if absent, the other side of the set that `source` is a
/// side of. `tell` hears how far it is.
pub fn rebuild(
    source: &Path,
    target: &Path,
    contents: TargetContents,
    tell: impl FnMut(&str),
) -> Result<Rebuilt, Failure> {
    if is_same_file(source, target) {
        return Err(MirrorFailure::Same { path: source.to_owned() }.into());
    }
    let from = map_file(source, Access::ReadWrite)?;
    let Page::Side(side) = page::read(&from) else {
        return Err(MirrorFailure::of_one(source, MirrorError::NotASide { region: 0 }).into());
    };
    let onto = match target.try_exists().unwrap_or(true) {
        true if contents == TargetContents::Keep => unused(target, map_file(target, Access::ReadWrite)?, &side)?,
        true => map_file(target, Access::ReadWrite)?,
        false => MappedRegion::create(target, from.len(), Allocation::Full)
            .map_err(|error| VolumeFailure::of_map(Doing::Create, error))?,
    };
    refuse_other_domain([source, target], [&from, &onto])?;
    let (set, progress) = (Uuid::new_v4().into_bytes(), &mut once_a_second("copied", tell));
    let rebuilt = tidegate_mirror::rebuild([&from, &onto], set, MappedRegion::sync_file, progress);
    Ok(rebuilt.map_err(|error| MirrorFailure::of_two([source, target], error))?)
}

/// `region`, if it holds only zeroes, or is a side that the one of `source` has replaced.
fn unused(path: &Path, region: MappedRegion, source: &MirrorSide) -> Result<MappedRegion, Failure> {
    let is_left_over = match page::read(&region) {
        // Two sides that went on alone have writes each.
        Page::Side(left) => left.set == source.set && left.state != SideState::Alone,
        Page::Damaged | Page::Unreadable | Page::Absent => false,
    };
    let region = to_overwrite(region);
    match contents::of_region(path, &region)? {
        Some(holds) if !is_left_over => Err(VolumeFailure::Exists { path: path.to_owned(), holds }.into()),
        _ => Ok(region.into_mapped()),
    }
}
