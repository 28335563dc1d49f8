//! The clients inside a guest: each writes blocks to a served volume for ever, and says what was
//! made durable.
//!
//! `guest-writer SOCKET BASE` prints `ack WRITER N` whenever the first N writes of a writer are
//! durable by what the protocol promises: every even writer's by FUA on each, every odd writer's by
//! a flush after several.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Dialect, Operation};
use tidegate_trials::guest::writes::{WRITERS, Writes};
use tidegate_trials::sectors;

const BLOCK_BYTES: usize = 4096;
/// Writes under way at once.
const DEPTH: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().expect("guest-writer SOCKET BASE");
    let (socket, base) = (argument(), argument().parse().expect("BASE is a number"));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let stream = UnixStream::connect(&socket).expect("the server listens");
            let client = Client::connect(stream, "", Dialect::Simple).expect("the server takes a client");
            scope.spawn(move || write_for_ever(client, writer, base));
        }
    });
}

fn write_for_ever(mut client: Client<UnixStream>, writer: u64, base: u32) {
    let durability = if writer.is_multiple_of(2) { Durability::Fua } else { Durability::Volatile };
    let mut writes = Writes::new(writer, client.bytes() / BLOCK_BYTES as u64, base);
    let mut data = vec![0; BLOCK_BYTES];
    loop {
        let mut under_way = BTreeSet::new();
        // No second write to a block before the first is answered: their order would be nobody's.
        while under_way.len() < DEPTH && under_way.insert(writes.clone().advance().0) {
            let (block, generation) = writes.advance();
            sectors::fill(&mut data, block, generation);
            let offset = block * BLOCK_BYTES as u64;
            client.submit(Operation::Write { offset, data: &data, durability }).expect("the server reads");
        }
        while client.pending().next().is_some() {
            client.complete().expect("the server answers").outcome.expect("the server takes every write");
        }
        if durability == Durability::Volatile {
            client.flush().expect("the server flushes");
        }
        println!("ack {writer} {}", writes.done());
    }
}
