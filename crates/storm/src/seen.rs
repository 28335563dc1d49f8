//! The account of a storm's clients: what they did, and what they may see.

use crate::commits::Commits;
use crate::marks::Mark;
use crate::script::Setting;
use crate::writes::{Modes, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use tidegate_crashcheck::script::block_of;
use tidegate_media::Lba;
use tidegate_sim::{Content, History, Oracle, Promise};

/// What somebody who drains is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Draining, or about to.
    Awake,
    /// Asking whether there is anything left.
    Asking,
    /// Waiting for the doorbell.
    Asleep,
}

/// What clients do, and may see.
pub(crate) struct Seen {
    /// What may be there after a power cut.
    pub(crate) power: Oracle,
    /// What may be there after a kill, and what reads may show.
    pub(crate) kill: Oracle,
    /// What this life's operations saw.
    pub(crate) history: History,
    /// Operations each client has done, or left out.
    pub(crate) done: Vec<u32>,
    pub(crate) acts: u64,
    /// What was written, by its number.
    pub(crate) tags: BTreeMap<Content, u64>,
    /// Blocks that a cut has torn.
    pub(crate) torn: BTreeMap<Content, Vec<u8>>,
    /// Clients that are not through.
    pub(crate) busy: u32,
    /// Whether something has gone wrong with the media in this life.
    pub(crate) faulted: bool,
    /// Requests answered with an error in this life.
    pub(crate) refusals: u32,
    /// Whether a flush or an eviction was.
    pub(crate) refused: bool,
    /// Steps of destaging that failed in this life.
    pub(crate) destaging_failed: u64,
    /// Writes of several blocks that are put in place as one, and have not been acknowledged in
    /// this life.
    pub(crate) transactions: Vec<Vec<(Lba, Content)>>,
    /// For each of them, by its first content: what its blocks may have shown that had been
    /// acknowledged when it began.
    pub(crate) before_transactions: BTreeMap<Content, Vec<(Lba, Vec<Content>)>>,
    /// Requests that were refused since an earlier loss.
    pub(crate) losses_told: u64,
    /// Operations until the clients of this life rest, if they do.
    pub(crate) until_rest: Option<u64>,
    /// Clients in the middle of an operation, and operations begun.
    pub(crate) acting: (u32, u64),
    /// Each of those who drain.
    pub(crate) drains: Vec<Drain>,
    /// Instants so far, for what follows.
    pub(crate) clock: u64,
    /// Writes of this life.
    pub(crate) written: Vec<Written>,
    /// Of those that are put in place as one in every mode, the first content.
    pub(crate) whole: BTreeSet<Content>,
    pub(crate) modes: Modes,
    /// All that was ever written to each block.
    pub(crate) contents: Vec<Vec<Content>>,
    /// Blocks whose sectors may be torn by the next cut, or were.
    pub(crate) tearable: BTreeSet<Lba>,
    /// Blocks that the disk said it had flushed, and lost.
    pub(crate) lied_about: BTreeSet<Lba>,
    /// All that was ever committed, if the disk keeps the order of that.
    pub(crate) commits: Option<Box<Commits>>,
    /// Rare paths that clients saw taken.
    pub(crate) reached: BTreeMap<Mark, u64>,
}

impl Seen {
    pub(crate) fn new(setting: &Setting, clients: u32) -> Seen {
        let promise = if setting.cache.is_some() { Promise::OnFlush } else { Promise::OnCompletion };
        let oracle = |promise| Oracle::zeroed(setting.blocks, setting.block_bytes, promise);
        let zero = Content::of(&vec![0; setting.block_bytes]);
        Seen {
            power: oracle(promise),
            kill: oracle(Promise::OnCompletion).with_concurrent_reads(),
            history: History::new((0..setting.blocks).map(|_| None)),
            done: vec![0; clients as usize],
            acts: 0,
            tags: BTreeMap::new(),
            torn: BTreeMap::new(),
            busy: 0,
            faulted: false,
            refusals: 0,
            refused: false,
            destaging_failed: 0,
            transactions: Vec::new(),
            before_transactions: BTreeMap::new(),
            losses_told: 0,
            until_rest: None,
            acting: (0, 0),
            drains: Vec::new(),
            clock: 0,
            written: Vec::new(),
            whole: BTreeSet::new(),
            modes: Modes::default(),
            contents: (0..setting.blocks).map(|_| vec![zero]).collect(),
            tearable: BTreeSet::new(),
            lied_about: BTreeSet::new(),
            commits: setting.plan.journal().map(|_| Box::new(Commits::new(setting.blocks, zero))),
            reached: BTreeMap::new(),
        }
    }

    /// An operation of a client begins.
    pub(crate) fn begins(&mut self) {
        self.acting.0 += 1;
        self.acting.1 += 1;
    }

    /// All that was ever written to `lba`.
    pub(crate) fn contents_of(&mut self, lba: Lba) -> &mut Vec<Content> {
        &mut self.contents[usize::try_from(lba.0).expect("a small device")]
    }

    /// A block unlike every other.
    pub(crate) fn fresh_block(&mut self, bytes: usize) -> (Content, Vec<u8>) {
        let tag = self.tags.len() as u64 + 1;
        let block = block_of(tag, bytes);
        let content = Content::of(&block);
        self.tags.insert(content, tag);
        (content, block)
    }
}

/// Locks the account.
pub(crate) fn seen(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // A client that found something wrong has panicked; what was seen until then still counts.
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
