//! What is known of a descriptor, in one word.

/// What is known of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownDescriptor {
    /// Nobody knows.
    Nothing {
        /// As [`Descriptor::is_own`].
        is_own: bool,
    },
    /// It has no direct path.
    Plain {
        /// Whether its file is in the mount that has the board of contexts.
        is_in_mount: bool,
    },
    /// It may have one: its first sync tells, or one of its next writes.
    MaybeLater {
        /// How often it was written.
        writes: u32,
        /// As above.
        is_in_mount: bool,
        /// Each write goes to the end (`O_APPEND`).
        appends: bool,
        /// As [`Descriptor::is_own`].
        is_own: bool,
        /// Where a mount's board says whether its file may have a lease.
        place: Option<u16>,
    },
    /// It leads to the file of this slot.
    File(Descriptor),
}

/// A descriptor of a file of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) slot: u16,
    /// Each write goes to the end (`O_APPEND`).
    pub(crate) appends: bool,
    /// Each write is a sync (`O_SYNC`, `O_DSYNC`).
    pub(crate) syncs: bool,
    /// It is open for writing alone.
    pub(crate) is_write_only: bool,
    /// This process opened it, and no other has its open file description: nobody else changes its
    /// flags.
    pub(crate) is_own: bool,
}

/// The bit of a word that says `is_own`.
pub(crate) const OWN: u64 = 1 << 5;

fn own(is_own: bool) -> u64 {
    if is_own { OWN } else { 0 }
}

impl KnownDescriptor {
    /// The word that says so; 0: nothing.
    pub(crate) fn word(self) -> u64 {
        match self {
            KnownDescriptor::Nothing { is_own } => own(is_own),
            KnownDescriptor::Plain { is_in_mount } => 1 | u64::from(is_in_mount) << 2,
            KnownDescriptor::MaybeLater { writes, is_in_mount, appends, is_own, place } => {
                let flags = u64::from(is_in_mount) << 2 | u64::from(appends) << 3 | own(is_own);
                2 | flags | u64::from(writes) << 8 | place.map_or(0, |place| u64::from(place) + 1) << 40
            }
            KnownDescriptor::File(Descriptor { slot, appends, syncs, is_write_only, is_own }) => {
                let flags = u64::from(appends) << 2 | u64::from(syncs) << 3 | u64::from(is_write_only) << 4;
                3 | flags | own(is_own) | u64::from(slot) << 8
            }
        }
    }

    /// What a word says.
    pub(crate) fn of(word: u64) -> KnownDescriptor {
        let is_own = word & OWN != 0;
        match word & 3 {
            0 => KnownDescriptor::Nothing { is_own },
            1 => KnownDescriptor::Plain { is_in_mount: word & 4 != 0 },
            2 => KnownDescriptor::MaybeLater {
                writes: u32::try_from(word >> 8 & u64::from(u32::MAX)).unwrap_or(u32::MAX),
                is_in_mount: word & 4 != 0,
                appends: word & 8 != 0,
                is_own,
                place: (word >> 40).checked_sub(1).and_then(|place| u16::try_from(place).ok()),
            },
            _ => KnownDescriptor::File(Descriptor {
                slot: u16::try_from(word >> 8).unwrap_or(u16::MAX),
                appends: word & 4 != 0,
                syncs: word & 8 != 0,
                is_write_only: word & 16 != 0,
                is_own,
            }),
        }
    }

    /// Whether this process opened it and nobody else has its open file description.
    pub(crate) fn is_own(self) -> bool {
        self.word() & OWN != 0
    }
}
