//! Tidegate for SQLite: a VFS by which unchanged programs commit transactions on a mount without a
//! journal on the medium, each as one atomic group of writes.
//!
//! The VFS `tidegate` stands over SQLite's own for Unix, which has locks, shared memory, logs and
//! temporary files. Of a database on a mount it takes over the rollback journal (`transaction`
//! has the rules), and everything else goes through. SQLite loads it as an extension, or a program
//! that links it hands [`sqlite3_tidegate_init`] to `sqlite3_auto_extension`.
//!
//! What is unsafe is the border to C. Its law, which blocks cite:
//!
//! - **L1** An object that SQLite gives to a method was opened by this VFS and not closed since.
//!   One thread at a time uses the objects of one connection.
//! - **L2** A text is null or ends with a zero byte. The names of a database and of its journal
//!   stay where they are while the database is open.
//! - **L3** A buffer has as many bytes as the call says, and a place for a result can be written.
//! - **L4** The VFS for Unix lives as long as the process, and its functions and objects are those
//!   of `sqlite3.h`.
//! - **L5** A table of functions is that of `sqlite3ext.h`, at least of version 3.32 where that was
//!   asked for.

mod abi;
mod database;
mod descriptor;
mod entry;
mod file_attributes;
mod files;
mod group;
mod journal;
mod open_databases;
mod real_file;
mod sqlite;
mod status;
mod transaction;
mod vfs;

pub use entry::{sqlite3_extension_init, sqlite3_tidegate_init};
