//! Holes and data: the metadata context, BLOCK_STATUS, zeroes with wishes, lengths of eight bytes,
//! two connections.

use crate::connections::{attach, detach};
use crate::devices::{Bottomless, Recorder};
use crate::porous::Porous;
use crate::script::{disk_and_frozen, exports_of, play};
use std::sync::Arc;
use tidegate_media::{Durability, ExtentKind};
use tidegate_nbd::{ConnectionError, End, Violation};
use tidegate_nbd_client::client::{Client, ClientError, Completion, Dialect, Operation, Zeroes};

use ExtentKind::{Data, Hole};

/// The most extents in one answer.
const STATUS_EXTENTS_MAX: usize = 4096;

const EINVAL: u32 = 22;
const ENOTSUP: u32 = 95;

const STRUCTURED: &[u8] = b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00";
const EXTENDED: &[u8] = b"IHAVEOPT\x00\x00\x00\x0b\x00\x00\x00\x00";
const ACK_STRUCTURED: &[u8] = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00";

/// LIST_META_CONTEXT (9) or SET_META_CONTEXT (10) for `export`.
fn contexts(option: u8, export: &str, queries: &[&str]) -> Vec<u8> {
    let string = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    let count = u32::try_from(queries.len()).unwrap().to_be_bytes();
    let queries: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
    let data = [string(export), count.to_vec(), queries].concat();
    let len = u32::try_from(data.len()).unwrap().to_be_bytes();
    [b"IHAVEOPT\x00\x00\x00", &[option][..], &len, &data].concat()
}

/// What is answered to an option that follows `before`, without what is answered to those.
fn answer(before: &[u8], answer_to_before: &[u8], option: &[u8]) -> Vec<u8> {
    let (got, end) = play(&disk_and_frozen(), &[b"\x00\x00\x00\x03", before, option].concat());
    assert_eq!(end.unwrap(), End::Closed);
    got[18..].strip_prefix(answer_to_before).expect("the options before are acknowledged").to_vec()
}

