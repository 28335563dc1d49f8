//! Whose a disk is: noted beside the contents of a file, in an extended attribute, as long as a
//! region is attached to it and may have blocks that it lacks.
//!
//! The mark names the file as well, so a copy that came with attributes and all is nobody's, and
//! one that was renamed is still the region's. A block device has none, nor has a file where the
//! file system keeps no attributes.

use super::FileDisk;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const ATTRIBUTE: &str = "user.tidegate.region";

/// The first byte of a mark of this form.
const FORM: u8 = 1;

/// No mark is longer: a byte, two identities, and a path.
const MARK_BYTES_MAX: usize = 1 + 16 + 32 + 4096;

/// The region that a disk belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskMark {
    /// Its identity.
    pub region: [u8; 16],
    /// Where it was.
    pub place: PathBuf,
}

impl FileDisk {
    /// The region that the disk is marked for.
    pub fn mark(&self) -> Option<DiskMark> {
        let mut bytes = vec![0; MARK_BYTES_MAX];
        let len = fgetxattr(&*self.file, ATTRIBUTE, &mut bytes[..]).ok()?;
        let (form, rest) = bytes[..len].split_first()?;
        let (region, rest) = rest.split_first_chunk::<16>()?;
        let (disk, place) = rest.split_first_chunk::<32>()?;
        let place = OsString::from_vec(place.to_vec()).into();
        ((*form, *disk) == (FORM, self.identity.0)).then_some(DiskMark { region: *region, place })
    }

    /// Marks the disk, durably. `Ok(false)`: it keeps no mark.
    ///
    /// # Errors
    /// The system refuses it for another reason.
    pub fn set_mark(&self, mark: &DiskMark) -> io::Result<bool> {
        if !self.geometry.fast_zeroes {
            return Ok(false);
        }
        let bytes = [&[FORM][..], &mark.region, &self.identity.0, mark.place.as_os_str().as_bytes()].concat();
        match fsetxattr(&*self.file, ATTRIBUTE, &bytes, XattrFlags::empty()) {
            Ok(()) => self.file.sync_all().map(|()| true),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the mark of `region` away, durably, if the disk has that.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn clear_mark(&self, region: [u8; 16]) -> io::Result<()> {
        if self.mark().is_none_or(|mark| mark.region != region) {
            return Ok(());
        }
        fremovexattr(&*self.file, ATTRIBUTE)?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::disk::DiskAccess;
    use std::fs::{self, File};
    use std::process::Command;

    #[test]
    fn a_mark_goes_with_its_file_and_not_with_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved, copy] = ["disk", "moved", "copy"].map(|name| folder.path().join(name));
        File::create(&path).unwrap().set_len(4096).unwrap();
        let open = |path| FileDisk::open(path, DiskAccess::ReadWrite, 512).unwrap();
        let mark = DiskMark { region: [7; 16], place: "/a region".into() };
        assert_eq!(open(&path).mark(), None);
        assert!(open(&path).set_mark(&mark).unwrap());
        fs::rename(&path, &moved).unwrap();
        let copied = Command::new("cp").args(["--archive", "--"]).args([&moved, &copy]).status().unwrap();
        assert!(copied.success() && rustix::fs::getxattr(&copy, ATTRIBUTE, &mut [0; 100][..]).is_ok());
        assert_eq!((open(&moved).mark(), open(&copy).mark()), (Some(mark), None));
        open(&moved).clear_mark([8; 16]).unwrap();
        assert!(open(&moved).mark().is_some(), "that of another region stays");
        open(&moved).clear_mark([7; 16]).unwrap();
        assert_eq!(open(&moved).mark(), None);
    }
}
