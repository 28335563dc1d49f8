//! C programs that are run with and without `tidegate run-log`.

use crate::artefacts::CProgram;

/// Makes random calls of every kind that is followed, and prints what each returned and what the
/// files hold then. The arguments are a seed and a number of calls; a third one has most files
/// opened so that each write is a sync.
pub const DRIVER: CProgram =
    CProgram { name: "driver", source: include_str!("driver.c"), flags: &["-pthread"], packages: "gcc libc6-dev" };

/// Processes that make, sync, remove, rename and link files with few names, over and over, and
/// print what each call returned and what the files hold then. The arguments are a seed and a
/// number of acts.
pub const NAMER: CProgram =
    CProgram { name: "namer", source: include_str!("namer.c"), flags: &[], packages: "gcc libc6-dev" };

/// Syncs a folder in which it holds a name, and once more when something was done to it, which the
/// argument says; and prints where both syncs ended.
pub const FOLDERS: CProgram =
    CProgram { name: "folders", source: include_str!("folders.c"), flags: &[], packages: "gcc libc6-dev" };

/// Appends lines to the file of its first argument, syncs each, and prints its number when the sync
/// has returned.
pub const APPENDER: CProgram =
    CProgram { name: "appender", source: include_str!("appender.c"), flags: &[], packages: "gcc libc6-dev" };

/// Commits numbered transactions to the SQLite database of its first argument, for ever, and prints
/// the number of each when its commit has returned. The further arguments are how many processes do
/// so, and words for SQLite to begin with.
pub const COMMITTER: CProgram = CProgram {
    name: "committer",
    source: include_str!("committer.c"),
    flags: &["-lsqlite3"],
    packages: "gcc libc6-dev libsqlite3-dev",
};

/// Does numbered steps on two files, and prints the number of each when its sync has returned.
/// [`Steps`](super::Steps) does the same. A fourth argument has the writes be the syncs.
pub const STEPPER: CProgram =
    CProgram { name: "stepper", source: include_str!("stepper.c"), flags: &[], packages: "gcc libc6-dev" };

/// Syncs a file that is also open in a way that no library sees. The argument says which.
pub const UNSEEN: CProgram =
    CProgram { name: "unseen", source: include_str!("unseen.c"), flags: &[], packages: "gcc libc6-dev" };

/// Holds a file that somebody appends to before each of its later syncs. The argument says who.
pub const OUTSIDE: CProgram =
    CProgram { name: "outside", source: include_str!("outside.c"), flags: &[], packages: "gcc libc6-dev" };

/// Writes a file that it has mapped for reading. The argument says what it does with the mapping
/// then.
pub const MAPPED: CProgram =
    CProgram { name: "mapped", source: include_str!("mapped.c"), flags: &[], packages: "gcc libc6-dev" };

/// Changes a file's mode between syncs of its contents alone and of all of it, as often as its
/// argument says.
pub const MODES: CProgram =
    CProgram { name: "modes", source: include_str!("modes.c"), flags: &[], packages: "gcc libc6-dev" };

/// Makes, syncs and removes many files, and tells how many of them the supervisor has still open.
pub const DELETER: CProgram =
    CProgram { name: "deleter", source: include_str!("deleter.c"), flags: &[], packages: "gcc libc6-dev" };

/// Threads that write one file and sync it until they are killed, and note which writes were
/// synced.
pub const CROWD: CProgram =
    CProgram { name: "crowd", source: include_str!("crowd.c"), flags: &["-pthread"], packages: "gcc libc6-dev" };

/// Writes a file whose writes are syncs, and looks for what the library has to do with it. The
/// arguments say what happens to the file, and whether it is opened to append.
pub const LOUD: CProgram =
    CProgram { name: "loud", source: include_str!("loud.c"), flags: &["-pthread"], packages: "gcc libc6-dev" };

/// Writes a held file in a child that no library sees begin. The arguments say how the child
/// begins, and who syncs what it wrote.
pub const CHILDREN: CProgram =
    CProgram { name: "children", source: include_str!("children.c"), flags: &["-pthread"], packages: "gcc libc6-dev" };

/// Processes that write and sync one file until they are killed, and tell what was synced. The
/// arguments are the file, how many they are, and a seed.
pub const WRITERS: CProgram =
    CProgram { name: "writers", source: include_str!("writers.c"), flags: &[], packages: "gcc libc6-dev" };

/// Writes places of a file, each write a sync, and says what each returned. The arguments are the
/// file and where in it the places begin.
pub const FAILING: CProgram =
    CProgram { name: "failing", source: include_str!("failing.c"), flags: &[], packages: "gcc libc6-dev" };

/// Stores by mistake to what it has mapped of the pool and of the table, as seen by threads of
/// every kind, between syncs. The arguments are a folder, a number of lines, and "die" if the last
/// of these stores is to be its end.
pub const STRAY: CProgram =
    CProgram { name: "stray", source: include_str!("stray.c"), flags: &["-pthread"], packages: "gcc libc6-dev" };

/// Makes every call that reads memory of its caller with addresses at which there is none, and
/// prints what each answered.
pub const ADDRESSES: CProgram =
    CProgram { name: "addresses", source: include_str!("addresses.c"), flags: &["-w"], packages: "gcc libc6-dev" };

/// Writes a file and syncs it until it is killed, and gives it another path amid that. The argument
/// says how.
pub const MOVER: CProgram =
    CProgram { name: "mover", source: include_str!("mover.c"), flags: &[], packages: "gcc libc6-dev" };