fn reply(option: u8, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap().to_be_bytes();
    [b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00", &[option][..], &kind.to_be_bytes(), &len, data].concat()
}

fn code(outcome: Result<Vec<u8>, tidegate_nbd_client::client::Refusal>) -> u32 {
    outcome.expect_err("refused").code
}

fn outcome(client: &mut Client<std::os::unix::net::UnixStream>, operation: Operation<'_>) -> Completion {
    client.submit(operation).unwrap();
    client.complete().unwrap()
}

#[test]
fn contexts_are_listed_by_name_by_namespace_and_without_query() {
    let there = [reply(9, 4, b"\x00\x00\x00\x00base:allocation"), reply(9, 1, b"")].concat();
    for queries in [&[][..], &["base:"], &["base:allocation"], &["qemu:", "base:"], &["base:", "base:allocation"]] {
        assert_eq!(answer(STRUCTURED, ACK_STRUCTURED, &contexts(9, "disk", queries)), there, "{queries:?}");
    }
    for queries in [&["base"][..], &["base:allocations"], &["qemu:dirty-bitmap:x"], &[""]] {
        assert_eq!(answer(STRUCTURED, ACK_STRUCTURED, &contexts(9, "disk", queries)), reply(9, 1, b""), "{queries:?}");
    }
}

#[test]
fn a_context_is_chosen_by_its_whole_name() {
    let chosen = [reply(10, 4, b"\x00\x00\x00\x01base:allocation"), reply(10, 1, b"")].concat();
    for (queries, expected) in [
        (&["x:y", "base:allocation", "base:allocation"][..], &chosen),
        (&["base:"], &reply(10, 1, b"")),
        (&[], &reply(10, 1, b"")),
    ] {
        assert_eq!(&answer(STRUCTURED, ACK_STRUCTURED, &contexts(10, "disk", queries)), expected, "{queries:?}");
    }
}

#[test]
fn options_about_contexts_are_checked() {
    let unfinished = b"IHAVEOPT\x00\x00\x00\x0a\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x09";
    let endless = b"IHAVEOPT\x00\x00\x00\x0a\x00\x00\x00\x08\x00\x00\x00\x00\xff\xff\xff\xff";
    for (before, ack, option, kind) in [
        (&b""[..], &b""[..], contexts(10, "disk", &["base:allocation"]), 0x8000_0003_u32),
        (STRUCTURED, ACK_STRUCTURED, contexts(10, "disc", &["base:allocation"]), 0x8000_0006),
        (STRUCTURED, ACK_STRUCTURED, unfinished.to_vec(), 0x8000_0003),
        (STRUCTURED, ACK_STRUCTURED, endless.to_vec(), 0x8000_0003),
    ] {
        let answer = answer(before, ack, &option);
        assert_eq!(answer[12..16], kind.to_be_bytes(), "{}", String::from_utf8_lossy(&answer[20..]));
    }
}

#[test]
fn status_without_a_context_or_with_that_of_another_export_is_invalid() {
    let export_name = b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk";
    let status = b"\x25\x60\x95\x13\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00";
    let last_chunk = |options: &[u8]| {
        let (got, end) =
            play(&disk_and_frozen(), &[b"\x00\x00\x00\x03", STRUCTURED, options, export_name, status].concat());
        assert_eq!(end.unwrap(), End::Closed);
        let start = got.windows(4).rposition(|word| word == b"\x66\x8e\x33\xef").unwrap();
        got[start + 6..].to_vec()
    };
    let right = contexts(10, "disk", &["base:allocation"]);
    let wrong = contexts(10, "frozen", &["base:allocation"]);
    let failed = contexts(10, "disc", &["base:allocation"]);
    let extents =
        b"\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x02\x00\x00\x00\x00\x00";
    assert_eq!(last_chunk(&right), extents);
    for options in [&[][..], &wrong, &[&right[..], &wrong].concat(), &[&right[..], &failed].concat()] {
        assert_eq!(last_chunk(options)[..2], [0x80, 0x01]);
    }
}

#[test]
fn extents_merge_and_are_cut_to_the_range() {
    for dialect in [Dialect::Structured, Dialect::Extended] {
        let exports = Arc::new(exports_of(Porous::new(64, true)));
        let (mut client, server) = attach(&exports, dialect);
        assert_eq!(client.status(0, 64 * 512).unwrap(), [(64 * 512, Hole)]);
        client.write(10 * 512 + 100, &[1; 5 * 512], Durability::Volatile).unwrap();
        let whole = [(10 * 512, Hole), (6 * 512, Data), (48 * 512, Hole)];
        assert_eq!(client.status(0, 64 * 512).unwrap(), whole);
        // Unaligned ranges: bytes belong to their block, and no extent reaches past the range.
        assert_eq!(client.status(9 * 512 + 500, 13).unwrap(), [(12, Hole), (1, Data)]);
        assert_eq!(client.status(10 * 512 + 1, 2).unwrap(), [(2, Data)]);
        assert_eq!(client.status(15 * 512 + 511, 2).unwrap(), [(1, Data), (1, Hole)]);
        let first = outcome(&mut client, Operation::Status { offset: 5, len: 20_000, one: true }).outcome.unwrap();
        assert_eq!(client.extents(&first), [(10 * 512 - 5, Hole)]);
        client.trim(11 * 512 - 1, 2 * 512 + 1).unwrap();
        let middle = [(512, Data), (2 * 512, Hole), (3 * 512, Data)];
        assert_eq!(client.status(10 * 512, 6 * 512).unwrap(), middle);
        for (offset, len) in [(0, 0), (64 * 512, 1), (0, 64 * 512 + 1)] {
            assert_eq!(code(outcome(&mut client, Operation::Status { offset, len, one: false }).outcome), EINVAL);
        }
        detach((client, server));
    }
}

#[test]
fn one_reply_has_a_bounded_number_of_extents() {
    let blocks = 2 * STATUS_EXTENTS_MAX as u64 + 10;
    let exports = Arc::new(exports_of(Porous::new(blocks, true)));
    let (mut client, server) = attach(&exports, Dialect::Structured);
    for block in (0..blocks).step_by(2) {
        client.write(block * 512, &[7; 512], Durability::Volatile).unwrap();
    }
    let mut at = 0;
    let mut replies = Vec::new();
    while at < blocks * 512 {
        let extents = client.status(at, blocks * 512 - at).unwrap();
        at += extents.iter().map(|(bytes, _)| bytes).sum::<u64>();
        replies.push(extents.len());
    }
    assert_eq!(replies, [STATUS_EXTENTS_MAX, STATUS_EXTENTS_MAX, 10]);
    detach((client, server));
}

#[test]
fn zeroes_leave_a_hole_unless_they_must_be_data() {
    let exports = Arc::new(exports_of(Porous::new(2048, true)));
    let (mut client, server) = attach(&exports, Dialect::Structured);
    let mut zero = |zeroes| {
        client.write(0, &vec![9; 1 << 20], Durability::Volatile).unwrap();
        outcome(&mut client, Operation::Zero { offset: 0, len: 1 << 20, zeroes }).outcome.unwrap();
        let mut seen = vec![1; 1 << 20];
        client.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0), "{zeroes:?}");
        client.status(0, 1 << 20).unwrap()
    };
    assert_eq!(zero(Zeroes::AnyWay), [(1 << 20, Hole)]);
    assert_eq!(zero(Zeroes::Fast), [(1 << 20, Hole)]);
    assert_eq!(zero(Zeroes::AsData), [(1 << 20, Data)]);
    // Of a hole, too.
    outcome(&mut client, Operation::Zero { offset: 0, len: 1024, zeroes: Zeroes::AnyWay }).outcome.unwrap();
    outcome(&mut client, Operation::Zero { offset: 512, len: 512, zeroes: Zeroes::AsData }).outcome.unwrap();
    assert_eq!(client.status(0, 1024).unwrap(), [(512, Hole), (512, Data)]);
    detach((client, server));
}

