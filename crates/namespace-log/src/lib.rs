//! The namespace log: what was done to names in the served directory, durable before the file
//! system below has it, so that syncs of new and renamed files and of directories end in persistent
//! memory.
//!
//! SOURCE is the served directory, on a file system with a journal of its own. It loses unsynced
//! operations in a power loss, but only the latest ones: what is left is a prefix of them
//! (`docs/media-model.md`, rules N1 to N4). The log has the records of the operations that SOURCE
//! may lose. A *place* of the log counts lines and never begins anew. SOURCE carries a *witness*,
//! an extended attribute that names the pool and a place: SOURCE has the operations whose records
//! lie before that place.
//!
//! # How an operation is logged
//!
//! One lock ([`NamespaceLog::begin`]) is held over these steps, so that the log has the operations
//! in the order in which they were done:
//!
//! 1. The service does the operation below.
//! 2. Its record is streamed behind the head. **Fence.**
//! 3. The head is stored and flushed, without a fence.
//! 4. The witness goes behind the record, below.
//!
//! [`NamespaceLog::commit`] is one fence, or none if no operation came since the last one. A sync
//! of data that relies on an operation commits the log first. A step below takes many times as long
//! as the fence of step 2, and that fence makes recovery exact: whatever SOURCE has by its witness,
//! the pool has a record of.
//!
//! After a sync of SOURCE that began after [`NamespaceLog::mark`], [`NamespaceLog::durable_below`]
//! moves the tail: the records before it are not needed any more. If half of the ring is full, or
//! if an operation has no record because a path is too long, or if the witness cannot be stored,
//! the log syncs SOURCE itself.
//!
//! # Why it is right after a power cut
//!
//! Say the witness that SOURCE has left is w.
//!
//! - *The witness lags by one operation at most*: operation n + 1 begins after the witness of n,
//!   and SOURCE keeps a prefix. So SOURCE has every operation before w, no operation after the
//!   record at w, and perhaps the one of that record. Its names and inodes tell which.
//! - *What is committed is there*: records from w to the head are repeated in their order. Each
//!   finds the state in which it was done at first, so its paths are valid and name the same
//!   inodes.
//! - *The witness may be ahead of the head*: step 2 makes records durable before step 4. So all
//!   records before the greater one of both are whole, and count.
//! - *The ring is reused* only behind the tail, which is durable before; the witness of that place
//!   is durable below before the tail is stored.
//!
//! A file whose creation is repeated gets a new inode. Its contents are all in the pool: before the
//! cache may rely on the file below for any of them, it syncs that file, and with it (N3) its
//! creation. Recovery appends a record of the old and the new inode, durably, before the witness
//! says that the creation is done; [`NamesReplayed::whereabouts`] tells the recovery of contents.
//!
//! - *Recovery is cut*: it appends a record that it began; each operation that it repeats moves the
//!   witness, so the next recovery goes on at that place. If the inode of the creation there has no
//!   record yet, an empty file of the right type is the one that the cut left.
//! - *Another program's file is in the place*: the operation is left out and told, and the file is
//!   never overwritten. Contents for which no place is left are salvaged.
//!
//! # What the service does
//!
//! At its start it calls [`NamespaceLog::replay`], opens the pool, recovers contents over
//! [`ReplayedBelow`], calls [`NamesReplayed::finish`], and then [`NamespaceLog::open`]. The backing
//! file of a regular file that was made is a [`MadeFile`] for as long as the process runs.
//!
//! A process that takes over from one that was killed, while SOURCE was mounted ever since, finds
//! each operation done. It calls [`NamespaceLog::follow`] and [`NamespaceLog::resume`]. They change
//! nothing in SOURCE, as that may be one that can only be read now. The log keeps its operations,
//! and takes no other one before [`NamespaceLog::settle`] has succeeded.
//!
//! | when | what |
//! | --- | --- |
//! | an operation | begin, the operation below, record |
//! | a sync of a file | commit, then the sync of the cache |
//! | a sync of a directory | commit |
//! | from time to time | commit; mark, sync of SOURCE, durable below |
//! | before a file takes the place of another one | the sync of the cache |
//! | nothing can reach a file without a name any more | commit, then the cache discards it |
//! | a file without a name gets one (`O_TMPFILE`) | sync of SOURCE instead of a record |
//! | an operation on another file system | no record: syncs there wait for that file system |
//!
//! Contents and lengths of files are the cache's. An unlinked file keeps its record in the cache
//! until the unlink is committed here: if the unlink is lost, the synced contents have to come
//! back.
//!
//! A replay changes times of files. So the stamp of a file below may not rest on its time of
//! change, and the cache forgets the stamp before the service sets a file's times.

#![forbid(unsafe_code)]

mod contents;
mod error;
mod log;
mod replay;
mod source;

pub use contents::{MadeFile, ReplayedBelow};
pub use error::NamespaceError;
pub use log::{Mark, NamesWriting, NamespaceCounters, NamespaceLog};
pub use replay::{Conflict, NameConflict, NamesReplayed, Whereabouts};
pub use source::{FoundNode, NamespaceSource, Witness};
