//! The handshake, byte by byte: each conversation written by hand from the protocol's description.

use crate::script::{disk_and_frozen, play};
use std::sync::Arc;
use tidegate_block_export::Export;
use tidegate_nbd::{ConnectionError, End, Exports, ExportsError, Violation};
use tidegate_nbd_client::ram::Ram;

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";
/// The client speaks fixed newstyle.
const FIXED: &[u8] = b"\x00\x00\x00\x01";
/// The client speaks fixed newstyle, and needs no zeroes.
const FIXED_NO_ZEROES: &[u8] = b"\x00\x00\x00\x03";
const ABORT: &[u8] = b"IHAVEOPT\x00\x00\x00\x02\x00\x00\x00\x00";
const ABORTED: &[u8] = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00";
const DISCONNECT: &[u8] =
    b"\x25\x60\x95\x13\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

/// Joins the parts of a message or a conversation.
fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Plays `options` between greeting and ABORT, and returns the answers to them alone.
fn answers(options: &[&[u8]]) -> Vec<u8> {
    let (got, end) = play(&disk_and_frozen(), &concat(&[FIXED, &options.concat(), ABORT]));
    assert_eq!(end.expect("ends well"), End::Aborted);
    let got = got.strip_prefix(GREETING).expect("the greeting comes first");
    got.strip_suffix(ABORTED).expect("ABORT is acknowledged last").to_vec()
}

