//! Bytes of any kind, in any pieces: the same answers for the same bytes, and never a panic.

use crate::script::{disk_and_frozen, play, play_in_pieces};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

const HANDSHAKES: [&[u8]; 4] = [
    b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00",
    b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x06frozen",
    b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00IHAVEOPT\x00\x00\x00\x0a\x00\x00\x00\x1b\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0fbase:allocationIHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00",
    b"\x00\x00\x00\x01IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00",
];

/// A request that is well formed or nearly so, with its payload.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![6 => Just(0u16), 2 => Just(1), 1 => 0u16..32];
    let command = prop_oneof![20 => Just(0u16), 20 => Just(1), 10 => 3u16..9, 1 => any::<u16>()];
    let offset = prop_oneof![9 => 0u64..4200, 1 => any::<u64>()];
    let len = prop_oneof![9 => 0u32..1200, 1 => 0u32..600_000];
    (flags, command, any::<u64>(), offset, len, any::<u8>()).prop_map(|(flags, command, cookie, offset, len, fill)| {
        let command = if command == 2 { 3 } else { command };
        let mut bytes = [b"\x25\x60\x95\x13", &flags.to_be_bytes()[..], &command.to_be_bytes()].concat();
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(std::iter::repeat_n(fill, if command == 1 { len as usize } else { 0 }));
        bytes
    })
}

fn conversation() -> impl Strategy<Value = Vec<u8>> {
    (0..HANDSHAKES.len(), vec(request(), 0..40), 0usize..40).prop_map(|(handshake, requests, cut)| {
        let mut bytes = [HANDSHAKES[handshake], &requests.concat()].concat();
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        bytes
    })
}

proptest! {
    #[test]
    fn pieces_do_not_matter(sent in conversation(), pieces in vec(prop_oneof![1usize..40, 1usize..100_000], 1..50)) {
        let (whole, whole_end) = play(&disk_and_frozen(), &sent);
        let mut lengths = pieces.into_iter().cycle();
        let (cut, cut_end) = play_in_pieces(&disk_and_frozen(), &sent, || lengths.next().unwrap());
        assert!(whole == cut, "the answers differ");
        assert_eq!(format!("{whole_end:?}"), format!("{cut_end:?}"));
    }

    #[test]
    fn garbage_ends_the_connection_at_worst(garbage in vec(any::<u8>(), 0..400), handshake in 0..=HANDSHAKES.len()) {
        let sent = [HANDSHAKES.get(handshake).copied().unwrap_or_default(), &garbage].concat();
        let (got, _) = play(&disk_and_frozen(), &sent);
        assert!(got.len() < 2000, "{} bytes of answers", got.len());
    }

    #[test]
    fn options_of_garbage_are_answered(
        options in vec((0u32..14, vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..40)), 0..20)
    ) {
        let mut sent = b"\x00\x00\x00\x03".to_vec();
        for (option, data) in &options {
            sent.extend(b"IHAVEOPT");
            sent.extend(option.to_be_bytes());
            sent.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
            sent.extend(data);
        }
        let (got, _) = play(&disk_and_frozen(), &sent);
        assert!(got.starts_with(b"NBDMAGICIHAVEOPT\x00\x03"));
    }
}