#[test]
fn zeroes_that_would_not_be_fast_are_refused_where_speed_was_asked_for() {
    let fast = |fast_zeroes, offset, len| {
        let exports = Arc::new(exports_of(Porous::new(64, fast_zeroes)));
        let (mut client, server) = attach(&exports, Dialect::Structured);
        client.write(0, &[5; 8 * 512], Durability::Volatile).unwrap();
        let fate = outcome(&mut client, Operation::Zero { offset, len, zeroes: Zeroes::Fast }).outcome.map(drop);
        let mut seen = [0; 8 * 512];
        client.read(0, &mut seen).unwrap();
        detach((client, server));
        (fate.map_err(|refusal| refusal.code), seen.iter().filter(|byte| **byte == 0).count())
    };
    assert_eq!(fast(true, 512, 1024), (Ok(()), 1024));
    assert_eq!(fast(false, 512, 1024), (Err(ENOTSUP), 0));
    // A part of a block is read and written like data.
    assert_eq!(fast(true, 512, 1025), (Err(ENOTSUP), 0));
    assert_eq!(fast(true, 511, 1025), (Err(ENOTSUP), 0));
    assert_eq!(fast(true, 520, 8), (Err(ENOTSUP), 0));
}

#[test]
fn extended_headers_carry_lengths_past_four_gibibytes() {
    let blocks = (6 << 30) / 512;
    let exports = Arc::new(exports_of(Bottomless { blocks }));
    let (mut client, server) = attach(&exports, Dialect::Extended);
    assert_eq!(client.status(512, (6 << 30) - 512).unwrap(), [((6 << 30) - 512, Hole)]);
    let zero = Operation::Zero { offset: 0, len: 5 << 30, zeroes: Zeroes::Fast };
    assert_eq!(outcome(&mut client, zero).outcome.unwrap(), b"");
    // What is still bounded, and an error in the extended form.
    let long = Operation::Read { offset: 0, len: (32 << 20) + 1 };
    assert_eq!(code(outcome(&mut client, long).outcome), EINVAL);
    detach((client, server));
    // The same length in a compact header is cut to four bytes and means another range.
    let (mut client, server) = attach(&exports, Dialect::Structured);
    assert_eq!(client.status(512, (6 << 30) - 512).unwrap(), [((2 << 30) - 512, Hole)]);
    detach((client, server));
}

