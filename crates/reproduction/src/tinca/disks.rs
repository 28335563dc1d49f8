//! Disks below the caches, in virtual time: a thread that waits for one leaves its core to others.
//!
//! A disk does one thing at a time, reads before writes that wait. The time it is busy with a
//! request, and the time of the request alone, are two numbers: a solid-state disk works on several
//! requests at once. A hard disk has an arm, whose way is by the square root of the distance, and a
//! cache that takes writes until it is full; a flush waits until the arm has followed. Off the
//! virtual cores no act takes time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tidegate_media::{Backing, BlockDevice, Durability, Lba, LbaRange, Result, Run};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::cost::{Disk as Told, disk_by_name};
use tidegate_virtual_cores::{is_inside, now_ns, pass_time};

/// A random read and a random write keep a solid-state disk busy for these times, in nanoseconds:
/// 72,000 and 38,000 a second (Intel SSD DC S4600 of 240 GB, product specification; the smallest of
/// its series, as the paper has 128 GB).
const SSD_BUSY_NS: (u64, u64) = (13_889, 26_316);

/// The least that a read of one block, and a block that is written among its neighbours, keep a
/// solid-state disk busy, in nanoseconds.
pub(super) fn least_busy_ns() -> anyhow::Result<(u64, u64)> {
    Ok((SSD_BUSY_NS.0, disk_by_name("sata-ssd")?.transfer_4k.ps / 1000))
}

/// A hard disk's average seek, over a third of its blocks, and half a turn, in nanoseconds (HGST
/// Ultrastar 7K4000, specification).
const SEEK_NS: f64 = 8_200_000.0;
const HALF_TURN_NS: u64 = 4_160_000;

/// The share of a disk of 4 TB that the paper's 32 GB are.
const SHARE: f64 = 32.0 / 4000.0;

/// Blocks in a hard disk's cache of 64 MiB.
const HELD_MAX: usize = (64 << 20) / 4096;

/// Which disk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// A solid-state disk with a SATA plug.
    Ssd,
    /// A hard disk.
    Hdd,
}

impl Make {
    /// As the figures call it.
    pub fn label(self) -> &'static str {
        match self {
            Make::Ssd => "SSD",
            Make::Hdd => "HDD",
        }
    }
}

/// What a solid-state disk's random write takes alone, in nanoseconds.
pub(super) fn write_ns() -> anyhow::Result<u64> {
    Ok(disk_by_name("sata-ssd")?.write.ps / 1000)
}

/// A disk of blocks of 4 KiB in memory that takes its time.
pub(super) struct SlowDisk {
    ram: Ram,
    make: Make,
    /// Blocks that a hard disk's cache holds.
    held_max: usize,
    told: Told,
    busy: Mutex<Busy>,
}

/// For how long a disk was busy so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) reading_ns: u64,
    pub(super) writing_ns: u64,
}

impl std::ops::Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent { reading_ns: self.reading_ns - before.reading_ns, writing_ns: self.writing_ns - before.writing_ns }
    }
}

/// Until when a disk is busy, in nanoseconds.
#[derive(Debug, Default)]
struct Busy {
    spent: Spent,
    reads_until: u64,
    writes_until: u64,
    /// The block behind the last one that the arm went to.
    arm: u64,
    /// When the writes in its cache will be done.
    held: VecDeque<u64>,
}

impl SlowDisk {
    /// A disk of so many blocks, whose cache is so many times `smaller` than it would be.
    pub(super) fn new(make: Make, blocks: u64, smaller: u32) -> anyhow::Result<SlowDisk> {
        let told = disk_by_name(match make {
            Make::Ssd => "sata-ssd",
            Make::Hdd => "hdd",
        })?;
        let held_max = HELD_MAX / smaller as usize;
        Ok(SlowDisk { ram: Ram::new(4096, blocks), make, held_max, told, busy: Mutex::default() })
    }

