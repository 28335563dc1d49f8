//! Steps of protocols, and the names and bytes in them.

/// A step. In a path, `{}` is the number of the act, `{-}` that of the act before, `{2}` and `{4}`
/// the number modulo 2 and 4, and `{p}` the process. Bytes are the number of [`Turn::number`],
/// again and again. A step that the file system refuses, as for a name that is not there, changes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens a file, which is made if need be.
    Create(&'static str),
    /// Opens a file, which is made or emptied.
    Empty(&'static str),
    /// Makes a directory.
    MakeDirectory(&'static str),
    /// Writes so many bytes.
    Write(&'static str, At, u64),
    /// Writes so many bytes at the end, with `O_APPEND`.
    Append(&'static str, u64),
    /// Writes so many bytes with `O_DSYNC`.
    WriteThrough(&'static str, At, u64),
    /// Stores so many bytes through a shared mapping, and has them written by `msync`: whole pages
    /// arrive.
    MapAndSync(&'static str, At, u64),
    /// Writes the slots of a file of so many slots of so many bytes, each as the last act left it
    /// that wrote it, as a checkpoint does.
    WriteSlots(&'static str, u64, u64),
    /// Copies all bytes of a file over another one's, which is made if need be and cut to them.
    Copy(&'static str, &'static str),
    /// Copies a file over another one if it is whole, of so many bytes, and syncs that one.
    Restore(&'static str, &'static str, u64),
    /// Sets the length.
    Truncate(&'static str, At),
    /// Reserves room to the end of so many bytes, to which the file reaches then.
    Reserve(&'static str, u64),
    /// Makes a hole of so many bytes.
    Punch(&'static str, At, u64),
    /// Makes so many bytes zeroes.
    Zero(&'static str, At, u64),
    /// `fsync` of a file.
    Sync(&'static str),
    /// `fsync` of a directory; the empty name is the folder of the protocol.
    SyncDirectory(&'static str),
    /// Renames, and replaces what has the new name.
    Rename(&'static str, &'static str),
    /// Exchanges two names.
    Exchange(&'static str, &'static str),
    /// Gives a file one more name.
    Link(&'static str, &'static str),
    /// Removes a file or an empty directory.
    Remove(&'static str),
    /// Makes a file without a name (`O_TMPFILE`), and writes so many bytes to it.
    WriteUnnamed(u64),
    /// Syncs the file without a name.
    SyncUnnamed,
    /// Gives the file without a name this one.
    NameUnnamed(&'static str),
    /// Sets the extended attribute `user.state` to the number.
    SetXattr(&'static str),
    /// Sets permissions: those of [`Turn::mode`].
    SetMode(&'static str),
    /// Steps of each act whose number is a multiple of this one.
    Every(u64, &'static [Step]),
}

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At so many bytes.
    Byte(u64),
    /// At the act's record among records of so many bytes; the first act has the first one.
    Record(u64),
    /// At the record so many acts before, if there were so many.
    Before(u64, u64),
    /// At slot (act modulo the first number) of slots of so many bytes.
    Slot(u64, u64),
}

/// Which act of which process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The act, from 1.
    pub act: u64,
    /// The process, from 0.
    pub process: u64,
}

impl Step {
    pub(crate) fn of_act(self, act: u64) -> Vec<Step> {
        match self {
            Step::Every(acts, steps) if act.is_multiple_of(acts) => steps.to_vec(),
            Step::Every(..) => Vec::new(),
            step => vec![step],
        }
    }

    /// Whether the step is there to make something durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Step::Sync(_) | Step::SyncDirectory(_) | Step::SyncUnnamed)
    }
}

impl At {
    /// The offset; None: there is no such record.
    pub fn offset(self, act: u64) -> Option<u64> {
        match self {
            At::Byte(at) => Some(at),
            At::Record(bytes) => Some(act.checked_sub(1)? * bytes),
            At::Before(acts, bytes) => Some(act.checked_sub(acts + 1)? * bytes),
            At::Slot(slots, bytes) => Some(act % slots * bytes),
        }
    }
}

impl Turn {
    /// The path that a step or clause means, below the protocol's folder.
    pub fn path(self, path: &str) -> String {
        let Turn { act, process } = self;
        path.replace("{}", &act.to_string())
            .replace("{-}", &act.saturating_sub(1).to_string())
            .replace("{2}", &(act % 2).to_string())
            .replace("{4}", &(act % 4).to_string())
            .replace("{p}", &process.to_string())
    }

    /// What the act writes. No byte of two numbers' beginnings is zero.
    pub fn number(self) -> u64 {
        (self.process + 1) << 32 | self.act << 8 | 1
    }

    /// The permissions that the act sets: three take turns.
    pub fn mode(self) -> u32 {
        0o600 | [0, 0o40, 0o60][usize::try_from(self.act % 3).expect("few modes")]
    }

    /// Whose number it is.
    pub fn of_number(number: u64) -> Option<Turn> {
        let turn = Turn { act: number >> 8 & 0xff_ffff, process: (number >> 32).checked_sub(1)? };
        (turn.number() == number).then_some(turn)
    }

    /// So many bytes of the act's.
    pub fn bytes(self, bytes: u64) -> Vec<u8> {
        self.number().to_le_bytes().repeat(usize::try_from(bytes / 8).expect("few bytes"))
    }

    /// Slots, each as the last act left it that wrote it.
    pub fn slots(self, slots: u64, bytes: u64) -> Vec<u8> {
        let slot = |slot| {
            let act = (1..=self.act).rev().find(|act| act % slots == slot);
            act.map_or(vec![0; usize::try_from(bytes).expect("few bytes")], |act| Turn { act, ..self }.bytes(bytes))
        };
        (0..slots).flat_map(slot).collect()
    }

    /// Whose bytes these are, and nobody else's.
    pub fn of_bytes(bytes: &[u8]) -> Option<Turn> {
        let turn = Turn::of_number(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))?;
        (turn.bytes(bytes.len() as u64) == bytes).then_some(turn)
    }
}
