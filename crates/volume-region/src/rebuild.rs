//! The copy of a side onto a new region, which becomes its twin.

use crate::contents;
use crate::found::FoundAtPath;
use crate::mapping::{map_emptied, map_file};
use crate::mirror::{once_a_second, refuse_other_domain};
use crate::xattrs::Xattr;
use crate::{MirrorFailure, RegionFailure, VolumeFailure};
use std::path::Path;
use tidegate_host::Doing;
use tidegate_host::default_paths::is_same_file;
use tidegate_layout::mirror::{MirrorSide, SideState};
use tidegate_media::{Access, Allocation, MappedRegion, Region};
use tidegate_mirror::{Mirror, Rebuilt};
use uuid::Uuid;

/// Whether a rebuild may overwrite what its target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetContents {
    /// Only zeroes, or what is left of the set's other side.
    Keep,
    /// Anything.
    Overwrite,
}

/// Makes the region at `target`, created if absent or empty, the other side of the set that
/// `source` is a side of. `tell` hears how far it is.
///
/// # Errors
/// `source` is not a side that has every write, or `target` holds bytes that `contents` keeps.
pub fn rebuild(
    source: &Path,
    target: &Path,
    contents: TargetContents,
    tell: impl FnMut(&str),
) -> Result<Rebuilt, RegionFailure> {
    if is_same_file(source, target) {
        return Err(MirrorFailure::Same { path: source.to_owned() }.into());
    }
    let from = map_file(source, Access::ReadWrite)?;
    let side = tidegate_mirror::side_of(&from, 0).map_err(|error| MirrorFailure::of_one(source, error))?;
    let found = FoundAtPath::of(target);
    let onto = match found {
        FoundAtPath::Bytes if contents == TargetContents::Keep => {
            unused(target, map_file(target, Access::ReadWrite)?, &side)?
        }
        FoundAtPath::Bytes => map_file(target, Access::ReadWrite)?,
        FoundAtPath::Empty => map_emptied(target, from.len(), Allocation::Full)?,
        FoundAtPath::Nothing => MappedRegion::create(target, from.len(), Allocation::Full)
            .map_err(|error| VolumeFailure::of_map(Doing::Create, error))?,
    };
    refuse_other_domain([source, target], [&from, &onto]).inspect_err(|_| found.leave(target))?;
    // While the target is as it was.
    let of_two = |error| MirrorFailure::of_two([source, target], error);
    tidegate_mirror::refuse_unfit([&from, &onto]).map_err(of_two)?;
    copy_notes(source, (target, &onto))?;
    let (set, progress) = (Uuid::new_v4().into_bytes(), &mut once_a_second("copied", tell));
    let rebuilt = tidegate_mirror::rebuild([&from, &onto], set, MappedRegion::sync_file, progress);
    Ok(rebuilt.map_err(of_two)?)
}

/// Lets the target have no note but those of the source. What it noted of the disk is older than
/// its new contents, and would say that the disk was changed without them.
fn copy_notes(source: &Path, (target, onto): (&Path, &MappedRegion)) -> Result<(), VolumeFailure> {
    onto.forget_disk().map_err(|error| VolumeFailure::of_io(target, Doing::Write, error))?;
    match (Xattr::Disk.read(source), onto.file()) {
        (Some(disk), Some(file)) => Xattr::Disk.write(file, &disk),
        (None, Some(file)) => Xattr::Disk.remove(file),
        (_, None) => {}
    }
    Ok(())
}

