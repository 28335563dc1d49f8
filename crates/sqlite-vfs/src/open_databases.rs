//! The databases on mounts that are open: the VFS is told the names of journals alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A database on a mount that is open. SQLite gives names by their addresses, which tell
/// connections apart.
#[derive(Clone, Copy)]
pub(crate) struct OpenDatabase {
    pub(crate) name: usize,
    /// Once its journal was opened.
    pub(crate) journal: Option<usize>,
    pub(crate) database: usize,
}

static OPEN: Mutex<Vec<OpenDatabase>> = Mutex::new(Vec::new());

/// All of them, for this thread alone.
pub(crate) fn open_databases() -> MutexGuard<'static, Vec<OpenDatabase>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets a database that is closed.
pub(crate) fn forget(address: usize) {
    open_databases().retain(|open| open.database != address);
}
