//! Requests and replies, byte by byte, and the requests to the device.

use crate::devices::{Failing, Late, Recorder, Thawing};
use crate::script::{disk_and_frozen, exports_of, play, play_in_pieces};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_media::BlockDevice;
use tidegate_nbd::{ConnectionError, End, Service, Violation};
use tidegate_nbd_client::ram::Ram;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
const PAYLOAD_LEN: u16 = 32;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// The cookie of every request here.
const COOKIE: &[u8; 8] = b"\x11\x22\x33\x44\x55\x66\x77\x88";

fn request(flags: u16, command: u16, offset: u64, len: u32) -> Vec<u8> {
    [
        b"\x25\x60\x95\x13",
        &flags.to_be_bytes()[..],
        &command.to_be_bytes(),
        COOKIE,
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

fn simple(error: u32) -> Vec<u8> {
    [b"\x67\x44\x66\x98", &error.to_be_bytes()[..], COOKIE].concat()
}

/// The header of the only chunk of a reply.
fn chunk(kind: u16, len: u32) -> Vec<u8> {
    [b"\x66\x8e\x33\xef\x00\x01", &kind.to_be_bytes()[..], COOKIE, &len.to_be_bytes()].concat()
}

/// What the export called `name` answers to `requests` after a handshake with simple replies.
fn simple_answers_of(exports: &Service, name: &str, requests: &[u8]) -> Vec<u8> {
    let len = u32::try_from(name.len()).unwrap().to_be_bytes();
    let handshake = [b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01", &len[..], name.as_bytes()].concat();
    let (got, end) = play(exports, &[&handshake[..], requests, &request(0, DISC, 0, 0)].concat());
    assert_eq!(end.unwrap(), End::Disconnected);
    got[18 + 10..].to_vec()
}

/// The answers of the default export to `requests`, after a handshake with structured replies.
fn structured_answers_of(exports: &Service, requests: &[u8]) -> Vec<u8> {
    let handshake = b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00";
    let (got, end) = play(exports, &[&handshake[..], requests, &request(0, DISC, 0, 0)].concat());
    assert_eq!(end.unwrap(), End::Disconnected);
    got[18 + 20 + 10..].to_vec()
}

fn simple_answers(requests: &[u8]) -> Vec<u8> {
    simple_answers_of(&disk_and_frozen(), "disk", requests)
}

fn structured_answers(requests: &[u8]) -> Vec<u8> {
    structured_answers_of(&disk_and_frozen(), requests)
}

/// The calls of a fresh device of 512-byte blocks for `requests`.
fn calls(requests: &[&[u8]]) -> Vec<String> {
    let (device, calls) = Recorder::new(512, 4096);
    simple_answers_of(&exports_of(device), "disk", &requests.concat());
    std::mem::take(&mut *calls.lock().unwrap())
}

#[test]
fn a_write_is_answered_and_read_back() {
    let data: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let requests = [request(0, WRITE, 512, 1024), data.clone(), request(0, READ, 500, 1048)].concat();
    let expected = [simple(0), simple(0), vec![0; 12], data, vec![0; 12]].concat();
    assert_eq!(simple_answers(&requests), expected);
}

#[test]
fn structured_reads_are_one_last_chunk_with_their_offset() {
    let requests = [request(FUA, WRITE, 3, 2), b"hi".to_vec(), request(DF, READ, 2, 4)].concat();
    let expected = [simple(0), chunk(1, 12), b"\0\0\0\0\0\0\0\x02\0hi\0".to_vec()].concat();
    assert_eq!(structured_answers(&requests), expected);
}

#[test]
fn requests_of_no_length_succeed() {
    for command in [WRITE, TRIM, WRITE_ZEROES] {
        assert_eq!(simple_answers(&request(FUA, command, 4096, 0)), simple(0));
    }
    assert_eq!(simple_answers(&request(0, READ, 100, 0)), simple(0));
    assert_eq!(structured_answers(&request(0, READ, 100, 0)), chunk(0, 0));
}

#[test]
fn flush_trim_and_write_zeroes_are_answered() {
    let requests =
        [request(0, FLUSH, 0, 0), request(FUA, TRIM, 1, 4000), request(FUA | NO_HOLE, WRITE_ZEROES, 1, 4000)].concat();
    assert_eq!(simple_answers(&requests), simple(0).repeat(3));
    assert_eq!(structured_answers(&requests), simple(0).repeat(3));
}

#[test]
fn whole_blocks_go_straight_to_the_device_with_their_durability() {
    let data = [7; 1024];
    assert_eq!(calls(&[&request(0, WRITE, 512, 1024), &data]), ["write 1+1024 Volatile"]);
    assert_eq!(calls(&[&request(FUA, WRITE, 512, 1024), &data]), ["write 1+1024 Fua"]);
    assert_eq!(calls(&[&request(FUA, WRITE_ZEROES, 512, 1024)]), ["zero 1..3 Fua"]);
    assert_eq!(calls(&[&request(0, READ, 512, 1024)]), ["read 1+1024"]);
}

#[test]
fn edges_are_read_and_written_back_and_made_durable_together() {
    let edges = ["read 0+512", "write 0+512 Volatile", "write 1+1024 Volatile", "read 3+512", "write 3+512 Volatile"];
    assert_eq!(calls(&[&request(0, WRITE, 511, 1026), &[7; 1026]]), edges);
    assert_eq!(calls(&[&request(FUA, WRITE, 511, 1026), &[7; 1026]]), [&edges[..], &["flush"]].concat());
    assert_eq!(calls(&[&request(FUA, WRITE, 5, 6), b"inside"]), ["read 0+512", "write 0+512 Fua"]);
    let zeroed = ["read 0+512", "write 0+512 Volatile", "zero 1..3 Volatile", "flush"];
    assert_eq!(calls(&[&request(FUA, WRITE_ZEROES, 511, 1025)]), zeroed);
    assert_eq!(calls(&[&request(0, READ, 511, 1026)]), ["read 0+512", "read 1+1024", "read 3+512"]);
}

#[test]
fn cache_reads_the_blocks_and_answers_no_data() {
    let reads = ["read 1+512", "read 2+512", "read 3+512"];
    assert_eq!(calls(&[&request(0, CACHE, 1000, 1000)]), reads);
    assert_eq!(simple_answers(&request(0, CACHE, 0, 4096)), simple(0));
}

#[test]
fn zeroes_that_must_not_be_a_hole_are_written() {
    assert_eq!(calls(&[&request(NO_HOLE, WRITE_ZEROES, 512, 1024)]), ["write 1+1024 Volatile"]);
    assert_eq!(calls(&[&request(NO_HOLE | FUA, WRITE_ZEROES, 512, 1024)]), ["write 1+1024 Fua"]);
}

#[test]
fn trim_leaves_partial_blocks_alone() {
    assert_eq!(calls(&[&request(0, TRIM, 1, 1535)]), ["discard 1..3"]);
    assert_eq!(calls(&[&request(FUA, TRIM, 512, 1000)]), ["discard 1..2", "flush"]);
    assert!(calls(&[&request(0, TRIM, 1, 1000)]).is_empty());
}

#[test]
fn a_write_longer_than_the_input_buffer_arrives_in_whole_blocks_and_is_flushed_once() {
    let data = vec![7; 1_000_000];
    let calls = calls(&[&request(FUA, WRITE, 100, 1_000_000), &data]);
    assert_eq!(calls.iter().filter(|call| *call == "flush").count(), 1);
    assert_eq!(calls.last().unwrap(), "flush");
    let partial: Vec<&String> = calls.iter().filter(|call| call.starts_with("read")).collect();
    assert_eq!(partial, ["read 0+512", "read 1953+512"], "only the two ends are written in part");
    assert!(calls.iter().all(|call| !call.ends_with("Fua")));
}

/// What comes of `request` and its payload at an export whose writes are to stay whole: the calls
/// of its device.
fn calls_of_whole_writes(request: &[u8], data: &[u8], piece_bytes: usize) -> Vec<String> {
    let (device, calls) = Recorder::new(512, 4096);
    let export = tidegate_block_export::Export::new("disk", "", Arc::new(device)).with_whole_writes();
    let service = Service::plain(tidegate_nbd::Exports::new(vec![export]).unwrap());
    let handshake = &b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"[..];
    let (got, end) = play_in_pieces(&service, &[handshake, request, data].concat(), || piece_bytes);
    assert_eq!(end.unwrap(), End::Closed);
    assert!(got.ends_with(&simple(0)));
    std::mem::take(&mut *calls.lock().unwrap())
}

#[test]
fn a_write_that_is_to_stay_whole_is_one_call_wherever_it_begins_and_however_it_arrives() {
    const MIB: u32 = 1 << 20;
    for piece_bytes in [1000, 70_000, usize::MAX] {
        for (at, len) in [(300, MIB), (511, 1024), (511, 256 << 10), (0, MIB)] {
            let data = vec![7; len as usize];
            let calls = |flags| calls_of_whole_writes(&request(flags, WRITE, at * 512, len), &data, piece_bytes);
            assert_eq!(calls(0), [format!("write {at}+{len} Volatile")]);
            assert_eq!(calls(FUA), [format!("write {at}+{len} Fua")]);
        }
    }
    let zeroes = |flags| calls_of_whole_writes(&request(flags, WRITE_ZEROES, 300 * 512, MIB), &[], 28);
    assert_eq!(zeroes(FUA), ["zero 300..2348 Fua"]);
    assert_eq!(zeroes(NO_HOLE), ["write 300+1048576 Volatile"]);
}

#[test]
fn longer_writes_and_parts_of_blocks_are_cut_all_the_same() {
    for (at, len) in [(0, (1 << 20) + 512), (1, 1 << 20)] {
        let calls = calls_of_whole_writes(&request(0, WRITE, at, len), &vec![7; len as usize], usize::MAX);
        assert!(calls.len() > 1, "{calls:?}");
    }
}

#[test]
fn a_connection_cut_inside_a_write_that_is_to_stay_whole_writes_nothing() {
    let (device, calls) = Recorder::new(512, 4096);
    let export = tidegate_block_export::Export::new("disk", "", Arc::new(device)).with_whole_writes();
    let service = Service::plain(tidegate_nbd::Exports::new(vec![export]).unwrap());
    let handshake = &b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"[..];
    let sent = [handshake, &request(0, WRITE, 0, 1 << 20), &vec![7; (1 << 20) - 1]].concat();
    let (_, end) = play(&service, &sent);
    assert!(matches!(end, Err(ConnectionError::CutShort)), "{end:?}");
    assert!(calls.lock().unwrap().is_empty());
}

#[test]
fn each_refusal_has_its_number_and_the_next_request_is_found() {
    let long_write = [request(0, WRITE, 0, (32 << 20) + 1), vec![0x25; (32 << 20) + 1]].concat();
    for (refused, error) in [
        (request(0, READ, 4000, 97), EINVAL),
        (request(0, READ, u64::MAX, 2), EINVAL),
        (request(0, TRIM, 4000, 97), EINVAL),
        (request(0, WRITE_ZEROES, 4000, 97), ENOSPC),
        ([request(0, WRITE, 4095, 2), b"ab".to_vec()].concat(), ENOSPC),
        ([request(0, WRITE, u64::MAX, 2), b"ab".to_vec()].concat(), ENOSPC),
        (long_write, EINVAL),
        (request(0, READ, 0, (32 << 20) + 1), EINVAL),
        (request(0, FLUSH, 0, 1), EINVAL),
        (request(0, FLUSH, 1, 0), EINVAL),
        (request(0, CACHE, 4000, 97), EINVAL),
        (request(0, BLOCK_STATUS, 0, 512), EINVAL),
        (request(0, 999, 0, 512), EINVAL),
        (request(DF, READ, 0, 512), EINVAL),
        (request(NO_HOLE, TRIM, 0, 512), EINVAL),
        (request(FAST_ZERO, TRIM, 0, 512), EINVAL),
        (request(REQ_ONE, READ, 0, 512), EINVAL),
        // Without extended headers this is a flag like any unknown one.
        ([request(PAYLOAD_LEN, WRITE, 0, 2), b"ab".to_vec()].concat(), EINVAL),
        ([request(0x8000, WRITE, 0, 2), b"ab".to_vec()].concat(), EINVAL),
    ] {
        let answers = simple_answers(&[refused, request(0, READ, 0, 1)].concat());
        assert_eq!(answers, [simple(error), simple(0), vec![0]].concat());
    }
}

#[test]
fn the_longest_reads_follow_one_another() {
    let exports = exports_of(Ram::new(4096, 8193));
    let reads = [request(0, READ, 0, 100), request(0, READ, 1, 32 << 20)].concat().repeat(3);
    let answers = simple_answers_of(&exports, "disk", &reads);
    assert_eq!(answers.len(), 3 * (2 * 16 + 100 + (32 << 20)));
}

#[test]
fn a_read_too_long_for_one_chunk_overflows() {
    let exports = exports_of(Ram::new(4096, 1024));
    for len in [(2 << 20) + 1, (32 << 20) + 1] {
        let answers = structured_answers_of(&exports, &request(DF, READ, 0, len));
        assert_eq!(answers[20..24], EOVERFLOW.to_be_bytes());
    }
    assert_eq!(structured_answers_of(&exports, &request(DF, READ, 0, 2 << 20)).len(), 28 + (2 << 20));
}

#[test]
fn a_long_read_is_answered_in_chunks() {
    let exports = exports_of(Ram::new(4096, 1024));
    let answers = structured_answers_of(&exports, &request(0, READ, 100, (2 << 20) + 1));
    let mut rest = &answers[..];
    for piece in 0..9_u32 {
        let (flags, len) = if piece == 8 { (1, 1_u32) } else { (0, 256 << 10) };
        let offset = 100 + u64::from(piece) * (256 << 10);
        let header = [b"\x66\x8e\x33\xef\x00", &[flags, 0, 1][..], COOKIE, &(8 + len).to_be_bytes()[..]].concat();
        assert_eq!(rest[..20], header, "piece {piece}");
        assert_eq!(rest[20..28], offset.to_be_bytes());
        rest = &rest[28 + len as usize..];
    }
    assert!(rest.is_empty());
}

#[test]
fn a_long_read_that_fails_midway_ends_in_an_error_or_ends_the_connection() {
    // The second piece begins at the block that fails.
    let exports = exports_of(Late { fails_at: 512 });
    let read = request(0, READ, 0, 3 << 20);
    let answers = structured_answers_of(&exports, &read);
    let text = "the medium cannot give back 512 bytes at offset 512";
    let (data, error) = answers.split_at(28 + (256 << 10));
    assert_eq!(data[4..8], [0, 0, 0, 1]);
    assert_eq!(error[..20], chunk(0x8001, 6 + u32::try_from(text.len()).unwrap()));
    assert!(error.ends_with(text.as_bytes()));
    let handshake = b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00";
    let (got, end) = play(&exports, &[&handshake[..], &read, &request(0, READ, 0, 1)].concat());
    assert!(matches!(end, Err(ConnectionError::BrokenReply { why }) if why == text));
    assert_eq!(got.len(), 18 + 10 + 16 + (256 << 10), "what follows would be taken for data");
    // At the beginning there is still room to say it.
    let at_once = simple_answers_of(&exports_of(Late { fails_at: 0 }), "disk", &read);
    assert_eq!(at_once, simple(EIO));
}

#[test]
fn a_read_only_export_refuses_to_change() {
    let write = [request(0, WRITE, 0, 2), b"ab".to_vec()].concat();
    let requests =
        [write, request(0, TRIM, 0, 512), request(0, WRITE_ZEROES, 0, 512), request(0, FLUSH, 0, 0)].concat();
    let expected = [simple(EPERM).repeat(3), simple(0)].concat();
    assert_eq!(simple_answers_of(&disk_and_frozen(), "frozen", &requests), expected);
}

#[test]
fn an_export_that_began_read_only_is_written_once_its_device_can_be() {
    let (device, writable) = Thawing::new();
    let exports = exports_of(device);
    let handshake = b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk";
    let read_only = || play(&exports, handshake).0.last().unwrap() & 2 != 0;
    let write = [request(0, WRITE, 0, 2), b"ab".to_vec()].concat();
    let changes = [write, request(0, TRIM, 0, 4096), request(0, WRITE_ZEROES, 0, 512)].concat();
    for (can_be, answer) in [(false, EPERM), (true, 0), (false, EPERM)] {
        writable.store(can_be, Ordering::Relaxed);
        assert_eq!(read_only(), !can_be);
        assert_eq!(simple_answers_of(&exports, "disk", &changes), simple(answer).repeat(3));
    }
}

#[test]
fn failures_of_the_device_have_their_numbers_and_leave_no_data_behind() {
    let exports = exports_of(Failing);
    for (block, error) in [(1, EIO), (2, EIO), (3, EIO), (4, EPERM), (5, EINVAL)] {
        for command in [READ, TRIM, WRITE_ZEROES] {
            let answers = simple_answers_of(&exports, "disk", &request(0, command, block * 512, 512));
            assert_eq!(answers, simple(error));
        }
        let write = [request(0, WRITE, block * 512, 512), vec![1; 512]].concat();
        assert_eq!(simple_answers_of(&exports, "disk", &write), simple(error));
    }
    assert_eq!(simple_answers_of(&exports, "disk", &request(0, FLUSH, 0, 0)), simple(EIO));
    assert_eq!(simple_answers_of(&exports, "disk", &request(FUA, TRIM, 0, 512)), simple(EIO));
}

#[test]
fn structured_errors_carry_the_reason() {
    let requests = [request(0, READ, 512, 512), request(0, FLUSH, 0, 0)].concat();
    let texts = [
        "the medium cannot give back 512 bytes at offset 512",
        "the file could not be made durable (errno 5); what was written since the last good flush may be lost; \
         open the volume anew",
    ];
    let expected: Vec<u8> = texts
        .iter()
        .flat_map(|text| {
            let len = u16::try_from(text.len()).unwrap();
            [chunk(0x8001, 6 + u32::from(len)), vec![0, 0, 0, 5], len.to_be_bytes().to_vec(), text.as_bytes().to_vec()]
                .concat()
        })
        .collect();
    assert_eq!(structured_answers_of(&exports_of(Failing), &requests), expected);
}

#[test]
fn a_reason_of_any_length_is_cut_to_what_a_message_may_have() {
    let answers = structured_answers_of(&exports_of(Failing), &request(0, READ, 1024, 512));
    assert_eq!(answers[..20], chunk(0x8001, 6 + 4096));
    assert_eq!(answers.len(), 20 + 6 + 4096);
}

#[test]
fn a_long_write_that_fails_midway_is_drained_and_answered_once() {
    let long = [request(0, WRITE, 512, 1_000_000), vec![1; 1_000_000], request(0, READ, 0, 1)].concat();
    let answers = simple_answers_of(&exports_of(Failing), "disk", &long);
    assert_eq!(answers, [simple(EIO), simple(0), vec![0xee]].concat());
}

#[test]
fn a_request_without_magic_ends_the_connection_after_what_came_before() {
    let sent =
        [b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00".to_vec(), request(0, FLUSH, 0, 0), vec![9; 28]];
    let (got, end) = play(&disk_and_frozen(), &sent.concat());
    assert!(matches!(end, Err(ConnectionError::Violation(Violation::RequestMagic { found: 0x0909_0909 }))));
    assert!(got.ends_with(&simple(0)));
}

#[test]
fn a_connection_cut_inside_a_request_does_not_execute_it() {
    let (device, calls) = Recorder::new(512, 8);
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let export = tidegate_block_export::Export::new("disk", "", device);
    let exports = Service::plain(tidegate_nbd::Exports::new(vec![export]).unwrap());
    let sent =
        [b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00".to_vec(), request(0, WRITE, 0, 512), vec![1; 511]];
    let (_, end) = play(&exports, &sent.concat());
    assert!(matches!(end, Err(ConnectionError::CutShort)));
    assert!(calls.lock().unwrap().is_empty());
}
