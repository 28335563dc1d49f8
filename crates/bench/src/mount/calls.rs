//! System calls of this process on files of a mount and elsewhere, each timed by itself.
//!
//! The sample is the median call: on a busy machine, the mean would be the time that other
//! processes had the core.

use super::POOL_MIB;
use crate::files::testbed::{Storage, Testbed, missing};
use crate::target::Outcome;
use anyhow::Context;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::{Effort, on_core};
use tidegate_sim::Rng;

/// Most blocks of a file: 64 MiB.
const BLOCKS_MAX: u32 = 16 << 10;

/// Calls in a sample, at most; the disk's own file system does a tenth.
const CALLS_MAX: u32 = 4000;

/// Bytes of an append.
const APPEND_BYTES: usize = 100;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// `pwrite` of 4 KiB at random, and `fdatasync`.
    WriteAndSync,
    /// `pwrite` of 4 KiB at random to a file opened with `O_SYNC`.
    SynchronousWrite,
    /// `write` of 100 bytes at the end, and `fsync`.
    AppendAndSync,
    /// `pread` of 4 KiB at random from the kernel's page cache.
    CachedRead,
    /// `stat` of a path that the kernel knows.
    Stat,
}

/// Where client and server run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Both on one core.
    Together,
    /// Each on a core of its own.
    Apart,
    /// Where the scheduler puts them.
    Unpinned,
}

/// The core of clients that are pinned, among those allowed.
pub(super) const CLIENT_CORE: usize = 0;

impl Place {
    /// Acts as a client here.
    fn client<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        if self == Place::Unpinned { act() } else { on_core(CLIENT_CORE, act) }
    }

    /// Starts what `storage` needs here.
    fn testbed(self, storage: Storage) -> anyhow::Result<Testbed> {
        match self {
            Place::Unpinned => Testbed::new(storage),
            Place::Together => on_core(CLIENT_CORE, || Testbed::new(storage)),
            Place::Apart => on_core(CLIENT_CORE + 1, || Testbed::new(storage)),
        }
    }
}

/// A thread's file, and what it does with it.
pub(super) struct Client {
    act: Act,
    path: PathBuf,
    file: File,
    blocks: u64,
    random: Rng,
    block: Block,
}

impl Client {
    /// The file with this number in `folder`, with so many blocks.
    pub(super) fn new(act: Act, folder: &Path, number: usize, blocks: u64) -> anyhow::Result<Client> {
        let path = folder.join(format!("file-{number}"));
        let mut options = File::options();
        options.read(true).write(true).create(true).append(act == Act::AppendAndSync);
        let block = Block::filled(number);
        if act != Act::AppendAndSync {
            let file = options.open(&path)?;
            (0..blocks).try_for_each(|at| file.write_all_at(block.bytes(), at * BLOCK_BYTES as u64))?;
            file.sync_all()?;
        }
        if act == Act::SynchronousWrite {
            options.custom_flags(rustix::fs::OFlags::SYNC.bits().cast_signed());
        }
        let mut client = Client { act, file: options.open(&path)?, path, blocks, random: Rng::new(1), block };
        client.median_nanoseconds(CALLS_MAX / 40)?;
        Ok(client)
    }

    /// Does it once.
    pub(super) fn call(&mut self) -> std::io::Result<()> {
        let at = self.random.below(self.blocks) * BLOCK_BYTES as u64;
        match self.act {
            Act::WriteAndSync => {
                self.file.write_all_at(self.block.bytes(), at)?;
                self.file.sync_data()
            }
            Act::SynchronousWrite => self.file.write_all_at(self.block.bytes(), at),
            Act::AppendAndSync => {
                std::io::Write::write_all(&mut self.file, &self.block.bytes()[..APPEND_BYTES])?;
                self.file.sync_all()
            }
            Act::CachedRead => self.file.read_exact_at(self.block.bytes_mut(), at),
            Act::Stat => std::fs::metadata(&self.path).map(drop),
        }
    }

    /// Does it so often, and returns the median time.
    pub(super) fn median_nanoseconds(&mut self, calls: u32) -> anyhow::Result<f64> {
        let timed = || {
            let began = Instant::now();
            self.call().map(|()| began.elapsed())
        };
        let mut times = std::iter::repeat_with(timed).take(calls as usize).collect::<Result<Vec<_>, _>>()?;
        times.sort_unstable();
        Ok(times.get(times.len() / 2).context("no calls")?.as_nanos() as f64)
    }
}

