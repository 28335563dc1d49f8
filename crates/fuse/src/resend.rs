//! Requests that the kernel sends again because a server died before it answered.
//!
//! Most operations may be carried out twice. One that may not, such as a rename, leaves a
//! [`ReplyRecord`] in memory that survives the server: first that it was begun, then its reply. The
//! next server sends a recorded reply again. Where an operation was begun and its reply is not
//! recorded, the server looks whether it was done; the *witness* helps it: a number that the first
//! server noted beforehand, such as the inode that the name had.
//!
//! A thread carries out one request at a time and takes the next one when the kernel has the reply.
//! So one record a thread is enough.

use crate::ids::Unique;
use crate::operation::Operation;
use crate::reply::Reply;
use crate::wire::{RECORD_ANSWERED, RECORD_BEGUN, RECORD_REPLY_BYTES_MAX, ReplyRecordBytes};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a record.
pub const RECORD_BYTES: usize = size_of::<ReplyRecordBytes>();

/// Whether a request may have been carried out already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was not, or may be carried out again.
    First,
    /// An earlier server began it and died. If it was done, the answer is that of success.
    InDoubt {
        /// What that server noted before it began.
        witness: u64,
    },
}

/// Where a record has the word that says what it is: its state, and the reply's error.
const STATE_AT: usize = offset_of!(ReplyRecordBytes, state);
const REPLY_AT: usize = offset_of!(ReplyRecordBytes, reply_bytes);
const _: () = assert!(STATE_AT.is_multiple_of(8) && REPLY_AT == STATE_AT + 8);

/// A store into memory with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStore<'r> {
    /// Of bytes, in any order.
    Bytes {
        /// Offset in the record.
        at: u64,
        /// What is stored.
        bytes: &'r [u8],
    },
    /// Of an aligned word, whole.
    Word {
        /// Offset in the record.
        at: u64,
        /// What is stored.
        word: u64,
    },
}

/// What a server leaves of a request for the next one.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRecord(ReplyRecordBytes);

/// What an earlier server left of a request.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Former {
    /// It was begun.
    Begun {
        /// What that server noted before it began.
        witness: u64,
    },
    /// It was carried out. Send this reply.
    Answered(Reply<'static>),
}

impl ReplyRecord {
    /// Records that a request is begun.
    pub fn begun(unique: Unique, witness: u64) -> ReplyRecord {
        let unique = unique.first_sent().0;
        ReplyRecord(ReplyRecordBytes { unique, witness, state: RECORD_BEGUN, ..ReplyRecordBytes::default() })
    }

    /// Records a reply; `None` if it is longer than those of operations that are recorded.
    pub fn answered(unique: Unique, reply: &Reply<'_>) -> Option<ReplyRecord> {
        let mut record = ReplyRecord::begun(unique, 0).0;
        let (error, body) = reply.parts()?;
        record.reply.as_mut_bytes().get_mut(..body.len())?.copy_from_slice(body);
        (record.state, record.error, record.reply_bytes) = (RECORD_ANSWERED, error, u32::try_from(body.len()).ok()?);
        Some(ReplyRecord(record))
    }

    /// Reads a record; `None` if there is none, as in fresh memory.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<ReplyRecord> {
        let record = ReplyRecordBytes::read_from_bytes(bytes).ok()?;
        let is_whole = matches!(record.state, RECORD_BEGUN | RECORD_ANSWERED)
            && usize::try_from(record.reply_bytes).is_ok_and(|bytes| bytes <= RECORD_REPLY_BYTES_MAX);
        is_whole.then_some(ReplyRecord(record))
    }

    /// Returns the record's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the stores that put the record in the place of `former`, in their order.
    ///
    /// A kill between two of them, or amid one of bytes, leaves no record or one of the two. The
    /// record that a request was begun stays until that with its reply is whole.
    pub fn stores(&self, former: &[u8; RECORD_BYTES]) -> impl Iterator<Item = RecordStore<'_>> {
        let bytes = self.as_bytes();
        let part = |range: Range<usize>| RecordStore::Bytes { at: range.start as u64, bytes: &bytes[range] };
        let state = |[state, error]: [u32; 2]| RecordStore::Word {
            at: STATE_AT as u64,
            word: zerocopy::transmute!([state, error]),
        };
        let was_begun = ReplyRecord::from_bytes(former)
            .is_some_and(|former| former.0.state == RECORD_BEGUN && former.unique() == self.unique());
        let request = (!was_begun).then(|| [state([0; 2]), part(0..STATE_AT)]);
        let reply = (self.0.state == RECORD_ANSWERED).then(|| part(REPLY_AT..RECORD_BYTES));
        let state = state([self.0.state, self.0.error.cast_unsigned()]);
        request.into_iter().flatten().chain(reply).chain([state])
    }

    /// Returns the request that the record is about, as it was sent first.
    pub fn unique(&self) -> Unique {
        Unique(self.0.unique)
    }

    /// Returns what the record says.
    pub fn left(&self) -> Former {
        let body = usize::try_from(self.0.reply_bytes).ok().and_then(|bytes| self.0.reply.as_bytes().get(..bytes));
        match (self.0.state, body) {
            (RECORD_ANSWERED, Some(body)) => Former::Answered(Reply::of_parts(self.0.error, body)),
            _ => Former::Begun { witness: self.0.witness },
        }
    }
}

impl Operation<'_> {
    /// Returns whether carrying the operation out twice is different from once. Only these leave
    /// records.
    pub fn is_recorded(&self) -> bool {
        match self {
            Operation::Symlink { .. }
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::TmpFile { .. }
            | Operation::SetXattr(_)
            | Operation::RemoveXattr { .. } => true,
            Operation::Init(_)
            | Operation::Destroy
            | Operation::Lookup { .. }
            | Operation::Forget { .. }
            | Operation::BatchForget(_)
            | Operation::GetAttr { .. }
            | Operation::Statx { .. }
            | Operation::SetAttr(_)
            | Operation::ReadLink
            | Operation::Open { .. }
            | Operation::Read { .. }
            | Operation::Write(_)
            | Operation::CopyFileRange(_)
            | Operation::Flush { .. }
            | Operation::Release { .. }
            | Operation::FSync { .. }
            | Operation::SyncFs
            | Operation::Fallocate { .. }
            | Operation::LSeek { .. }
            | Operation::StatFs
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::OpenDir { .. }
            | Operation::ReadDir { .. }
            | Operation::ReleaseDir { .. }
            | Operation::FSyncDir { .. }
            | Operation::Access { .. }
            | Operation::Interrupt { .. }
            | Operation::Ioctl(_)
            | Operation::Poll { .. }
            | Operation::GetLock(_)
            | Operation::SetLock { .. }
            | Operation::Unknown { .. } => false,
        }
    }
}
