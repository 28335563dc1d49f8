//! A block device as a range of bytes: the part that all block fronts share.
//!
//! An [`Export`] is a [`BlockDevice`](tidegate_media::BlockDevice) under a name, addressed by
//! bytes. It counts requests by kind and time, and learns whether flushes take long
//! ([`FlushLatency`]). A [`PollBudget`] tells the threads of all connections whether they may
//! busy-poll, and [`WaitingAnswers`] a queue how many answers to hand over together. The protocol
//! of a front, its sockets and its threads are not here.

#![forbid(unsafe_code)]

mod busy_poll;
mod counters;
mod export;
mod flush_latency;
mod span;
mod waiting_answers;

pub use busy_poll::{PollBudget, Poller, VainPoll};
pub use counters::{ConnectionCounters, ExportCounters, Latency, RequestCounters, RequestKind};
pub use export::{BLOCK_BYTES_MAX, EXTENT_CALLS_MAX, Export, Scratch, WHOLE_WRITE_BYTES_MAX, Zeroing};
pub use flush_latency::FlushLatency;
pub use waiting_answers::WaitingAnswers;
