//! Steps of scripts.

/// What a program, or the service behind its back, does. A step that the file system refuses, as
/// for a name that is not there, changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStep {
    /// Makes an empty file.
    Create(&'static str),
    /// Makes a directory.
    MakeDirectory(&'static str),
    /// Gives a file one more name.
    Link(&'static str, &'static str),
    /// Removes a name, or an empty directory.
    Remove(&'static str),
    /// Renames, and replaces what has the new name.
    Rename(&'static str, &'static str),
    /// Exchanges two names.
    Exchange(&'static str, &'static str),
    /// Sets permissions.
    SetMode(&'static str, u32),
    /// Sets an extended attribute to so many bytes.
    SetXattr(&'static str, usize),
    /// Removes that extended attribute.
    RemoveXattr(&'static str),
    /// Writes so many bytes at the file's beginning.
    Write(&'static str, usize),
    /// Cuts or extends a file.
    Truncate(&'static str, u64),
    /// Syncs a file.
    Sync(&'static str),
    /// Syncs a directory.
    SyncDirectory,
    /// Writes back one batch of contents of any size.
    WriteBack,
    /// Syncs SOURCE, and lets the log give up what is durable there.
    SyncSource,
    /// The process ends; the next one recovers.
    Reopen,
}

impl NameStep {
    /// A little of everything.
    pub const ALPHABET: [NameStep; 17] = [
        NameStep::Create("a"),
        NameStep::Create("d/f"),
        NameStep::MakeDirectory("d"),
        NameStep::Link("a", "b"),
        NameStep::Remove("a"),
        NameStep::Remove("d"),
        NameStep::Rename("a", "b"),
        NameStep::Rename("d", "e"),
        NameStep::Exchange("a", "b"),
        NameStep::SetMode("a", 0o600),
        NameStep::SetXattr("a", 3),
        NameStep::Write("a", 30),
        NameStep::Truncate("a", 10),
        NameStep::Sync("a"),
        NameStep::SyncDirectory,
        NameStep::WriteBack,
        NameStep::SyncSource,
    ];
}
