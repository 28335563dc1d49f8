//! The errors of the namespace log.

use tidegate_file_cache::{PoolOpenError, Refused};
use tidegate_media::{Error, Poison, Sealed};

/// Why the namespace log does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The served file system refused a sync or the witness. The log stays failed: operations may
    /// be lost.
    #[error("the served file system failed: {0}; check its disk, then recover the pool")]
    Source(#[from] Refused),
    /// The persistent memory failed, or its bytes are damaged.
    #[error(transparent)]
    Memory(#[from] Error),
    /// There is no pool.
    #[error(transparent)]
    Open(#[from] PoolOpenError),
    /// The pool was laid out without a namespace log.
    #[error("the pool has no namespace log: format it with one")]
    NoLog,
    /// A former process left operations in the log.
    #[error("the log holds operations that SOURCE may lack: recover the pool first")]
    NotRecovered,
    /// The log has operations, and SOURCE has no witness of this pool: it is not the directory that
    /// was served, or a copy of it.
    #[error("SOURCE was not served with this pool: name the directory that was")]
    OtherSource,
    /// SOURCE lacks operations that were durable there, as a restored snapshot does.
    #[error(
        "SOURCE has operations up to place {witness} and had them up to place {tail}: it was restored to an older state"
    )]
    OlderSource {
        /// Place of SOURCE's witness.
        witness: u64,
        /// The log's tail.
        tail: u64,
    },
    /// SOURCE has operations that the pool has no record of.
    #[error(
        "SOURCE has operations up to place {witness} and the pool up to place {head}: the pool was restored to an older state"
    )]
    OlderPool {
        /// Place of SOURCE's witness.
        witness: u64,
        /// The log's head.
        head: u64,
    },
    /// Recovery was interrupted so often that the ring is full of its own records.
    #[error("the log has no room for what recovery notes: it was interrupted too often")]
    Full,
}

impl From<Sealed> for NamespaceError {
    fn from(sealed: Sealed) -> NamespaceError {
        NamespaceError::Memory(sealed.into())
    }
}

impl From<Poison> for NamespaceError {
    fn from(poison: Poison) -> NamespaceError {
        NamespaceError::Memory(poison.into())
    }
}
