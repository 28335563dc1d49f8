//! What programs under `tidegate run-log` and their supervisor say to each other.
//!
//! A *request* is one packet of words on a unix socket, and so is its answer. The *table* is a file
//! that the supervisor writes and every program maps for reading: it names the files that some
//! process *holds*, so that a program learns without a request that there is nothing to ask.
//!
//! A program may also hold a *name*: it makes files with that name and removes them again. The
//! number that stands for a name is in the table like a file's; which file has it now its holder
//! says in a part of the table that programs may write, so that others know whose file they have.
//!
//! A file that several processes write is held by none of them, but *common*: each notes where it
//! writes, in memory that all of them have ([`notes`]), and the supervisor syncs it for whoever
//! asks.
//!
//! A crate of its own because the two sides must not meet: the library exports `write` and its
//! like, and would take them over in any program that it is linked into.

#![forbid(unsafe_code)]

pub mod notes;
mod request;
mod table;

pub use request::{Answer, NoRequest, PACKET_BYTES_MAX, RANGES_MAX, Range, Request, STATUS_BYTES_MAX, Where};
pub use table::{
    COMMON, EPOCH_AT, FileId, NAMES_AT, Row, SLOT_COLUMN, SLOTS, TABLE_BYTES, USED_AT, YOUNG_AT, YOUNG_BYTES, row_at,
    young_at,
};

/// The variable with the folder of the socket and the table.
pub const FOLDER_VARIABLE: &str = "TIDEGATE_RUN";
/// The variable with the folders whose files may be held, separated by colons.
pub const ROOTS_VARIABLE: &str = "TIDEGATE_RUN_ROOTS";
/// The variable with the journal of holds, to which a program appends when the supervisor is gone.
pub const HOLDS_VARIABLE: &str = "TIDEGATE_RUN_HOLDS";
/// The variable with the number of the run.
pub const SESSION_VARIABLE: &str = "TIDEGATE_RUN_SESSION";
/// The variable with the pool, parts of which programs map: the numbers of its device and inode,
/// and its path, separated by colons.
pub const POOL_VARIABLE: &str = "TIDEGATE_RUN_POOL";
/// The socket's name in its folder.
pub const SOCKET: &str = "socket";
/// The table's name in its folder.
pub const TABLE: &str = "table";
/// The name of the file of notes in its folder.
pub const NOTES: &str = "notes";
/// What begins the line of a journal of holds that says: a program cannot reach the supervisor of
/// the run named behind it, and is bringing all files to their disks. From the moment it stands
/// there, the supervisor promises nothing any more, should it live.
pub const STOP: &str = "stop ";
/// What begins the line of a journal of holds that says: the files themselves have everything that
/// the run named by the number behind it kept.
pub const VOID: &str = "void ";
/// What begins the second line of a journal of holds, before the number of the run.
pub const RUN: &str = "run ";
/// What the first byte of a journal of holds is while programs may commit to their strips.
pub const OPEN: u8 = b'0';
/// What it is from the moment on that they may not: somebody is bringing all files to their disks.
/// Whoever finds it behind a commit takes the commit for none.
pub const SHUT: u8 = b'1';

/// What records on strips call the run with the number `session`: its first 64 bits.
pub fn session_number(session: &[u8]) -> u64 {
    let digits = session.get(..16).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}
