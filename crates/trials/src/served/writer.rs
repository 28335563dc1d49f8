//! Clients that write while their server is killed, and know which contents each block may have.

use crate::sectors::{self, Dice};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Cookie, Operation};

use super::Server;

const BLOCK_BYTES: usize = 4096;
/// Requests that each writer keeps under way.
const DEPTH: usize = 8;
/// Blocks in a request, at most.
const REQUEST_BLOCKS_MAX: u64 = 4;
/// What each block of a writer's share may hold: one generation, or several while requests are
/// under way.
type Possible = BTreeMap<u64, Vec<u32>>;

/// One client, and the blocks that it alone writes.
pub struct Writer {
    first: u64,
    blocks: u64,
    dice: Dice,
    generation: u32,
    possible: Possible,
    /// The requests under way: their blocks, and what these hold once it is done.
    under_way: BTreeMap<Cookie, (Range<u64>, Outcome)>,
}

#[derive(Clone, Copy)]
enum Outcome {
    Generation(u32),
    /// Either is right for ever: the old content or zeroes.
    OldOrZero,
    Nothing,
}

/// Lets each writer write through a client of its own, kills `server` after `acks` requests were
/// acknowledged, and waits for the writers.
pub fn kill_under_load(server: &mut Server, writers: &mut [Writer], acks: u64) {
    let clients: Vec<_> = writers.iter().map(|_| server.connect()).collect();
    let (sender, acknowledged) = mpsc::channel();
    std::thread::scope(|scope| {
        for (writer, client) in writers.iter_mut().zip(clients) {
            let sender = sender.clone();
            scope.spawn(move || writer.write_until_killed(client, &sender));
        }
        (0..acks).for_each(|_| acknowledged.recv().expect("writers write until the server is killed"));
        server.kill();
    });
}

impl Writer {
    /// `count` writers, which share a volume of `bytes` that holds only zeroes.
    pub fn sharing(bytes: u64, count: u64) -> Vec<Writer> {
        let blocks = bytes / BLOCK_BYTES as u64 / count;
        let writer = |number| Writer {
            first: number * blocks,
            blocks,
            dice: Dice::new(number + 1),
            generation: 0,
            possible: Possible::new(),
            under_way: BTreeMap::new(),
        };
        (0..count).map(writer).collect()
    }

    fn write_until_killed(&mut self, mut client: Client<UnixStream>, acknowledged: &Sender<()>) {
        loop {
            while self.under_way.len() < DEPTH {
                if !self.submit(&mut client) {
                    return;
                }
            }
            let Ok(completion) = client.complete() else { return };
            completion.outcome.unwrap_or_else(|refusal| panic!("the server refused: {refusal:?}"));
            let (blocks, outcome) = self.under_way.remove(&completion.cookie).expect("a request under way");
            blocks.for_each(|block| self.settle(block, outcome));
            // The last acknowledgements come when nobody counts any more.
            let _ = acknowledged.send(());
        }
    }

    /// Sends one request to blocks that no other is under way to; false when the server is gone.
    fn submit(&mut self, client: &mut Client<UnixStream>) -> bool {
        let blocks = self.idle_blocks();
        let (offset, count) = (blocks.start * BLOCK_BYTES as u64, blocks.end - blocks.start);
        let len = u32::try_from(count * BLOCK_BYTES as u64).expect("few blocks");
        let durability = if self.dice.below(10) == 0 { Durability::Fua } else { Durability::Volatile };
        self.generation += 1;
        let data = self.content(&blocks);
        let (operation, outcome) = match self.dice.below(20) {
            0 => (Operation::WriteZeroes { offset, len, durability }, Outcome::Generation(0)),
            1 => (Operation::Trim { offset, len }, Outcome::OldOrZero),
            2 => (Operation::Flush, Outcome::Nothing),
            _ => (Operation::Write { offset, data: &data, durability }, Outcome::Generation(self.generation)),
        };
        for block in blocks.clone() {
            self.doubt(block, outcome);
        }
        let Ok(cookie) = client.submit(operation) else { return false };
        self.under_way.insert(cookie, (blocks, outcome));
        true
    }

    fn idle_blocks(&mut self) -> Range<u64> {
        loop {
            let count = 1 + self.dice.below(REQUEST_BLOCKS_MAX);
            let first = self.first + self.dice.below(self.blocks - count);
            let apart = |other: &Range<u64>| first >= other.end || first + count <= other.start;
            if self.under_way.values().all(|(blocks, _)| apart(blocks)) {
                return first..first + count;
            }
        }
    }

    fn content(&self, blocks: &Range<u64>) -> Vec<u8> {
        let mut data = vec![0; BLOCK_BYTES * usize::try_from(blocks.end - blocks.start).expect("few blocks")];
        for (block, bytes) in blocks.clone().zip(data.chunks_mut(BLOCK_BYTES)) {
            sectors::fill(bytes, block, self.generation);
        }
        data
    }

    /// A request to `block` is about to be sent.
    fn doubt(&mut self, block: u64, outcome: Outcome) {
        let possible = self.possible.entry(block).or_insert_with(|| vec![0]);
        match outcome {
            Outcome::Generation(generation) => possible.push(generation),
            Outcome::OldOrZero => possible.push(0),
            Outcome::Nothing => {}
        }
    }

    /// A request to `block` was acknowledged.
    fn settle(&mut self, block: u64, outcome: Outcome) {
        if let Outcome::Generation(generation) = outcome {
            self.possible.insert(block, vec![generation]);
        }
    }

    /// Reads every block of the writer's share; each has to hold what it may, which then is all it
    /// may.
    pub fn assert_possible(&mut self, client: &mut Client<UnixStream>) {
        const PIECE_BLOCKS: u64 = 256;
        self.under_way.clear();
        let end = self.first + self.blocks;
        for first in (self.first..end).step_by(256) {
            let count = usize::try_from(PIECE_BLOCKS.min(end - first)).expect("few blocks");
            let mut bytes = vec![0; count * BLOCK_BYTES];
            client.read(first * BLOCK_BYTES as u64, &mut bytes).expect("the server answers");
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
                let found = sectors::generation(bytes, block).unwrap_or_else(|wrong| panic!("{wrong}"));
                let possible = self.possible.get(&block).map_or(&[0][..], Vec::as_slice);
                assert!(possible.contains(&found), "block {block} is {found}, may be {possible:?}");
                self.possible.insert(block, vec![found]);
            }
        }
    }
}
