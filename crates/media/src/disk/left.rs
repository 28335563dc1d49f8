//! How a disk in a file was left: its size and the time of its last change, noted beside the region
//! at a clean end. A program that writes to such a disk without its region makes the cached blocks
//! stale, and no other record would tell.
//!
//! The note means that the disk was not written through the region since. So it goes, durably,
//! before the disk is written through the region again ([`MappedRegion::forget_disk`]), and is made
//! when these writes have ended ([`FileDisk::note_as_left`]). A kill or a power cut in between
//! leaves none, and the disk's state is not known then. The disk's own attributes are synced before
//! they are noted: a time that went back with the power would look like a change.
//!
//! A convenience: of block devices, and where the file system of the region keeps no attributes,
//! there is no note.

use super::FileDisk;
use crate::mapped::MappedRegion;
use rustix::fs::XattrFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

const ATTRIBUTE: &str = "user.tidegate.disk-left";

/// Bytes of a note: three numbers.
const NOTE_BYTES: usize = 24;

impl FileDisk {
    /// Notes at the file of `region`, which caches this disk, how the disk is: nobody writes to it
    /// through the region any more.
    pub fn note_as_left(&self, region: &MappedRegion) {
        let state = self.file.sync_all().and_then(|()| state_of(&self.file));
        if let (Some(file), Ok(Some(state))) = (region.file(), state) {
            // Without the note nothing is known.
            let _ = rustix::fs::fsetxattr(file, ATTRIBUTE, &state, XattrFlags::empty());
        }
    }

    /// Whether this disk is known to be another than it was when the file of `region`, which caches
    /// it, was left in good order.
    pub fn was_changed_without(&self, region: &MappedRegion) -> bool {
        let noted = region.file().and_then(noted_at);
        matches!((noted, state_of(&self.file)), (Some(noted), Ok(Some(now))) if now != noted)
    }
}

impl MappedRegion {
    /// Nothing is known of the disk that this region caches from now on, whatever happens: it is
    /// about to be written through the region.
    pub fn forget_disk(&self) -> io::Result<()> {
        self.file().map_or(Ok(()), forget_at)
    }
}

/// How a disk is: its size, and the time of its last change. None: it is no file.
fn state_of(disk: &File) -> io::Result<Option<[u8; NOTE_BYTES]>> {
    let there = disk.metadata()?;
    let mut state = [0; NOTE_BYTES];
    let numbers = [there.len().to_le_bytes(), there.mtime().to_le_bytes(), there.mtime_nsec().to_le_bytes()];
    state.copy_from_slice(numbers.as_flattened());
    Ok(there.is_file().then_some(state))
}

fn forget_at(file: &File) -> io::Result<()> {
    // A device refuses even that nothing is removed.
    if noted_at(file).is_none() {
        return Ok(());
    }
    rustix::fs::fremovexattr(file, ATTRIBUTE)?;
    file.sync_all()
}

/// What is noted at a region's file.
fn noted_at(file: &File) -> Option<[u8; NOTE_BYTES]> {
    let mut noted = [0; NOTE_BYTES];
    let len = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut noted[..]).ok()?;
    (len == NOTE_BYTES).then_some(noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_nothing_to_forget() {
        let device = File::options().write(true).open("/dev/null").expect("a device");
        assert!(rustix::fs::fremovexattr(&device, ATTRIBUTE).is_err());
        forget_at(&device).expect("nothing was noted");
    }
}
