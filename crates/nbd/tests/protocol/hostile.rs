//! Bytes that no client should send: kept conversations in every cut, and mutations of them. The
//! server never panics, never holds more than its bound, and always ends.

use crate::script::{disk_and_frozen, exports_of};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tidegate_block_export::Export;
use tidegate_nbd::loopback::Loopback;
use tidegate_nbd::{End, Exports, Service};
use tidegate_nbd_client::ram::Ram;

/// Each kept conversation, with its name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() > 10, "the corpus is there");
    found
}

fn converse(sent: &[u8], piece_bytes: impl FnMut() -> usize + Send) -> Loopback {
    let conversation = Loopback::run(&disk_and_frozen(), sent, piece_bytes);
    assert!(conversation.answers.starts_with(b"NBDMAGICIHAVEOPT\x00\x03"));
    conversation
}

fn assert_same(name: &str, one: &Loopback, other: &Loopback) {
    assert!(one.answers == other.answers, "{name}: the answers differ");
    assert_eq!(format!("{:?}", one.end), format!("{:?}", other.end), "{name}");
}

#[test]
fn kept_conversations_mean_the_same_in_every_cut() {
    for (name, sent) in corpus() {
        let whole = converse(&sent, || usize::MAX);
        assert_same(&name, &whole, &converse(&sent, || 1));
        // Every message is cut at every place by one of these.
        for first in 1..sent.len().min(600) {
            let mut cuts = [first].into_iter().chain(std::iter::repeat(usize::MAX));
            assert_same(&name, &whole, &converse(&sent, || cuts.next().unwrap()));
        }
    }
}

#[test]
fn a_conversation_of_every_beginning_ends() {
    for (_, sent) in corpus() {
        for len in 0..sent.len().min(1500) {
            converse(&sent[..len], || usize::MAX);
        }
    }
}

#[test]
fn the_longest_requests_stay_within_the_bound() {
    let service = exports_of(Ram::new(4096, 16 << 10));
    let request = |command: u8, len: u32| {
        [b"\x25\x60\x95\x13\x00\x00\x00", &[command][..], &[7; 8], &[0; 8], &len.to_be_bytes()].concat()
    };
    let reads = [request(0, 100), request(0, 2 << 20), request(0, 32 << 20)].concat().repeat(2);
    let write = [request(1, 32 << 20), vec![3; 32 << 20]].concat();
    for handshake in [
        &b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"[..],
        b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00",
    ] {
        let conversation = Loopback::run(&service, &[handshake, &reads, &write].concat(), || usize::MAX);
        assert_eq!(conversation.end.unwrap(), End::Closed);
        assert!(conversation.answers.len() > 68 << 20);
        assert!(conversation.held_bytes_max >= 2 << 20, "{}", conversation.held_bytes_max);
    }
    let whole = Export::new("disk", "", Arc::new(Ram::new(4096, 16 << 10))).with_whole_writes();
    let service = Service::plain(Exports::new(vec![whole]).unwrap());
    let write = [request(0, 2 << 20), request(1, 1 << 20), vec![3; 1 << 20]].concat();
    let handshake = &b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"[..];
    let conversation = Loopback::run(&service, &[handshake, &write].concat(), || usize::MAX);
    assert!(conversation.held_bytes_max >= 3 << 20, "{}", conversation.held_bytes_max);
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    /// A number where a length may be.
    Number(Index, u32),
    Splice(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let number = prop_oneof![Just(0), Just(1), Just(u32::MAX), Just(1 << 31), Just((32 << 20) + 1), any::<u32>()];
    prop_oneof![
        (any::<Index>(), 1..=255_u8).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        (any::<Index>(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<Index>(), 1usize..64).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (any::<Index>(), 1usize..64).prop_map(|(at, len)| Mutation::Repeat(at, len)),
        (any::<Index>(), number).prop_map(|(at, number)| Mutation::Number(at, number)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, at)| Mutation::Splice(from, at)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation, corpus: &[(String, Vec<u8>)]) {
    let place = |at: &Index, len: usize| at.index(len + 1);
    let len = bytes.len();
    match mutation {
        Mutation::Flip(at, bits) if len > 0 => bytes[at.index(len)] ^= bits,
        Mutation::Insert(at, more) => drop(bytes.splice(place(at, len)..place(at, len), more.iter().copied())),
        Mutation::Remove(at, count) => drop(bytes.drain(place(at, len)..(place(at, len) + count).min(len))),
        Mutation::Repeat(at, count) => {
            let again = bytes[place(at, len)..(place(at, len) + count).min(len)].to_vec();
            drop(bytes.splice(place(at, len)..place(at, len), again));
        }
        Mutation::Number(at, number) if len >= 4 => {
            let at = at.index(len - 3);
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        Mutation::Splice(from, at) => {
            let (_, other) = &corpus[from.index(corpus.len())];
            bytes.truncate(place(at, len));
            bytes.extend_from_slice(&other[at.index(other.len())..]);
        }
        Mutation::Flip(..) | Mutation::Number(..) => {}
    }
}

proptest! {
    #[test]
    fn mutated_conversations_end_within_the_bound(
        from in any::<Index>(),
        mutations in vec(mutation(), 1..8),
        pieces in vec(prop_oneof![1usize..20, 1usize..5000, Just(usize::MAX)], 1..20),
    ) {
        let corpus = corpus();
        let mut sent = corpus[from.index(corpus.len())].1.clone();
        mutations.iter().for_each(|mutation| mutate(&mut sent, mutation, &corpus));
        let mut lengths = pieces.into_iter().cycle();
        let cut = converse(&sent, || lengths.next().unwrap());
        assert_same("mutated", &converse(&sent, || usize::MAX), &cut);
    }

    #[test]
    fn random_bytes_end_within_the_bound(mut sent in vec(any::<u8>(), 0..2000), begins_well in any::<bool>()) {
        if begins_well {
            sent.splice(0..0, *b"\x00\x00\x00\x03IHAVEOPT");
        }
        converse(&sent, || usize::MAX);
    }
}
