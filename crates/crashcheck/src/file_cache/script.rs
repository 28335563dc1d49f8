//! Steps of scripts.

/// What a program, or whoever writes back, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStep {
    /// Writes `len` bytes at `at`.
    Write {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// A write of bytes with `O_DSYNC`.
    WriteSync {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// A write of bytes with `O_DIRECT`.
    WriteDirect {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// A group of two writes of `len` bytes each, far from each other.
    Group {
        /// Number of the file.
        file: usize,
        /// Offsets, ascending.
        at: [u64; 2],
        /// Bytes.
        len: usize,
    },
    /// Appends `len` bytes.
    Append {
        /// Number of the file.
        file: usize,
        /// Bytes.
        len: usize,
    },
    /// Sets the time of the last change.
    SetTime(usize),
    /// Syncs the file.
    Sync(usize),
    /// Cuts or extends the file.
    Truncate {
        /// Number of the file.
        file: usize,
        /// New length.
        size: u64,
    },
    /// Makes a hole of a range.
    Punch {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Makes a range zeroes, to which the file reaches then.
    Zero {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Writes back one batch of any size.
    WriteBack,
    /// Has every unsynced write leave DRAM.
    WriteDirty,
    /// Has one unsynced write leave DRAM, or some that overlap: the oldest one's file chooses.
    WriteDirtyOne,
    /// Makes clean entries of what only the file below has, as after a read.
    Admit(usize),
    /// Has a placement give up the file's clean entries: a program reads them that does not deserve
    /// them.
    Unwanted(usize),
    /// Brings the file below, and drops it.
    Drain(usize),
    /// Closes the file, and opens it again.
    Close(usize),
    /// A program writes `len` bytes at `at` by a lease, which it gets first if it has none.
    LeasedWrite {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// That program syncs the file.
    LeasedSync(usize),
    /// That program asks for the file's length, and reads it, without an end of its lease.
    LeasedRead(usize),
    /// The pool refills the lease, before the program asks.
    Refill(usize),
    /// That program ends.
    EndLease(usize),
    /// A program maps the whole pages of a file.
    Map(usize),
    /// It stores `len` bytes at `at` of what it has mapped.
    MappedStore {
        /// Number of the file.
        file: usize,
        /// Offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// It makes durable what it stored (`msync`).
    Msync(usize),
    /// It makes all of that durable, and gives the pages back; it has the place still where it says
    /// when it stored, and may map the file again.
    GiveBack(usize),
    /// Its mapping ends.
    Unmap(usize),
    /// The process ends; the next one brings all that it left below.
    Reopen,
    /// The process ends; the next one goes on with what it left.
    Restart,
    /// All is written back, and the process ends; somebody else changes the file below before the
    /// next one begins.
    Strange(usize),
}

impl FileStep {
    /// A little of everything.
    pub const ALPHABET: [FileStep; 22] = [
        FileStep::Write { file: 0, at: 0, len: 300 },
        FileStep::Write { file: 0, at: 500, len: 40 },
        FileStep::WriteSync { file: 0, at: 20, len: 30 },
        FileStep::WriteSync { file: 1, at: 0, len: 100 },
        FileStep::WriteDirect { file: 0, at: 15, len: 350 },
        FileStep::Group { file: 0, at: [10, 410], len: 50 },
        FileStep::Append { file: 0, len: 60 },
        FileStep::Append { file: 1, len: 24 },
        FileStep::SetTime(0),
        FileStep::Sync(0),
        FileStep::Sync(1),
        FileStep::Truncate { file: 0, size: 25 },
        FileStep::Truncate { file: 0, size: 400 },
        FileStep::Punch { file: 0, at: 30, len: 290 },
        FileStep::Zero { file: 0, at: 10, len: 90 },
        FileStep::WriteBack,
        FileStep::WriteDirty,
        FileStep::Admit(0),
        FileStep::Drain(0),
        FileStep::Close(0),
        FileStep::Reopen,
        FileStep::Restart,
    ];
}
