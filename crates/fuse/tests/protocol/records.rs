//! What a server leaves for the next one.

use crate::kernel::every_request;
use std::time::Duration;
use tidegate_fuse::{
    Attributes, Entry, Features, Former, Handle, NodeId, OpenFlags, RECORD_BYTES, Reply, ReplyRecord, Request, Unique,
};

const FIRST: Unique = Unique(6);
const AGAIN: Unique = Unique(1 << 63 | 6);

/// The record as the next server reads it.
fn reread(record: ReplyRecord) -> ReplyRecord {
    ReplyRecord::from_bytes(record.as_bytes().try_into().unwrap()).unwrap()
}

fn sent(mut reply: Reply<'_>) -> Vec<u8> {
    reply.frame(AGAIN).unwrap().concat()
}

#[test]
fn a_recorded_reply_is_sent_again_as_it_was() {
    let entry = Entry {
        node: NodeId(2),
        generation: 3,
        attributes: Attributes { size: 4, ..Attributes::default() },
        name_valid: Duration::from_secs(5),
        attributes_valid: Duration::from_secs(6),
    };
    let replies = [
        Reply::empty(),
        Reply::error(17),
        Reply::entry(&entry),
        Reply::created(&entry, Handle(7), OpenFlags::KEEP_CACHE),
    ];
    for reply in replies {
        let record = reread(ReplyRecord::answered(FIRST, &reply).unwrap());
        assert_eq!(record.unique(), AGAIN.first_sent());
        match record.left() {
            Former::Answered(again) => assert_eq!(sent(again), sent(reply)),
            left @ Former::Begun { .. } => panic!("{left:?}"),
        }
    }
}

#[test]
fn a_request_that_was_begun_is_in_doubt_with_its_witness() {
    let record = reread(ReplyRecord::begun(AGAIN, 99));
    assert_eq!(record.unique(), FIRST);
    assert!(matches!(record.left(), Former::Begun { witness: 99 }));
}

#[test]
fn replies_with_data_and_no_replies_are_not_recorded() {
    assert!(ReplyRecord::answered(FIRST, &Reply::data(b"x")).is_none());
    assert!(ReplyRecord::answered(FIRST, &Reply::none()).is_none());
}

#[test]
fn fresh_and_strange_memory_has_no_record() {
    let mut bytes = [0; RECORD_BYTES];
    assert!(ReplyRecord::from_bytes(&bytes).is_none());
    bytes[16] = 3;
    assert!(ReplyRecord::from_bytes(&bytes).is_none());
    bytes[16] = 2;
    bytes[24..28].fill(0xff);
    assert!(ReplyRecord::from_bytes(&bytes).is_none());
}

#[test]
fn operations_on_names_are_recorded_and_those_on_contents_are_not() {
    let recorded = |(name, message): (&'static str, Vec<u8>)| {
        Request::parse(&message, Features::NONE).unwrap().operation.is_recorded().then_some(name)
    };
    let recorded: Vec<_> = every_request().into_iter().filter_map(recorded).collect();
    let expected = "SYMLINK MKNOD MKDIR UNLINK RMDIR RENAME LINK SETXATTR REMOVEXATTR CREATE RENAME2 TMPFILE";
    assert_eq!(recorded.join(" "), expected);
}