    /// What it did in virtual time so far.
    pub(super) fn spent(&self) -> Spent {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).spent
    }

    fn read_done_ns(&self, at: Lba, blocks: u64) -> u64 {
        if !is_inside() {
            return 0;
        }
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (work, alone) = match self.make {
            Make::Ssd => (self.work_ns(SSD_BUSY_NS.0, blocks), self.told.read.ps / 1000),
            Make::Hdd => (busy.way_ns(at, blocks, self.ram.geometry().blocks) + self.work_ns(0, blocks), 0),
        };
        let begin = busy.reads_until.max(now_ns());
        busy.spent.reading_ns += work;
        busy.reads_until = begin + work;
        busy.writes_until = busy.writes_until.max(begin) + work;
        (begin + alone).max(begin + work)
    }

    fn write_done_ns(&self, at: Lba, blocks: u64) -> u64 {
        if !is_inside() {
            return 0;
        }
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = busy.writes_until.max(busy.reads_until).max(now_ns());
        match self.make {
            Make::Ssd => {
                let work = self.work_ns(SSD_BUSY_NS.1, blocks);
                busy.spent.writing_ns += work;
                busy.writes_until = begin + work;
                (begin + self.told.write.ps / 1000).max(begin + work)
            }
            Make::Hdd => {
                let way = busy.way_ns(at, blocks, self.ram.geometry().blocks);
                let done = begin + way + self.work_ns(0, blocks);
                busy.spent.writing_ns += done - begin;
                busy.writes_until = done;
                busy.hold(done, self.held_max)
            }
        }
    }

    /// The time of `blocks` neighbours: the first one's, or what the plug lets through.
    fn work_ns(&self, first_ns: u64, blocks: u64) -> u64 {
        first_ns.max(blocks * self.told.transfer_4k.ps / 1000)
    }

    fn wait_until(&self, done_ns: u64) {
        if is_inside() {
            pass_time(done_ns.saturating_sub(now_ns()));
        }
    }
}

impl Busy {
    /// The arm's way to `at`, and half a turn, unless it is there.
    fn way_ns(&mut self, at: Lba, blocks: u64, of: u64) -> u64 {
        let distance = self.arm.abs_diff(at.0);
        self.arm = at.0 + blocks;
        if distance == 0 {
            return 0;
        }
        let share = 3.0 * SHARE * distance as f64 / of as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few milliseconds")]
        let seek_ns = (SEEK_NS * share.sqrt()) as u64;
        seek_ns + HALF_TURN_NS
    }

    /// A write that the arm will have done at `done_ns` goes into the cache; says when it has room.
    fn hold(&mut self, done_ns: u64, held_max: usize) -> u64 {
        self.held.push_back(done_ns);
        match self.held.len() > held_max {
            true => self.held.pop_front().unwrap_or(0).max(now_ns()),
            false => now_ns(),
        }
    }
}

impl BlockDevice for SlowDisk {
    tidegate_media::forward!(self => self.ram; geometry, discard, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.wait_until(self.read_done_ns(at, out.len() as u64 / 4096));
        self.ram.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.wait_until(self.write_done_ns(at, data.len() as u64 / 4096));
        self.ram.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let done_ns = match self.make {
            Make::Ssd => now_ns() + self.told.flush.ps / 1000,
            Make::Hdd => busy.writes_until,
        };
        drop(busy);
        self.wait_until(done_ns);
        self.ram.flush()
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.wait_until(self.write_done_ns(range.first, range.blocks));
        self.ram.write_zeroes(range, durability)
    }
}

impl Backing for SlowDisk {
    /// All of them are on their way together.
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        let done_ns = runs.iter().map(|run| self.write_done_ns(run.at, run.data.len() as u64 / 4096)).max();
        self.wait_until(done_ns.unwrap_or(0));
        runs.iter().map(|run| self.ram.write(run.at, run.data, Durability::Volatile)).collect()
    }
}
