//! Messages of random bytes: the first eight are the features that were agreed on, the others what
//! the kernel sends, with the right length in its header.
//!
//! What is found here belongs into `tests/protocol/malformed.rs` of `fuse`.

#![forbid(unsafe_code)]
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_fuse::{Features, Operation, ReplyRecord, Request};

fuzz_target!(|bytes: &[u8]| {
    let Some((features, message)) = bytes.split_first_chunk() else { return };
    let mut message = message.to_vec();
    let len = u32::try_from(message.len()).expect("a short message");
    let Some(field) = message.first_chunk_mut() else { return };
    *field = len.to_ne_bytes();
    let parsed = Request::parse(&message, Features::from_bits(u64::from_le_bytes(*features)));
    if let Ok(Request { operation: Operation::BatchForget(forgets), .. }) = parsed {
        assert!(forgets.count() * 16 <= message.len());
    }
    if let Some(record) = message.first_chunk().and_then(ReplyRecord::from_bytes) {
        let _ = record.left();
    }
});
