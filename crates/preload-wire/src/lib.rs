//! What programs under `tidegate run` and their supervisor say to each other.
//!
//! A *request* is one packet of words on a unix socket, and so is its answer. The *table* is a file that the supervisor alone writes and every program maps
//! for reading: it names the files that some process *holds*, so that a program learns without a request that there is nothing to ask.
//!
//! A crate of its own because the two sides must not meet: the library exports `write` and its like, and would take them over in any program that it is
//! linked into.

#![forbid(unsafe_code)]

mod request;
mod table;

pub use request::{Answer, NoRequest, PACKET_BYTES_MAX, RANGES_MAX, Range, Request, STATUS_BYTES_MAX};
pub use table::{EPOCH_AT, FileId, Row, SLOTS, TABLE_BYTES, USED_AT, row_at};

/// The variable with the folder of the socket and the table.
pub const FOLDER_VARIABLE: &str = "TIDEGATE_RUN";
/// The variable with the folders whose files may be held, separated by colons.
pub const ROOTS_VARIABLE: &str = "TIDEGATE_RUN_ROOTS";
/// The variable with the journal of holds, to which a program appends when the supervisor is gone.
pub const HOLDS_VARIABLE: &str = "TIDEGATE_RUN_HOLDS";
/// The variable with the number of the run.
pub const SESSION_VARIABLE: &str = "TIDEGATE_RUN_SESSION";
/// The socket's name in its folder.
pub const SOCKET: &str = "socket";
/// The table's name in its folder.
pub const TABLE: &str = "table";
/// What begins the line of a journal of holds that says: a program cannot reach the supervisor of the run named behind it, and is bringing all files to their
/// disks. From the moment it stands there, the supervisor promises nothing any more, should it live.
pub const STOP: &str = "stop ";
/// What begins the line of a journal of holds that says: the files themselves have everything that the run named by the number behind it kept.
pub const VOID: &str = "void ";