/// `region`, if it holds only zeroes, or is a side that the one of `source` has replaced.
fn unused(path: &Path, region: MappedRegion, source: &MirrorSide) -> Result<MappedRegion, RegionFailure> {
    let region = tidegate_mirror::view(region);
    // Two sides that went on alone have writes each.
    let is_left_over =
        region.mirror().map(Mirror::page).is_some_and(|left| left.set == source.set && left.state != SideState::Alone);
    match contents::of_region(path, &region)? {
        Some(holds) if !is_left_over => Err(MirrorFailure::Holds { path: path.to_owned(), holds }.into()),
        _ => Ok(region.into_reader()),
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "numbers of sides, and bytes of small files")]
mod tests {
    use super::*;
    use crate::VolumeRegion;
    use crate::mirror::{self, MirrorPlan, MirrorState};
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, MIRROR_SLOTS_AT};
    use tidegate_media::{DiskAccess, FileDisk};
    use tidegate_mirror::MirrorError;

    const BYTES: u64 = 64 << 10;

    /// A mirror in two files, with a line of ones.
    struct Pair {
        folder: tempfile::TempDir,
        sides: [PathBuf; 2],
    }

    impl Pair {
        fn new() -> Pair {
            let folder = tempfile::tempdir().expect("a folder");
            let sides = ["a", "b"].map(|name| folder.path().join(name));
            let regions = sides.each_ref().map(|path| fresh(path, BYTES));
            let region = mirror::create([&sides[0], &sides[1]], regions).expect("two regions of one length");
            store(&region, 1);
            Pair { folder, sides }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn both(&self) -> Result<VolumeRegion, RegionFailure> {
            let [one, other] = self.sides.clone();
            mirror::open(&one, &MirrorPlan::With(other), Access::ReadWrite)
        }

        fn alone(&self, side: usize) -> Result<VolumeRegion, RegionFailure> {
            let path = &self.sides[side];
            let region = mirror::open(path, &MirrorPlan::Degraded, Access::ReadWrite)?;
            mirror::go_alone(path, &region)?;
            Ok(region)
        }

        fn rebuild(&self, from: usize, contents: TargetContents) -> Result<Rebuilt, RegionFailure> {
            rebuild(&self.sides[from], &self.sides[1 - from], contents, |_| ())
        }
    }

    fn fresh(path: &Path, bytes: u64) -> MappedRegion {
        MappedRegion::create(path, bytes, Allocation::Full).expect("a region")
    }

    fn store(region: &VolumeRegion, byte: u8) {
        region.stream(0, &[byte; 64]);
        region.fence().expect("a file");
        region.live().for_each(|side| side.sync_file().expect("a file"));
    }

    fn first_byte(region: &VolumeRegion) -> u8 {
        let mut line = [0; 64];
        region.read(0, &mut line).expect("a file");
        line[0]
    }

    fn state(region: &VolumeRegion) -> (Vec<u32>, &'static str) {
        let state = MirrorState::of(region).expect("a mirror");
        (state.sides, state.state)
    }

    #[test]
    fn a_deleted_side_is_missing_until_it_is_rebuilt() {
        for (lost, side) in [(0, 0), (1, 1)] {
            let pair = Pair::new();
            std::fs::remove_file(&pair.sides[lost]).expect("removed");
            let missing = pair.both().err();
            let Some(RegionFailure::Mirror(MirrorFailure::Missing { path, other, .. })) = missing else {
                panic!("{missing:?}")
            };
            assert_eq!([path, other], [pair.sides[lost].clone(), pair.sides[1 - lost].clone()]);
            let alone = pair.alone(1 - lost).expect("the other side has every write");
            assert_eq!(state(&alone), (vec![1 - side], "alone"));
            store(&alone, 2);
            drop(alone);
            let rebuilt = pair.rebuild(1 - lost, TargetContents::Keep).expect("an absent file is created");
            assert_eq!((rebuilt.side, rebuilt.copied_lines), (side, 1));
            let both = pair.both().expect("both have every write");
            assert_eq!((state(&both), first_byte(&both)), ((vec![0, 1], "mirrored"), 2));
            drop(both);
            std::fs::remove_file(&pair.sides[1 - lost]).expect("removed");
            assert_eq!(first_byte(&pair.alone(lost).expect("a whole side")), 2);
        }
    }

    #[test]
    fn a_side_without_a_byte_is_made_anew() {
        for contents in [TargetContents::Keep, TargetContents::Overwrite] {
            let pair = Pair::new();
            std::fs::write(&pair.sides[1], "").expect("a file cut short");
            let missing = pair.both().err();
            assert!(
                matches!(
                    missing,
                    Some(RegionFailure::Mirror(MirrorFailure::Missing { found: "the file is empty", .. }))
                ),
                "{missing:?}"
            );
            let rebuilt = pair.rebuild(0, contents).expect("an empty file holds nothing");
            assert_eq!((rebuilt.side, rebuilt.copied_lines), (1, 1));
            let both = pair.both().expect("both have every write");
            assert_eq!((state(&both), first_byte(&both)), ((vec![0, 1], "mirrored"), 1));
        }
    }

    #[test]
    fn a_side_that_is_refused_leaves_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let in_memory = tempfile::tempdir_in("/dev/shm").expect("memory");
        let sides = ["a", "b"].map(|name| folder.path().join(name));
        let regions = sides.each_ref().map(|path| fresh(path, BYTES));
        drop(mirror::create([&sides[0], &sides[1]], regions).expect("two regions of one length"));
        let [absent, empty] = ["absent", "empty"].map(|name| in_memory.path().join(name));
        std::fs::write(&empty, "").expect("a file");
        for target in [&absent, &empty] {
            let refused = rebuild(&sides[0], target, TargetContents::Keep, |_| ()).err();
            assert!(matches!(refused, Some(RegionFailure::Mirror(MirrorFailure::Domains { .. }))), "{refused:?}");
        }
        assert!(!absent.exists());
        assert_eq!(std::fs::read(&empty).expect("it stays"), b"");
    }

    #[test]
    fn a_stale_side_is_refused_and_its_bytes_need_no_force() {
        let pair = Pair::new();
        drop(pair.alone(0).expect("a whole side"));
        let stale = pair.both().err();
        let Some(RegionFailure::Mirror(MirrorFailure::Two { error, .. })) = stale else { panic!("{stale:?}") };
        assert_eq!(error, MirrorError::Stale { region: 1 });
        pair.rebuild(0, TargetContents::Keep).expect("a side that was replaced");
        pair.both().expect("both have every write");
    }

    #[test]
    fn a_rebuild_keeps_bytes_that_it_was_not_told_to_overwrite() {
        let pair = Pair::new();
        drop((pair.alone(0), pair.alone(1)));
        let diverged = pair.both().err();
        let Some(RegionFailure::Mirror(MirrorFailure::Two { error, .. })) = diverged else { panic!("{diverged:?}") };
        assert_eq!(error, MirrorError::Diverged);
        let kept = pair.rebuild(0, TargetContents::Keep).err();
        assert!(matches!(kept, Some(RegionFailure::Mirror(MirrorFailure::Holds { .. }))), "{kept:?}");
        let foreign = pair.at("foreign");
        std::fs::write(&foreign, vec![7; usize::try_from(BYTES).expect("small")]).expect("written");
        let kept = rebuild(&pair.sides[0], &foreign, TargetContents::Keep, |_| ()).err();
        assert!(matches!(kept, Some(RegionFailure::Mirror(MirrorFailure::Holds { .. }))), "{kept:?}");
        assert_eq!(std::fs::read(&foreign).expect("read"), vec![7; usize::try_from(BYTES).expect("small")]);
        rebuild(&pair.sides[0], &foreign, TargetContents::Overwrite, |_| ()).expect("it was said");
        let rebuilt = mirror::open(&pair.sides[0], &MirrorPlan::With(foreign), Access::ReadWrite);
        assert_eq!(first_byte(&rebuilt.expect("both have every write")), 1);
    }

    #[test]
    fn a_side_does_not_pass_for_that_of_a_copy_with_as_many_openings() {
        let pair = Pair::new();
        let fork = Pair::new();
        for (side, copied) in pair.sides.iter().zip(&fork.sides) {
            std::fs::copy(side, copied).expect("a copy");
        }
        drop((pair.both().expect("one history"), fork.both().expect("one history")));
        let mixed = [pair.sides[0].as_path(), fork.sides[1].as_path()];
        let mixed = mirror::open(mixed[0], &MirrorPlan::With(mixed[1].to_owned()), Access::ReadWrite).err();
        let Some(RegionFailure::Mirror(MirrorFailure::Two { error, .. })) = mixed else { panic!("{mixed:?}") };
        assert_eq!(error, MirrorError::Diverged);
        drop((pair.both().expect("one history"), fork.both().expect("one history")));
    }

    #[test]
    fn a_new_side_is_told_where_the_disk_of_the_cache_is() {
        let pair = Pair::new();
        let both = pair.both().expect("both have every write");
        crate::region::files(&both).take(1).for_each(|file| Xattr::Disk.write(file, Path::new("/dev/disk")));
        drop(both);
        let noted = Xattr::Disk.read(&pair.sides[0]);
        std::fs::remove_file(&pair.sides[1]).expect("removed");
        pair.rebuild(0, TargetContents::Keep).expect("an absent file is created");
        assert_eq!(Xattr::Disk.read(&pair.sides[1]), noted);
    }

    #[test]
    fn a_returned_side_keeps_no_notes_of_its_own() {
        let pair = Pair::new();
        let disk = pair.at("disk");
        std::fs::write(&disk, [0; 4096]).expect("a disk");
        let both = pair.both().expect("both have every write");
        let noted = FileDisk::open(&disk, DiskAccess::ReadWrite, 4096).expect("a disk");
        crate::region::files(&both).for_each(|file| Xattr::Disk.write(file, &disk));
        crate::region::note_as_left(&both, &noted);
        drop(both);
        let alone = pair.alone(0).expect("a whole side");
        crate::region::forget_disk(&alone).expect("a file");
        crate::region::files(&alone).for_each(|file| Xattr::Disk.remove(file));
        std::fs::write(&disk, [1; 8192]).expect("the disk changes while side 0 serves it");
        crate::region::note_as_left(&alone, &noted);
        drop(alone);
        pair.rebuild(0, TargetContents::Keep).expect("a side that was replaced");
        let both = pair.both().expect("both have every write");
        assert!(!crate::region::knows_changed(&both, &noted), "side 0 left the disk so");
        assert_eq!(pair.sides.each_ref().map(|side| Xattr::Disk.read(side)), [None, None]);
    }

    #[test]
    fn a_source_whose_page_is_damaged_is_told_apart_from_a_plain_region() {
        let pair = Pair::new();
        let file = std::fs::File::options().write(true).open(&pair.sides[0]).expect("a side");
        MIRROR_SLOTS_AT.into_iter().for_each(|slot| {
            file.write_all_at(&[0xff], BYTES - MIRROR_PAGE_BYTES + slot + 16).expect("a byte within each set id");
        });
        let damaged = pair.rebuild(0, TargetContents::Keep).err();
        let Some(RegionFailure::Mirror(MirrorFailure::One { error, .. })) = damaged else { panic!("{damaged:?}") };
        assert_eq!(error, MirrorError::DamagedPage { region: 0 });
        pair.rebuild(1, TargetContents::Overwrite).expect("the other side has every write");
        pair.both().expect("both have every write");
    }

    #[test]
    fn a_region_of_its_own_has_no_page_left_of_a_mirror() {
        let pair = Pair::new();
        let former = crate::region::map_to_overwrite(&pair.sides[0]).expect("a side").into_reader();
        mirror::leave(&pair.sides[0], &former).expect("a file");
        drop(former);
        let plain = mirror::open(&pair.sides[0], &MirrorPlan::Absent, Access::ReadWrite).expect("no side any more");
        assert_eq!((plain.len(), MirrorState::of(&plain).is_some()), (BYTES, false));
    }

    #[test]
    fn a_rebuild_needs_a_side_and_a_region_of_its_length() {
        let pair = Pair::new();
        let (plain, short) = (pair.at("plain"), pair.at("short"));
        drop((fresh(&plain, BYTES), fresh(&short, BYTES - 4096)));
        let refused = |source: &Path, target: &Path| rebuild(source, target, TargetContents::Keep, |_| ()).err();
        let no_side = refused(&plain, &pair.sides[1]);
        let Some(RegionFailure::Mirror(MirrorFailure::One { error, .. })) = no_side else { panic!("{no_side:?}") };
        assert_eq!(error, MirrorError::NotASide { region: 0 });
        let short = refused(&pair.sides[0], &short);
        let Some(RegionFailure::Mirror(MirrorFailure::Two { error, .. })) = short else { panic!("{short:?}") };
        assert_eq!(error, MirrorError::Lengths { lengths: [BYTES, BYTES - 4096] });
        let same = refused(&pair.sides[0], &pair.sides[0]);
        assert!(matches!(same, Some(RegionFailure::Mirror(MirrorFailure::Same { .. }))), "{same:?}");
        let link = pair.at("link");
        std::fs::hard_link(&pair.sides[0], &link).expect("a second name");
        let same = refused(&pair.sides[0], &link);
        assert!(matches!(same, Some(RegionFailure::Mirror(MirrorFailure::Same { .. }))), "{same:?}");
        pair.both().expect("nothing was changed");
    }

    #[test]
    fn a_side_is_a_plain_region_only_for_a_look() {
        let pair = Pair::new();
        for side in &pair.sides {
            for plain in [
                mirror::open(side, &MirrorPlan::Absent, Access::ReadWrite),
                crate::region::map(side, Access::ReadWrite),
            ] {
                let Err(RegionFailure::Mirror(MirrorFailure::IsSide { path })) = plain else { panic!("a side alone") };
                assert_eq!(path, *side);
            }
            let look = crate::region::map(side, Access::Private).expect("a look");
            assert_eq!((look.len(), first_byte(&look)), (BYTES - MIRROR_PAGE_BYTES, 1));
        }
        pair.both().expect("a look changes nothing");
    }
}
