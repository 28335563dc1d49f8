//! The topic `files`: unchanged programs with the direct path to their files, beside the same
//! programs without.
//!
//! Every program is a process of its own, and both of a row live at the same time. Those with the
//! direct path have their files in a mount, whose pool is in memory and whose SOURCE on the disk;
//! the others have them on the same disk, or in memory. The scheduler puts them where it likes, as
//! it does for anybody, unless the row says otherwise.

mod contexts;
mod count;
mod probe;
pub(crate) mod redis;
pub(crate) mod sqlite;
pub(crate) mod store;
mod synchronous;
pub(crate) mod testbed;

pub use probe::{Pattern, Probing, probe};

use crate::mount::{self, COPY, GIT_STATUS, MAKE, UNPACK};
use crate::target::{Outcome, Row, Target, Topic};
use contexts::Subject;
use sqlite::Journal;
use testbed::Storage;
use tidegate_measure::testbed::disk::Disk;
use tidegate_measure::workload::Effort;

/// A disk that rows measure on, if there can be one: it would be made anew for each row.
pub fn hold_disk() -> Option<impl Sized> {
    // A row that needs it says what is wrong.
    Disk::shared().ok()
}

/// MiB of a pool with room for all that is written between two turns.
const POOL_MIB: u32 = 512;

/// Files of 256 MiB with the direct path.
const LARGE: Storage = Storage::Direct(probe::POOL_MIB);
/// Files with the direct path.
const DIRECT: Storage = Storage::Direct(POOL_MIB);
const DIRECT_OVER_MEMORY: [Storage; 2] = [DIRECT, Storage::Memory];
const DIRECT_OVER_DISK: [Storage; 2] = [DIRECT, Storage::Disk];
const DIRECT_OVER_MOUNT: [Storage; 2] = [DIRECT, Storage::Mount(POOL_MIB)];
const MEMORY_OVER_DIRECT: [Storage; 2] = [Storage::Memory, DIRECT];