/// The beginning of a connection with extended headers, and what it is answered from the greeting
/// on.
fn play_extended(requests: &[&[u8]]) -> (Vec<u8>, Result<End, ConnectionError>) {
    let handshake = [b"\x00\x00\x00\x03", EXTENDED, b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"].concat();
    let (got, end) = play(&disk_and_frozen(), &[&handshake[..], &requests.concat()].concat());
    (got[18 + 20 + 10..].to_vec(), end)
}

fn extended_request(flags: u16, command: u16, offset: u64, len: u64) -> Vec<u8> {
    let words = [offset.to_be_bytes(), len.to_be_bytes()].concat();
    [b"\x21\xe4\x1c\x71", &flags.to_be_bytes()[..], &command.to_be_bytes(), b"cookie.1", &words].concat()
}

fn extended_chunk(kind: u16, offset: u64, payload: &[u8]) -> Vec<u8> {
    let words = [offset.to_be_bytes(), (payload.len() as u64).to_be_bytes()].concat();
    [b"\x6e\x8a\x27\x8c\x00\x01", &kind.to_be_bytes()[..], b"cookie.1", &words, payload].concat()
}

#[test]
fn extended_replies_byte_by_byte() {
    let requests = [
        &extended_request(32, 1, 5, 3)[..],
        b"abc",
        // Some clients do not announce the payload of a write.
        &extended_request(0, 1, 8, 1),
        b"d",
        &extended_request(0, 0, 4, 6),
        &extended_request(0, 3, 0, 0),
        &extended_request(0, 0, 7, 0),
    ];
    let data = [&4_u64.to_be_bytes()[..], b"\0abcd\0"].concat();
    let expected = [
        extended_chunk(0, 5, b""),
        extended_chunk(0, 8, b""),
        extended_chunk(1, 4, &data),
        extended_chunk(0, 0, b""),
        extended_chunk(0, 7, b""),
    ];
    let (got, end) = play_extended(&requests);
    assert_eq!((got, end.unwrap()), (expected.concat(), End::Closed));
}

#[test]
fn a_payload_where_none_belongs_is_skipped_and_refused() {
    let requests = [&extended_request(32, 0, 0, 5)[..], b"12345", &extended_request(0, 3, 0, 0)];
    let (got, end) = play_extended(&requests);
    assert_eq!(end.unwrap(), End::Closed);
    assert_eq!(got[6..8], 0x8001_u16.to_be_bytes());
    assert!(got.ends_with(&extended_chunk(0, 0, b"")));
    let (_, end) = play_extended(&[&extended_request(32, 1, 0, 1 << 40)]);
    let violation = Violation::EndlessPayload { len: 1 << 40 };
    assert!(matches!(end, Err(ConnectionError::Violation(found)) if found == violation));
    let (_, end) = play_extended(&[b"\x25\x60\x95\x13", &[0; 28]]);
    assert!(matches!(end, Err(ConnectionError::Violation(Violation::RequestMagic { found: 0x2560_9513 }))));
}

/// The payload of a BLOCK_STATUS over `len` bytes that names the contexts `ids`.
fn named(len: u64, ids: &[u32]) -> Vec<u8> {
    let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_be_bytes()).collect();
    [&len.to_be_bytes()[..], &ids].concat()
}

