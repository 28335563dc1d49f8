//! Files that another process has locked, which are waited for, and not in silence.

use tidegate_media::{LOCK_WAIT, LockHolder, MapError, when_unlocked};

/// What `open` opens; a lock that may be given up at any moment is waited for, as that of a server
/// that was killed.
pub fn unlocked<T>(open: impl FnMut() -> Result<T, MapError>) -> Result<T, MapError> {
    let tell = |path: &std::path::Path, holder: &LockHolder| {
        tracing::warn!("{} is in use: {holder}; waiting for it for {} s at most", path.display(), LOCK_WAIT.as_secs());
    };
    when_unlocked(LOCK_WAIT, tell, open)
}
