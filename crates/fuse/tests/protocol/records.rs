//! What a server leaves for the next one.

use crate::kernel::every_request;
use std::time::Duration;
use tidegate_fuse::{
    Attributes, Entry, Features, Former, Handle, NodeId, OpenFlags, RECORD_BYTES, RecordStore, Reply, ReplyRecord,
    Request, Unique,
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

/// What a kill may leave of the stores of a record: each store is done, not begun, or, if it is not
/// of a word, done up to or from any byte on.
fn left_by_kills(former: [u8; RECORD_BYTES], record: ReplyRecord) -> Vec<[u8; RECORD_BYTES]> {
    let (mut memory, mut left) = (former, vec![former]);
    for store in record.stores(&former) {
        let (at, bytes) = match store {
            RecordStore::Word { at, word } => (usize::try_from(at).unwrap(), word.to_ne_bytes().to_vec()),
            RecordStore::Bytes { at, bytes } => (usize::try_from(at).unwrap(), bytes.to_vec()),
        };
        if matches!(store, RecordStore::Bytes { .. }) {
            for torn in 1..bytes.len() {
                let (mut begun, mut ended) = (memory, memory);
                begun[at..at + torn].copy_from_slice(&bytes[..torn]);
                ended[at + torn..at + bytes.len()].copy_from_slice(&bytes[torn..]);
                left.extend([begun, ended]);
            }
        }
        memory[at..at + bytes.len()].copy_from_slice(&bytes);
        left.push(memory);
    }
    left
}

#[test]
fn a_kill_leaves_no_half_of_a_record() {
    let entry = Entry {
        node: NodeId(2),
        generation: u64::MAX,
        attributes: Attributes { size: u64::MAX, ..Attributes::default() },
        name_valid: Duration::MAX,
        attributes_valid: Duration::MAX,
    };
    let bytes_of = |record: ReplyRecord| <[u8; RECORD_BYTES]>::try_from(record.as_bytes()).unwrap();
    let earlier = [Reply::created(&entry, Handle(7), OpenFlags::KEEP_CACHE), Reply::error(17)];
    let earlier = earlier.map(|reply| bytes_of(ReplyRecord::answered(Unique(4), &reply).unwrap()));
    let begun = ReplyRecord::begun(FIRST, 99);
    for former in [[0; RECORD_BYTES], bytes_of(ReplyRecord::begun(Unique(4), 5)), earlier[0], earlier[1]] {
        let left = left_by_kills(former, begun);
        for memory in &left {
            let record = ReplyRecord::from_bytes(memory).filter(|record| record.unique() == FIRST);
            assert!(record.is_none_or(|record| matches!(record.left(), Former::Begun { witness: 99 })));
        }
        let begun = *left.last().unwrap();
        assert!(ReplyRecord::from_bytes(&begun).is_some_and(|record| record.unique() == FIRST));
        for reply in [Reply::empty(), Reply::error(2), Reply::entry(&entry)] {
            let answered = left_by_kills(begun, ReplyRecord::answered(FIRST, &reply).unwrap());
            for memory in &answered {
                let record = ReplyRecord::from_bytes(memory).filter(|record| record.unique() == FIRST).unwrap();
                match record.left() {
                    Former::Begun { witness } => assert_eq!(witness, 99),
                    Former::Answered(again) => assert_eq!(sent(again), sent(reply)),
                }
            }
            let last = ReplyRecord::from_bytes(answered.last().unwrap()).unwrap();
            assert!(matches!(last.left(), Former::Answered(_)));
        }
    }
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