/// Clients side by side, each with a file of its own.
struct Clients {
    clients: Vec<Client>,
    place: Place,
    calls: u32,
    testbed: Testbed,
}

impl Clients {
    fn new(load: Load, storage: Storage, effort: Effort) -> anyhow::Result<Clients> {
        let Load { act, clients, place } = load;
        let testbed = place.testbed(storage)?;
        let blocks = effort.steps.min(BLOCKS_MAX).into();
        let clients = (0..clients).map(|number| Client::new(act, &testbed.root(), number, blocks));
        let clients = clients.collect::<anyhow::Result<_>>()?;
        let waits_for_disk = storage == Storage::Disk && !matches!(act, Act::CachedRead | Act::Stat);
        let calls = effort.steps.min(if waits_for_disk { CALLS_MAX / 10 } else { CALLS_MAX });
        Ok(Clients { clients, place, calls, testbed })
    }

    /// The mean of the clients' medians.
    fn nanoseconds(&mut self) -> anyhow::Result<f64> {
        let (place, calls, count) = (self.place, self.calls, self.clients.len());
        let medians = std::thread::scope(|scope| {
            let measure = |client: &mut Client| place.client(|| client.median_nanoseconds(calls));
            let spawn = |client| scope.spawn(move || measure(client));
            let started: Vec<_> = self.clients.iter_mut().map(spawn).collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("a client reports what goes wrong"))
                .collect::<anyhow::Result<Vec<f64>>>()
        })?;
        Ok(medians.iter().sum::<f64>() / count as f64)
    }
}

/// Who calls what.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) act: Act,
    pub(super) clients: usize,
    pub(super) place: Place,
}

/// The time of a call in the first storage over that in the second.
pub(super) fn compare(effort: Effort, load: Load, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let (mut over, mut under) = (Clients::new(load, at[0], effort)?, Clients::new(load, at[1], effort)?);
    let pairs = Pairs::try_alternate(effort.pairs, || over.nanoseconds(), || under.nanoseconds())?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

/// What the service counts under `number` of its status, for each call of one client.
pub(super) fn count(effort: Effort, act: Act, number: &str) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let load = Load { act, clients: 1, place: Place::Unpinned };
    let mut clients = Clients::new(load, Storage::Mount(POOL_MIB), effort)?;
    let told = |clients: &Clients| clients.testbed.mount().context("it is a mount")?.status(number);
    let before = told(&clients)?;
    clients.nanoseconds()?;
    Ok(Outcome::count(told(&clients)? - before, clients.calls.into()))
}

/// Bursts of which the quietest counts, and the calls of each.
const BURSTS: u32 = 8;
const BURST_CALLS: u32 = 50;

/// Requests that the disk gets for each write and sync, in the quietest of some short bursts. The
/// others may have met a step of write-back. If a sync waited for the disk, each burst would have a
/// request for each call.
pub(super) fn device_requests(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]) {
        return Ok(missing);
    }
    let load = Load { act: Act::WriteAndSync, clients: 1, place: Place::Together };
    let mut clients = Clients::new(load, Storage::Mount(POOL_MIB), effort)?;
    let mut least = u64::MAX;
    for _ in 0..BURSTS {
        clients.testbed.mount().context("it is a mount")?.flush()?;
        let told = |clients: &Clients| clients.testbed.disk().context("SOURCE is on a disk")?.requests();
        // The file's first sync after it was written back may wait for the disk.
        clients.clients[0].call()?;
        let before = told(&clients)?;
        (0..BURST_CALLS).try_for_each(|_| clients.clients[0].call())?;
        least = least.min(told(&clients)? - before);
    }
    Ok(Outcome::count(least, BURST_CALLS.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn each_act_is_done_on_a_file_as_often_as_asked() {
        for act in [Act::WriteAndSync, Act::SynchronousWrite, Act::AppendAndSync, Act::CachedRead, Act::Stat] {
            let load = Load { act, clients: 2, place: Place::Together };
            let effort = Effort { pairs: 1, steps: 10 };
            let mut clients = Clients::new(load, Storage::Memory, effort).unwrap();
            assert!(clients.nanoseconds().unwrap() > 0.0, "{act:?}");
            if act == Act::AppendAndSync {
                let appended = std::fs::metadata(&clients.clients[1].path).unwrap().len();
                assert_eq!(appended, APPEND_BYTES as u64 * u64::from(CALLS_MAX / 40 + 10));
            }
        }
    }
}
