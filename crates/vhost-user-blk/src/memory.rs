//! The memory of a virtual machine, as its monitor shares it: files mapped here, by the addresses
//! of the guest and by those of the monitor.

use rustix::fs::fstat;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// The mapped memory, for the threads of rings.
pub(crate) type Mapped = Arc<GuestMemoryMmap>;

/// Files that a monitor may share, as many as it may name in one message.
pub(crate) const REGIONS_MAX: usize = 32;

/// What a monitor shared so far.
pub(crate) struct SharedMemory {
    mapped: Mapped,
    places: Vec<Place>,
}

/// A part of the guest's memory, where the guest has it and where its monitor has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) guest: u64,
    pub(crate) monitor: u64,
    pub(crate) bytes: u64,
    pub(crate) file_offset: u64,
}

impl From<&VhostUserMemoryRegion> for Place {
    fn from(told: &VhostUserMemoryRegion) -> Place {
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *told;
        Place { guest: guest_phys_addr, monitor: user_addr, bytes: memory_size, file_offset: mmap_offset }
    }
}

/// Memory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryFailure {
    /// The file behind it ends before.
    #[error("the file behind shared memory has {has} bytes, and {needs} are needed")]
    FileTooShort {
        /// Its bytes.
        has: i64,
        /// Bytes that were said to be there.
        needs: u64,
    },
    /// An address outside all of it.
    #[error("address {at:#x} is not in the shared memory")]
    NotShared {
        /// Which.
        at: u64,
    },
    /// More files than are mapped.
    #[error("more than {} files of shared memory", crate::memory::REGIONS_MAX)]
    TooMany,
    /// It cannot be mapped.
    #[error("{bytes} bytes of shared memory at {at:#x} cannot be mapped: {why}")]
    Refused {
        /// Where the guest has it.
        at: u64,
        /// Its bytes.
        bytes: u64,
        /// Why.
        why: String,
    },
}

impl MemoryFailure {
    pub(crate) fn refused(place: Place, why: impl fmt::Display) -> MemoryFailure {
        MemoryFailure::Refused { at: place.guest, bytes: place.bytes, why: why.to_string() }
    }
}

impl SharedMemory {
    /// None yet.
    pub(crate) fn none() -> SharedMemory {
        SharedMemory { mapped: Arc::default(), places: Vec::new() }
    }

    /// Whether there is any.
    pub(crate) fn is_shared(&self) -> bool {
        !self.places.is_empty()
    }

    /// All of it, for a thread.
    pub(crate) fn mapped(&self) -> Mapped {
        Arc::clone(&self.mapped)
    }

    /// Takes `table` instead of what there was.
    pub(crate) fn replace(&mut self, table: Vec<(Place, File)>) -> Result<(), MemoryFailure> {
        let mut fresh = SharedMemory::none();
        table.into_iter().try_for_each(|(place, file)| fresh.add(place, file))?;
        *self = fresh;
        Ok(())
    }

    /// Maps one more file.
    pub(crate) fn add(&mut self, place: Place, file: File) -> Result<(), MemoryFailure> {
        if self.places.len() == REGIONS_MAX {
            return Err(MemoryFailure::TooMany);
        }
        let region = Arc::new(map(place, file)?);
        let grown = self.mapped.insert_region(region).map_err(|error| MemoryFailure::refused(place, error))?;
        self.mapped = Arc::new(grown);
        self.places.push(place);
        Ok(())
    }

    /// Unmaps what `place` names by its addresses and length.
    pub(crate) fn remove(&mut self, place: Place) -> Result<(), MemoryFailure> {
        let same =
            |known: &Place| (known.guest, known.monitor, known.bytes) == (place.guest, place.monitor, place.bytes);
        let index = self.places.iter().position(same).ok_or(MemoryFailure::NotShared { at: place.guest })?;
        let removed = self.mapped.remove_region(GuestAddress(place.guest), place.bytes);
        let (left, _unmapped) = removed.map_err(|error| MemoryFailure::refused(place, error))?;
        self.mapped = Arc::new(left);
        self.places.remove(index);
        Ok(())
    }