/// The table.
pub const TOPIC: Topic = Topic {
    name: "files",
    about: "unchanged programs with the direct path to their files, and without",
    rows: &[
        Row::here("write-floor", WRITES, "streamed 4 KiB copy + fence", Target::AtMost(4.0), probe::over_floor),
        Row::here("write-disk", WRITES_ON_DISK, IN_DIRECT, Target::Shown, |effort| {
            probe::over_direct(effort, Storage::Disk, (Pattern::Random, BLOCK))
        }),
        Row::here("write-mount", WRITES_IN_MOUNT, IN_DIRECT, Target::Shown, |effort| {
            probe::over_direct(effort, Storage::Mount(probe::POOL_MIB), (Pattern::Random, BLOCK))
        }),
        Row::here("o-sync-memory", O_SYNC, MEMORY, Target::AtLeast(1.05), |effort| {
            synchronous::compare(effort, [LARGE, Storage::Memory])
        }),
        Row::here("o-sync-disk", O_SYNC, DISK, Target::Shown, |effort| {
            synchronous::compare(effort, [LARGE, Storage::Disk])
        }),
        Row::here("two-threads", WRITES, BY_TWO_THREADS, Target::AtLeast(ON_TWO_CORES), probe::one_over_two_threads),
        Row::here(
            "two-processes",
            WRITES,
            BY_TWO_PROCESSES,
            Target::AtLeast(ON_TWO_CORES),
            probe::one_over_two_processes,
        ),
        Row::here("buffered-write", BUFFERED, IN_DIRECT, Target::AtLeast(1.0), |effort| {
            probe::over_direct(effort, Storage::Disk, (Pattern::Buffered, BLOCK))
        }),
        Row::here("read-64", READ_64, IN_DIRECT, Target::AtLeast(0.95), |effort| read(effort, 64)),
        Row::here("read-4k", READ_4K, IN_DIRECT, Target::AtLeast(0.95), |effort| read(effort, BLOCK)),
        Row::here("read-1m", READ_1M, IN_DIRECT, Target::AtLeast(0.95), |effort| read(effort, 1 << 20)),
        Row::here("append-lines", "lines flushed", APPEND, Target::AtMost(8.0), count::append_lines),
        Row::here("append-fences", "fences", APPEND, Target::AtMost(3.0), count::append_fences),
        Row::here("revocation", "microseconds of another process' read", "lease", Target::AtMost(1000.0), |effort| {
            probe::revocation(effort)
        }),
        Row::here("context-sqlite", CONTEXT, "sqlite3", Target::AtMost(0.15), |effort| {
            contexts::per_call(effort, Subject::Sqlite)
        }),
        Row::here("context-fio", CONTEXT, "fio, psync", Target::AtMost(0.45), |effort| {
            contexts::per_call(effort, Subject::Fio)
        }),
        Row::here("redis-50", REDIS_50, "appendfsync no on the disk", Target::AtLeast(0.97), |effort| {
            redis::always_over_no(effort, DIRECT, 1)
        }),
        Row::here("redis-50x10", REDIS_50X10, "appendfsync no on the disk", Target::AtLeast(0.97), |effort| {
            redis::always_over_no(effort, DIRECT, 10)
        }),
        Row::here("redis-1", REDIS_1_MEMORY, IN_DIRECT, Target::AtLeast(0.95), |effort| {
            redis::always_median(effort, MEMORY_OVER_DIRECT)
        }),
        Row::here("redis-1-disk", REDIS_1_DISK, IN_DIRECT, Target::Shown, |effort| {
            redis::always_median(effort, [Storage::Disk, DIRECT])
        }),
        Row::here("redis-p99", REDIS_P99, MEMORY, Target::AtMost(1.15), |effort| {
            redis::p99_over_memory(effort, DIRECT)
        }),
        Row::here("redis-no", REDIS_NO, DISK, Target::Within(0.05), |effort| {
            redis::never_synced(effort, DIRECT_OVER_DISK)
        }),
        Row::here("sqlite-wal", SQLITE_WAL, IN_DIRECT, Target::AtLeast(0.9), |effort| {
            mount::together(|| sqlite::compare(effort, Journal::Wal, MEMORY_OVER_DIRECT))
        }),
        Row::here("sqlite-wal-disk", SQLITE_WAL_DISK, IN_DIRECT, Target::Shown, |effort| {
            mount::together(|| sqlite::compare(effort, Journal::Wal, [Storage::Disk, DIRECT]))
        }),
        Row::here("sqlite-delete", SQLITE_DELETE, IN_DIRECT, Target::AtLeast(OF_REQUESTS), |effort| {
            mount::together(|| sqlite::compare(effort, Journal::Delete, MEMORY_OVER_DIRECT))
        }),
        Row::here("sqlite-delete-disk", SQLITE_DELETE_DISK, IN_DIRECT, Target::Shown, |effort| {
            mount::together(|| sqlite::compare(effort, Journal::Delete, [Storage::Disk, DIRECT]))
        }),
        Row::here("rocksdb-fillsync", ROCKSDB_SYNC, MEMORY, Target::AtLeast(0.9), |effort| {
            store::fill_sync(effort, DIRECT_OVER_MEMORY)
        }),
        Row::here("rocksdb-fillsync-disk", ROCKSDB_SYNC, DISK, Target::Shown, |effort| {
            store::fill_sync(effort, DIRECT_OVER_DISK)
        }),
        Row::here("rocksdb-fillrandom", ROCKSDB_FILL, DISK, Target::Within(0.05), |effort| {
            store::fill_random(effort, DIRECT_OVER_DISK)
        }),
        Row::here("untar", "tar xf of a source tree", IN_MOUNT, Target::AtMost(1.05), |effort| {
            mount::task(effort, UNPACK, DIRECT_OVER_MOUNT)
        }),
        Row::here("copy", "cp -a of a source tree", IN_MOUNT, Target::AtMost(1.05), |effort| {
            mount::task(effort, COPY, DIRECT_OVER_MOUNT)
        }),
        Row::here("git-status", "git status of a source tree", IN_MOUNT, Target::AtMost(1.05), |effort| {
            mount::task(effort, GIT_STATUS, DIRECT_OVER_MOUNT)
        }),
        Row::here("make", "make -j2 of 40 C files", IN_MOUNT, Target::AtMost(1.05), |effort| {
            mount::task(effort, MAKE, DIRECT_OVER_MOUNT)
        }),
    ],
};