/// The header of a reply to `option` of a given kind, with the length of what follows.
fn reply(option: u8, kind: u32, len: u32) -> Vec<u8> {
    let head = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00";
    [&head[..], &[option], &kind.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// Asserts one error reply to `option` whose text contains `words`.
fn assert_error(answer: &[u8], option: u8, kind: u32, words: &str) {
    let text_len = u32::try_from(answer.len() - 20).expect("short");
    assert_eq!(answer[..20], reply(option, kind, text_len));
    let text = std::str::from_utf8(&answer[20..]).expect("UTF-8");
    assert!(text.contains(words), "{text}");
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    assert_eq!(answers(&[]), b"");
}

#[test]
fn list_names_each_export_with_its_description() {
    let list = b"IHAVEOPT\x00\x00\x00\x03\x00\x00\x00\x00";
    let expected = concat(&[
        &reply(3, 2, 20),
        b"\x00\x00\x00\x04diska small disk",
        &reply(3, 2, 10),
        b"\x00\x00\x00\x06frozen",
        &reply(3, 1, 0),
    ]);
    assert_eq!(answers(&[list]), expected);
}

#[test]
fn list_with_data_is_invalid() {
    assert_error(&answers(&[b"IHAVEOPT\x00\x00\x00\x03\x00\x00\x00\x01x"]), 3, 0x8000_0003, "no data");
}

#[test]
fn info_tells_size_flags_and_block_sizes_unasked() {
    let info = b"IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x0a\x00\x00\x00\x04disk\x00\x00";
    let expected = concat(&[
        &reply(6, 3, 12),
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x0d\x6d",
        &reply(6, 3, 14),
        b"\x00\x03\x00\x00\x00\x01\x00\x00\x02\x00\x02\x00\x00\x00",
        &reply(6, 1, 0),
    ]);
    assert_eq!(answers(&[info]), expected);
}

#[test]
fn info_tells_name_and_description_when_asked_and_the_empty_name_is_the_first_export() {
    let info = b"IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x02\x00\x02\x00\x01";
    let answer = answers(&[info]);
    let expected =
        concat(&[&reply(6, 3, 6), b"\x00\x01disk", &reply(6, 3, 14), b"\x00\x02a small disk", &reply(6, 1, 0)]);
    assert!(answer.ends_with(&expected), "{answer:x?}");
}

#[test]
fn a_read_only_export_says_so() {
    let info = b"IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x0c\x00\x00\x00\x06frozen\x00\x00";
    let expected = concat(&[
        &reply(6, 3, 12),
        b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x0d\x6f",
        &reply(6, 3, 14),
        b"\x00\x03\x00\x00\x00\x01\x00\x00\x10\x00\x02\x00\x00\x00",
        &reply(6, 1, 0),
    ]);
    assert_eq!(answers(&[info]), expected);
}

#[test]
fn structured_replies_are_granted_and_bring_the_df_flag() {
    let structured = b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00";
    let info = b"IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x0a\x00\x00\x00\x04disk\x00\x00";
    let expected = concat(&[&reply(8, 1, 0), &reply(6, 3, 12), b"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x0d\xed"]);
    assert!(answers(&[structured, info]).starts_with(&expected));
    assert_error(&answers(&[b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x01x"]), 8, 0x8000_0003, "no data");
}

#[test]
fn go_on_an_unknown_export_says_so_and_the_handshake_goes_on() {
    let go = b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x04disc\x00\x00";
    assert_error(&answers(&[go]), 7, 0x8000_0006, "\"disc\"");
}

#[test]
fn malformed_info_and_go_are_invalid() {
    for data in [
        &b""[..],
        b"\x00\x00",
        b"\x00\x00\x00\x05disk\x00\x00",
        b"\xff\xff\xff\xffdisk\x00\x00",
        b"\x00\x00\x00\x04disk",
        b"\x00\x00\x00\x04disk\x00\x01",
        b"\x00\x00\x00\x04disk\x00\x01\x00",
        b"\x00\x00\x00\x04disk\x00\x00!",
        &concat(&[b"\x00\x00\x10\x01", &[b'x'; 4097], b"\x00\x00"]),
    ] {
        for option in [6, 7] {
            let len = u32::try_from(data.len()).expect("short").to_be_bytes();
            let sent = concat(&[b"IHAVEOPT\x00\x00\x00", &[option], &len, data]);
            assert_error(&answers(&[&sent]), option, 0x8000_0003, "expected");
        }
    }
}

#[test]
fn options_not_offered_are_refused_and_their_data_skipped() {
    // PEEK_EXPORT, and one of the far future.
    for option in [4, 200] {
        let sent = concat(&[b"IHAVEOPT\x00\x00\x00", &[option], b"\x00\x00\x00\x03abc"]);
        assert_error(&answers(&[&sent]), option, 0x8000_0001, "not offered");
    }
}

#[test]
fn oversized_options_are_skipped_and_refused() {
    let sent = concat(&[b"IHAVEOPT\x00\x00\x00\x06\x00\x0f\x42\x40", &vec![b'I'; 1_000_000]]);
    assert_error(&answers(&[&sent]), 6, 0x8000_0009, "16384");
}

#[test]
fn go_begins_transmission() {
    let go = b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x04disk\x00\x00";
    let (got, end) = play(&disk_and_frozen(), &concat(&[FIXED, go, DISCONNECT]));
    assert_eq!(end.expect("ends well"), End::Disconnected);
    assert!(got.ends_with(&reply(7, 1, 0)));
}

#[test]
fn export_name_ends_in_zeroes_unless_they_were_given_up() {
    let export_name = b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk";
    let size_and_flags = b"\x00\x00\x00\x00\x00\x00\x10\x00\x0d\x6d";
    for (flags, zeroes) in [(FIXED, 124), (FIXED_NO_ZEROES, 0), (b"\x00\x00\x00\x00", 124), (b"\x00\x00\x00\x02", 0)] {
        let (got, end) = play(&disk_and_frozen(), &concat(&[flags, export_name, DISCONNECT]));
        assert_eq!(end.expect("ends well"), End::Disconnected);
        assert_eq!(got, concat(&[GREETING, size_and_flags, &vec![0; zeroes]]));
    }
}

#[test]
fn what_cannot_be_answered_ends_the_connection() {
    let violation = |sent: &[&[u8]]| match play(&disk_and_frozen(), &concat(sent)) {
        (got, Err(ConnectionError::Violation(violation))) if got == GREETING => violation,
        (got, end) => panic!("{got:x?} {end:?}"),
    };
    assert_eq!(violation(&[b"\x00\x00\x00\x05"]), Violation::ClientFlags { flags: 5 });
    assert_eq!(
        violation(&[FIXED, b"IHAVENOT\x00\x00\x00\x03\x00\x00\x00\x00"]),
        Violation::OptionMagic { found: 0x4948_4156_454e_4f54 }
    );
    assert_eq!(
        violation(&[b"\x00\x00\x00\x00", b"IHAVEOPT\x00\x00\x00\x03\x00\x00\x00\x00"]),
        Violation::OptionUnannounced { option: 3 }
    );
    assert_eq!(
        violation(&[FIXED, b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disc"]),
        Violation::UnknownExport { name: "disc".to_owned() }
    );
    assert_eq!(
        violation(&[FIXED, b"IHAVEOPT\x00\x00\x00\x01\x00\xff\x00\x00"]),
        Violation::LongExportName { len: 0xff_0000 }
    );
}

#[test]
fn a_stream_that_ends_between_messages_ends_well() {
    for sent in [&b""[..], FIXED] {
        assert_eq!(play(&disk_and_frozen(), sent).1.expect("ends well"), End::Closed);
    }
    for sent in
        [&FIXED[..3], &concat(&[FIXED, &ABORT[..9]]), &concat(&[FIXED, b"IHAVEOPT\x00\x00\x00\x06\x00\x0f\x42\x40"])]
    {
        assert!(matches!(play(&disk_and_frozen(), sent).1, Err(ConnectionError::CutShort)));
    }
}

#[test]
fn lists_that_cannot_be_offered_are_refused() {
    let export =
        |name: &str, description: &str, block_size| Export::new(name, description, Arc::new(Ram::new(block_size, 1)));
    let refused = |exports: Vec<Export>| Exports::new(exports).err().expect("refused");
    assert_eq!(refused(Vec::new()), ExportsError::None);
    assert_eq!(
        refused(vec![export("a", "", 512), export("b", "", 512), export("a", "", 4096)]),
        ExportsError::SameName { name: "a".to_owned() }
    );
    assert_eq!(refused(vec![export("a\0", "", 512)]), ExportsError::BadString { name: "a\0".to_owned() });
    let long = "x".repeat(4097);
    assert_eq!(refused(vec![export("a", &long, 512)]), ExportsError::BadString { name: "a".to_owned() });
    assert_eq!(
        refused(vec![export("a", "", 131_072)]),
        ExportsError::LargeBlocks { name: "a".to_owned(), block_size: 131_072 }
    );
    let many = (0..257).map(|number| export(&number.to_string(), "", 512)).collect();
    assert_eq!(refused(many), ExportsError::TooMany { found: 257 });
}