    /// Where the guest has what its monitor has at `monitor`.
    pub(crate) fn guest_address(&self, monitor: u64) -> Result<u64, MemoryFailure> {
        let found = self.places.iter().find_map(|place| {
            let offset = monitor.checked_sub(place.monitor)?;
            (offset < place.bytes).then(|| place.guest + offset)
        });
        found.ok_or(MemoryFailure::NotShared { at: monitor })
    }
}

fn map(place: Place, file: File) -> Result<GuestRegionMmap, MemoryFailure> {
    let ends = [place.guest, place.monitor, place.file_offset].map(|start| start.checked_add(place.bytes));
    let [Some(_), Some(_), Some(file_end)] = ends else {
        return Err(MemoryFailure::refused(place, "it does not end within 64 bits"));
    };
    let has = fstat(&file).map_err(|errno| MemoryFailure::refused(place, errno))?.st_size;
    if u64::try_from(has).unwrap_or(0) < file_end {
        return Err(MemoryFailure::FileTooShort { has, needs: file_end });
    }
    let bytes = usize::try_from(place.bytes).map_err(|error| MemoryFailure::refused(place, error))?;
    let mapping = MmapRegion::from_file(FileOffset::new(file, place.file_offset), bytes);
    let mapping = mapping.map_err(|error| MemoryFailure::refused(place, error))?;
    let region = GuestRegionMmap::new(mapping, GuestAddress(place.guest));
    region.ok_or_else(|| MemoryFailure::refused(place, "it reaches past the last address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vm_memory::Bytes;

    fn file(bytes: u64) -> File {
        let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC).expect("memory"));
        ftruncate(&file, bytes).expect("its length");
        file
    }

    fn place(guest: u64, monitor: u64, bytes: u64) -> Place {
        Place { guest, monitor, bytes, file_offset: 0 }
    }

    #[test]
    fn addresses_of_the_monitor_become_those_of_the_guest() {
        let mut memory = SharedMemory::none();
        memory.add(place(0x1_0000, 0x7000_0000, 8192), file(8192)).expect("the first");
        memory.add(place(0x2_0000, 0x5000_0000, 4096), file(4096)).expect("the second");
        assert_eq!(memory.guest_address(0x7000_1000).expect("inside"), 0x1_1000);
        assert_eq!(memory.guest_address(0x5000_0fff).expect("inside"), 0x2_0fff);
        for outside in [0, 0x6fff_ffff, 0x7000_2000, u64::MAX] {
            assert!(matches!(memory.guest_address(outside), Err(MemoryFailure::NotShared { at }) if at == outside));
        }
        memory.mapped().write_obj(7_u64, GuestAddress(0x1_1ff8)).expect("the last word");
        assert!(memory.mapped().write_obj(7_u64, GuestAddress(0x1_1ffc)).is_err(), "half of it is outside");
        memory.remove(place(0x1_0000, 0x7000_0000, 8192)).expect("it is known");
        assert!(memory.guest_address(0x7000_1000).is_err());
        assert!(memory.remove(place(0x1_0000, 0x7000_0000, 8192)).is_err(), "it is gone");
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let mut memory = SharedMemory::none();
        let refused = memory.add(place(0, 0, 8192), file(4096));
        assert!(matches!(refused, Err(MemoryFailure::FileTooShort { has: 4096, needs: 8192 })), "{refused:?}");
        assert!(memory.add(place(u64::MAX - 4095, 0, 8192), file(8192)).is_err());
        assert!(memory.add(Place { file_offset: u64::MAX, ..place(0, 0, 4096) }, file(4096)).is_err());
        memory.add(place(0, 0, 8192), file(8192)).expect("whole");
        assert!(memory.add(place(4096, 1 << 30, 8192), file(8192)).is_err(), "it overlaps");
        let table = vec![(place(0, 0, 4096), file(4096)), (place(0, 0, 4096), file(4096))];
        assert!(memory.replace(table).is_err());
        assert_eq!(memory.guest_address(4096).expect("what there was stays"), 4096);
    }

    #[test]
    fn no_more_files_are_mapped_than_a_monitor_may_name() {
        let mut memory = SharedMemory::none();
        for nth in 0..REGIONS_MAX as u64 {
            memory.add(place(nth << 20, nth << 20, 4096), file(4096)).expect("one more");
        }
        assert!(matches!(memory.add(place(1 << 40, 1 << 40, 4096), file(4096)), Err(MemoryFailure::TooMany)));
    }
}
