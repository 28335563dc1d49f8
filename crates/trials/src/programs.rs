//! C programs that are run in a mount, with and without the direct path, and what they have to
//! find.

mod steps;

pub use steps::Steps;

use crate::artefacts::CProgram;

/// Makes random calls of every kind about files, and prints what each returned and what the files
/// hold then. The arguments are a seed, a number of calls, `loud` to have most files opened so that
/// each write is a sync, and a number of processes.
pub const DRIVER: CProgram =
    CProgram { name: "driver", source: include_str!("programs/driver.c"), flags: &["-pthread"], packages: GCC };

/// Processes that make, sync, remove, rename and link files with few names, over and over, and
/// print what each call returned and what the files hold then. The arguments are a seed and a
/// number of acts.
pub const NAMER: CProgram =
    CProgram { name: "namer", source: include_str!("programs/namer.c"), flags: &[], packages: GCC };

/// Makes every call that reads memory of its caller with addresses at which there is none, and
/// prints what each answered.
pub const ADDRESSES: CProgram =
    CProgram { name: "addresses", source: include_str!("programs/addresses.c"), flags: &["-w"], packages: GCC };

/// Writes a file whose writes are syncs. The arguments say what happens to the file, and whether it
/// is opened to append.
pub const LOUD: CProgram =
    CProgram { name: "loud", source: include_str!("programs/loud.c"), flags: &["-pthread"], packages: GCC };

/// Does numbered steps on two files, and prints the number of each when its sync has returned.
/// [`Steps`] does the same. A fourth argument has the writes be the syncs.
pub const STEPPER: CProgram =
    CProgram { name: "stepper", source: include_str!("programs/stepper.c"), flags: &[], packages: GCC };

/// Threads that write one file and sync it until they are killed, and note which writes were
/// synced.
pub const CROWD: CProgram =
    CProgram { name: "crowd", source: include_str!("programs/crowd.c"), flags: &["-pthread"], packages: GCC };

/// Has the descriptor of a leased file changed by a copy of it, by another process or within libc,
/// and demands that its next write sees that. The arguments are the way and two names of files.
pub const SHARER: CProgram =
    CProgram { name: "sharer", source: include_str!("programs/sharer.c"), flags: &[], packages: GCC };

/// Writes a leased file in a child that no library sees begin. The arguments say how the child
/// begins, and who syncs what it wrote.
pub const CHILDREN: CProgram =
    CProgram { name: "children", source: include_str!("programs/children.c"), flags: &["-pthread"], packages: GCC };

/// Processes that write and sync one file until they are killed, and tell what was synced. The
/// arguments are the file, how many they are, and a seed.
pub const WRITERS: CProgram =
    CProgram { name: "writers", source: include_str!("programs/writers.c"), flags: &[], packages: GCC };

/// Writes a file and syncs it until it is killed, and gives it another path amid that. The argument
/// says how.
pub const MOVER: CProgram =
    CProgram { name: "mover", source: include_str!("programs/mover.c"), flags: &[], packages: GCC };

/// Commits numbered transactions to the SQLite database of its first argument, for ever, and prints
/// the number of each when its commit has returned. The further arguments are how many processes do
/// so, and words for SQLite to begin with.
pub const COMMITTER: CProgram = CProgram {
    name: "committer",
    source: include_str!("programs/committer.c"),
    flags: &["-lsqlite3"],
    packages: "gcc libc6-dev libsqlite3-dev",
};

/// A program that writes and syncs in many ways: see its head.
pub(crate) const CLIENT: CProgram =
    CProgram { name: "direct-client", source: include_str!("programs/client.c"), flags: &["-pthread"], packages: GCC };

/// A program whose one thread reads one file by two functions, in two ways: see its head.
pub const CONTEXTS: CProgram =
    CProgram { name: "contexts", source: include_str!("programs/contexts.c"), flags: &["-O1"], packages: GCC };

/// Writes a file by one call or many, from memory that is there or not: see its head.
pub const PAGES: CProgram =
    CProgram { name: "pages", source: include_str!("programs/pages.c"), flags: &["-pthread"], packages: GCC };

/// Maps a file directly, and does with it what its input says: see its head.
pub const MAPPER: CProgram =
    CProgram { name: "mapper", source: include_str!("programs/mapper.c"), flags: &[HEADERS], packages: GCC };

/// Where the header of direct mappings is.
pub(crate) const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../direct-preload/include");

const GCC: &str = "gcc libc6-dev";
