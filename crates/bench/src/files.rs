//! The topic `files`: programs that were never changed, with their files below a root of
//! `tidegate run`, beside the same programs without.
//!
//! Every program is a process of its own, and both of a row live at the same time. Those under
//! `run` have a pool in memory and their files on the disk; the others have their files on the same
//! disk, or in memory. The scheduler puts them where it likes, as it does for anybody.

mod count;
pub(crate) mod disk;
mod probe;
pub(crate) mod redis;
pub(crate) mod sqlite;
pub(crate) mod store;
mod synchronous;
pub(crate) mod testbed;

pub use probe::{Pattern, Probing, probe};

use crate::target::{Row, Target, Topic};
use redis::Policy;
use sqlite::Journal;
use testbed::Storage;

/// The disk that rows measure on, if there can be one: it would be made anew for each row.
pub fn hold_disk() -> Option<impl Sized> {
    // A row that needs it says what is wrong.
    disk::Disk::shared().ok()
}

/// The table.
pub const TOPIC: Topic = Topic {
    name: "files",
    about: "programs that were never changed under `tidegate run`, and without",
    rows: &[
        Row::here(
            "write-floor",
            WRITES_UNDER_RUN,
            "streamed 4 KiB copy + fence",
            Target::AtMost(5.0),
            probe::over_floor,
        ),
        Row::here(
            "write-disk",
            "the same on the disk's own file system",
            "under run",
            Target::AtLeast(60.0),
            probe::disk_over_run,
        ),
        Row::here("append-lines", "lines flushed under run", APPEND, Target::AtMost(8.0), count::append_lines),
        Row::here("append-fences", "fences under run", APPEND, Target::AtMost(4.0), count::append_fences),
        Row::here("cached-lines", BESIDE_MANY, "beside 512", Target::Within(0.0), count::lines_beside_many),
        Row::here(
            "cached-time",
            "the longest time of such a sync, beside 512, 16 Ki or 1 Mi blocks",
            "the shortest",
            Target::AtMost(2.0),
            count::time_beside_many,
        ),
        Row::here(
            "redis-always-50",
            "redis SET, 50 clients, appendfsync always, under run",
            "appendfsync no on the disk",
            Target::AtLeast(0.95),
            |effort| redis::always_over_no(effort, redis::RUN, 1),
        ),
        Row::here(
            "redis-always-50x10",
            "redis SET, 50 clients, pipelines of 10, appendfsync always, under run",
            "appendfsync no on the disk",
            Target::AtLeast(0.95),
            |effort| redis::always_over_no(effort, redis::RUN, 10),
        ),
        Row::here("redis-always-1", REDIS_ONE, "on the disk", Target::AtLeast(3.0), |effort| {
            redis::same_over_disk(effort, Policy::Always, 1)
        }),
        Row::here(
            "redis-always-p99",
            "99th percentile of these, under run",
            "with the files in /dev/shm",
            Target::AtMost(1.15),
            redis::p99_over_memory,
        ),
        Row::here(
            "redis-no",
            "redis SET, 50 clients, appendfsync no, under run",
            "on the disk",
            Target::Within(0.05),
            |effort| redis::same_over_disk(effort, Policy::No, 50),
        ),
        Row::here("sqlite-wal", SQLITE_WAL, "under run", Target::AtLeast(5.0), |effort| {
            sqlite::compare(effort, Journal::Wal, [Storage::Disk, sqlite::RUN])
        }),
        Row::here("sqlite-delete", SQLITE_DELETE, "under run", Target::AtLeast(8.0), |effort| {
            sqlite::compare(effort, Journal::Delete, [Storage::Disk, sqlite::RUN])
        }),
        Row::here("rocksdb-fillsync", ROCKSDB_SYNC, "on the disk", Target::AtLeast(12.0), |effort| {
            store::fill_sync(effort, [store::RUN, Storage::Disk])
        }),
        Row::here("rocksdb-fillrandom", ROCKSDB_FILL, "on the disk", Target::Within(0.05), store::fill_random),
        Row::here(
            "tar",
            "a source tree packed and unpacked by tar, under run",
            "on the disk",
            Target::Within(0.05),
            store::tar,
        ),
        Row::here(
            "o-sync-1k",
            "fio psync, 1 KiB at random, O_SYNC, under run",
            "on the disk",
            Target::AtLeast(40.0),
            |effort| synchronous::compare(effort, "1k", Storage::Disk),
        ),
        Row::here(
            "o-sync-4k",
            "fio psync, 4 KiB at random, O_SYNC, under run",
            "on the disk",
            Target::AtLeast(40.0),
            |effort| synchronous::compare(effort, "4k", Storage::Disk),
        ),
        Row::here(
            "o-sync-16k",
            "fio psync, 16 KiB at random, O_SYNC, under run",
            "on the disk",
            Target::AtLeast(40.0),
            |effort| synchronous::compare(effort, "16k", Storage::Disk),
        ),
        Row::here(
            "o-sync-4k-memory",
            "fio psync, 4 KiB at random, O_SYNC, under run",
            "in /dev/shm",
            Target::AtLeast(1.0),
            |effort| synchronous::compare(effort, "4k", Storage::Memory),
        ),
    ],
};

const WRITES_UNDER_RUN: &str = "4 KiB written at random over 256 MiB and fdatasync, 1 thread, under run";
const APPEND: &str = "100 bytes appended and fdatasync";
const BESIDE_MANY: &str = "lines flushed by a sync of 8 blocks in the pool, beside 1 Mi blocks out of sync";
const REDIS_ONE: &str = "redis SET, 1 client, appendfsync always, under run";
const SQLITE_WAL: &str = "SQLite, transactions of one row, WAL and synchronous=FULL, time on the disk";
const SQLITE_DELETE: &str = "SQLite, transactions of one row, DELETE and synchronous=FULL, time on the disk";
const ROCKSDB_SYNC: &str = "RocksDB, db_bench fillsync, values of 128 bytes, under run";
const ROCKSDB_FILL: &str = "RocksDB, db_bench fillrandom, values of 128 bytes, under run";
