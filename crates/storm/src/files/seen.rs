//! What those who use the files of a storm share: the open pool, and the account of what they did.

use crate::files::states::FileStates;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_file_cache::{FilePool, PoolFile};

/// A pool in use, with the files that are open.
pub(crate) struct Opened<R> {
    pub(crate) pool: Arc<FilePool<R>>,
    pub(crate) files: Arc<[PoolFile]>,
}

impl<R> Clone for Opened<R> {
    fn clone(&self) -> Opened<R> {
        Opened { pool: self.pool.clone(), files: self.files.clone() }
    }
}

/// What clients share of their account.
pub(crate) struct Seen {
    pub(crate) states: Vec<FileStates>,
    /// Operations that each client has begun, in all lives.
    pub(crate) done: Vec<u32>,
    /// Clients that are not through.
    pub(crate) busy: u32,
    /// Operations that ended.
    pub(crate) acts: u64,
}

/// The account. Whoever panicked with it in hand has judged something.
pub(crate) fn seen(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