/// What a client with extended headers is answered that chose the context of `disk`, if `chosen`.
fn status_by_name(chosen: bool, payload: &[u8]) -> Vec<u8> {
    let choice = if chosen { contexts(10, "disk", &["base:allocation"]) } else { Vec::new() };
    let begin = [b"\x00\x00\x00\x03", EXTENDED, &choice, b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk"].concat();
    let (greeted, _) = play(&disk_and_frozen(), &begin);
    let flags = u16::from_be_bytes(*greeted.last_chunk().unwrap());
    assert_eq!(flags & 1 << 12 != 0, chosen, "{flags:#x}");
    let request = extended_request(32, 7, 512, payload.len() as u64);
    let flush = extended_request(0, 3, 0, 0);
    let (got, end) = play(&disk_and_frozen(), &[&begin[..], &request, payload, &flush].concat());
    assert_eq!(end.unwrap(), End::Closed);
    let answer = got[greeted.len()..].strip_suffix(&extended_chunk(0, 0, b"")[..]);
    answer.expect("the request behind it is understood").to_vec()
}

#[test]
fn a_status_may_name_its_contexts() {
    let extents = [&1_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), &1024_u64.to_be_bytes(), &0_u64.to_be_bytes()];
    assert_eq!(status_by_name(true, &named(1024, &[1])), extended_chunk(6, 512, &extents.concat()));
}

#[test]
fn a_status_that_names_other_contexts_is_refused_and_says_why() {
    for (chosen, payload, why) in [
        (true, named(1024, &[2]), "metadata context 2 was not chosen"),
        (true, named(1024, &[1, 1]), "context 1 was not chosen for this export, or is named twice"),
        (true, named(1024, &[]), "no metadata context is named"),
        (true, named(0, &[1]), "the status of no bytes"),
        (true, named(1 << 20, &[1]), "past the end"),
        (true, vec![0; 7], "a payload of 7 bytes is not a length and a list"),
        (true, vec![0; 14], "a payload of 14 bytes is not a length and a list"),
        (true, named(1024, &[1; 100]), "a payload of 408 bytes is not a length and a list"),
        (false, named(1024, &[1]), "metadata context 1 was not chosen"),
    ] {
        let answer = status_by_name(chosen, &payload);
        assert_eq!(answer[6..8], 0x8001_u16.to_be_bytes(), "{why}");
        assert_eq!(answer[32..36], EINVAL.to_be_bytes(), "{why}");
        let text = String::from_utf8_lossy(&answer[38..]);
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn extended_headers_include_structured_replies() {
    let ack = reply(11, 1, b"");
    assert_eq!(answer(b"", b"", EXTENDED), ack);
    let again = answer(EXTENDED, &ack, STRUCTURED);
    assert_eq!(again[12..16], 0x8000_000a_u32.to_be_bytes());
    assert_eq!(answer(EXTENDED, &ack, &contexts(10, "", &["base:allocation"]))[12..16], 4_u32.to_be_bytes());
    assert_eq!(answer(STRUCTURED, ACK_STRUCTURED, EXTENDED), ack);
    let with_data = b"IHAVEOPT\x00\x00\x00\x0b\x00\x00\x00\x01x";
    assert_eq!(answer(b"", b"", with_data)[12..16], 0x8000_0003_u32.to_be_bytes());
}

#[test]
fn a_flush_covers_what_another_connection_wrote() {
    let (device, calls) = Recorder::new(512, 8);
    let exports = Arc::new(exports_of(device));
    let (mut writer, writers_end) = attach(&exports, Dialect::Structured);
    let (mut flusher, flushers_end) = attach(&exports, Dialect::Structured);
    assert_eq!(writer.transmission_flags() & 1 << 8, 1 << 8, "several connections may be used as one");
    writer.write(0, &[1; 512], Durability::Volatile).unwrap();
    flusher.flush().unwrap();
    let mut seen = [0; 512];
    flusher.read(0, &mut seen).unwrap();
    assert_eq!(seen, [1; 512]);
    // One device took both, the flush after the write: what it covers does not depend on who asks.
    assert_eq!(*calls.lock().unwrap(), ["write 0+512 Volatile", "flush", "read 0+512"]);
    detach((writer, writers_end));
    detach((flusher, flushers_end));
}

#[test]
fn a_refused_dialect_is_an_error_of_the_client() {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || tidegate_nbd::serve(&disk_and_frozen(), &far).unwrap());
    let refused = Client::connect(near, "nowhere", Dialect::Extended);
    assert!(matches!(refused, Err(ClientError::Refused(refusal)) if refusal.message.contains("nowhere")));
    assert_eq!(server.join().unwrap(), End::Closed);
}