/// Bytes of a page.
const BLOCK: usize = 4096;

/// What two cores allow two writers at most, of twice one: decision 0039 derives it.
const ON_TWO_CORES: f64 = 0.62;

/// What the requests of a journal leave of the rate in memory: decision 0041 derives it.
const OF_REQUESTS: f64 = 0.1;

const IN_DIRECT: &str = "with the direct path";
const IN_MOUNT: &str = "the same in the mount alone";
const DISK: &str = "on the disk's own file system";
const MEMORY: &str = "in /dev/shm";
const WRITES: &str = "4 KiB pwrite at random over 256 MiB + fdatasync, direct path, 1 thread";
const WRITES_ON_DISK: &str = "4 KiB pwrite at random over 256 MiB + fdatasync on the disk's own file system";
const WRITES_IN_MOUNT: &str = "4 KiB pwrite at random over 256 MiB + fdatasync in the mount alone";
const BY_TWO_THREADS: &str = "the same by 2 threads at a time, a file each";
const BY_TWO_PROCESSES: &str = "the same by 2 processes at a time, a file each";
const O_SYNC: &str = "fio psync, 4 KiB at random over 256 MiB, O_SYNC, direct path";
const BUFFERED: &str = "4 KiB pwrite at random over 256 MiB on the disk's own file system";
const READ_64: &str = "cached pread of 64 bytes at random over 256 MiB on the disk's own file system";
const READ_4K: &str = "cached pread of 4 KiB at random over 256 MiB on the disk's own file system";
const READ_1M: &str = "cached pread of 1 MiB at random over 256 MiB on the disk's own file system";
const APPEND: &str = "100 bytes appended + fdatasync";
const CONTEXT: &str = "microseconds to find the program context of a read or write, all of 100,000 verified";
const REDIS_50: &str = "redis SET, 50 clients, appendfsync always, direct path";
const REDIS_50X10: &str = "redis SET, 50 clients, pipelines of 10, appendfsync always, direct path";
const REDIS_1_MEMORY: &str = "median time of redis SET, 1 client, appendfsync always, in /dev/shm";
const REDIS_1_DISK: &str = "median time of redis SET, 1 client, appendfsync always, on the disk's own file system";
const REDIS_P99: &str = "99th percentile of redis SET, 1 client, appendfsync always, direct path";
const REDIS_NO: &str = "redis SET, 50 clients, appendfsync no, direct path";
const SQLITE_WAL: &str = "SQLite, transactions of one row, WAL and synchronous=FULL, in /dev/shm, on one core";
const SQLITE_WAL_DISK: &str =
    "SQLite, transactions of one row, WAL and synchronous=FULL, on the disk's own file system";
const SQLITE_DELETE: &str = "SQLite, transactions of one row, DELETE and synchronous=FULL, in /dev/shm, on one core";
const SQLITE_DELETE_DISK: &str =
    "SQLite, transactions of one row, DELETE and synchronous=FULL, on the disk's own file system";
const ROCKSDB_SYNC: &str = "RocksDB, db_bench fillsync, values of 128 bytes, direct path";
const ROCKSDB_FILL: &str = "RocksDB, db_bench fillrandom, values of 128 bytes, direct path";

fn read(effort: Effort, bytes: usize) -> anyhow::Result<Outcome> {
    probe::over_direct(effort, Storage::Disk, (Pattern::Read, bytes))
}
