//! The limits of one connection's requests and buffers, each with its unit last, checked against
//! each other here.

use crate::wire;
use tidegate_block_export::{BLOCK_BYTES_MAX, EXTENT_CALLS_MAX, WHOLE_WRITE_BYTES_MAX};

/// Payload of one READ or WRITE, advertised as the maximum block size.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// A longer reply to a READ is sent as it is read, in several chunks where replies have chunks.
/// Where they have none, a device that fails in its middle leaves nothing but to end the
/// connection; Linux's own client never reads that much.
pub(crate) const WHOLE_REPLY_BYTES_MAX: u32 = 2 << 20;

/// The pieces of such a reply.
pub(crate) const REPLY_PIECE_BYTES: u64 = 256 << 10;

/// Exports that one server offers.
pub(crate) const EXPORTS_MAX: usize = 256;

/// A string of the protocol: names, descriptions, messages.
pub(crate) const STRING_BYTES_MAX: usize = 4096;

/// Data of one option; a longer one is skipped and refused.
pub(crate) const OPTION_BYTES_MAX: u32 = 16 << 10;

/// The input buffer of a connection. A request that fits is executed whole, a longer write as it
/// arrives.
pub(crate) const INPUT_BYTES: usize = 256 << 10;

/// The most that the input buffer of an idle connection keeps: a write of 4 KiB fits.
pub(crate) const IDLE_INPUT_BYTES: usize = 8 << 10;

/// The most that the output buffer of an idle connection keeps: a read of 4 KiB fits.
pub(crate) const IDLE_OUTPUT_BYTES: usize = 8 << 10;

/// Replies are gathered up to this many bytes before they are sent.
pub(crate) const GATHERED_BYTES_MAX: usize = 256 << 10;

/// The output buffer of a connection: gathered replies, and the longest reply on top.
pub(crate) const OUTPUT_BYTES_MAX: usize = GATHERED_BYTES_MAX + LONGEST_REPLY_BYTES;

/// Extents in the answer to one BLOCK_STATUS; the client asks for the rest again.
pub(crate) const STATUS_EXTENTS_MAX: usize = 4096;

/// The payload of a BLOCK_STATUS that names contexts; there are few of them to name.
pub(crate) const STATUS_PAYLOAD_BYTES_MAX: u64 = 8 + 4 * 16;

/// A payload of a request that is refused is taken from the stream up to this length; a longer one
/// ends the connection.
pub(crate) const SKIPPED_BYTES_MAX: u64 = u32::MAX as u64;

/// A longer TRIM or WRITE_ZEROES is likely to keep other requests waiting.
pub(crate) const RANGE_BYTES_IN_LINE_MAX: u64 = 1 << 20;

/// A longer CACHE is likely to keep other requests waiting: it reads its range.
pub(crate) const CACHE_BYTES_IN_LINE_MAX: u64 = 256 << 10;

/// OffloadedRequest requests of one connection that wait.
pub(crate) const OFFLOADED_REQUESTS_MAX: usize = 64;

/// Their payloads, those of the one that is being executed included.
pub(crate) const OFFLOADED_BYTES_MAX: usize = 1 << 20;

/// Second threads of all connections in a process: what a thread takes of the system's limits is
/// kept for so many. Without one, long requests keep others waiting.
pub const OFFLOAD_THREADS_MAX: usize = 256;

/// The second output buffer of a connection: answers without data, and the longest message of an
/// error.
const OFFLOAD_OUTPUT_BYTES: usize = 16 << 10;

/// All buffers of one connection that is not encrypted.
pub(crate) const CONNECTION_BYTES_MAX: usize = INPUT_BYTES
    + OUTPUT_BYTES_MAX
    + WHOLE_WRITE_BYTES_MAX as usize
    + OFFLOADED_BYTES_MAX
    + OFFLOAD_OUTPUT_BYTES
    + 2 * BLOCK_BYTES_MAX as usize;

const LONGEST_REPLY_BYTES: usize = wire::DATA_CHUNK_BYTES + WHOLE_REPLY_BYTES_MAX as usize;
const LONGEST_LIST_BYTES: usize = EXPORTS_MAX * (wire::OPTION_REPLY_BYTES + 4 + 2 * STRING_BYTES_MAX);

const _: () = {
    // An unfinished option or write header has to fit, and a long write has to advance by whole
    // blocks.
    assert!(wire::OPTION_BYTES + OPTION_BYTES_MAX as usize <= INPUT_BYTES);
    assert!(wire::EXTENDED_REQUEST_BYTES + 2 * BLOCK_BYTES_MAX as usize <= INPUT_BYTES);
    // The answer to GO names the longest export and asks for every information.
    assert!(OPTION_BYTES_MAX as usize >= 4 + STRING_BYTES_MAX + 2 + 2 * 4);
    assert!(BLOCK_BYTES_MAX <= PAYLOAD_BYTES_MAX && PAYLOAD_BYTES_MAX.is_multiple_of(BLOCK_BYTES_MAX));
    assert!(LONGEST_LIST_BYTES <= OUTPUT_BYTES_MAX);
    assert!(REPLY_PIECE_BYTES >= GATHERED_BYTES_MAX as u64 && REPLY_PIECE_BYTES <= WHOLE_REPLY_BYTES_MAX as u64);
    // The extents of one context, and one status of each other.
    assert!(2 * (wire::EXTENDED_CHUNK_BYTES + 8) + 16 * (STATUS_EXTENTS_MAX + 1) <= LONGEST_REPLY_BYTES);
    assert!(STATUS_EXTENTS_MAX <= EXTENT_CALLS_MAX);
    assert!(CONNECTION_BYTES_MAX <= 5 << 20);
    assert!(wire::EXTENDED_CHUNK_BYTES + 6 + STRING_BYTES_MAX <= OFFLOAD_OUTPUT_BYTES / 2);
    assert!(INPUT_BYTES <= OFFLOADED_BYTES_MAX && WHOLE_WRITE_BYTES_MAX as usize <= OFFLOADED_BYTES_MAX);
};
