//! The topic `mount`: unchanged programs with their files in `tidegate mount`, beside the bare
//! server, the disk's own file system and memory.
//!
//! SOURCE is on the disk (see `files::disk`), and the pool is in memory. The *bare server*
//! answers every request at once from its memory, behind the same transport: it is the protocol's
//! floor. Both of a row are mounted at the same time and measured in turn.

mod cached;
mod calls;
mod cluster;
pub(crate) mod databases;
mod large_pool;
mod neighbours;
mod programs;

pub(crate) use tidegate_measure::testbed::Mounted;

use crate::files::redis;
use crate::files::sqlite::{self, Journal};
use crate::files::store;
use crate::files::testbed::Storage;
use crate::target::{Outcome, Row, Target, Topic};
use calls::{Act, Load, Place, count};
use cluster::{Asked, Counted};
use programs::buffered;
pub(crate) use programs::{COPY, GIT_STATUS, MAKE, Task, UNPACK};
use tidegate_measure::workload::{Effort, on_core};

/// MiB of a pool with room for all that is written between two turns.
const POOL_MIB: u32 = 512;

/// MiB of a pool that is full while its writers outrun the disk.
const SOON_FULL_MIB: u32 = 64;

/// The mount beside each of the others.
const OVER_BARE: [Storage; 2] = [Storage::Mount(POOL_MIB), Storage::BareMount];
const OVER_DISK: [Storage; 2] = [Storage::Mount(POOL_MIB), Storage::Disk];
const OVER_MEMORY: [Storage; 2] = [Storage::Mount(POOL_MIB), Storage::Memory];
const MEMORY_OVER: [Storage; 2] = [Storage::Memory, Storage::Mount(POOL_MIB)];
const DISK_OVER: [Storage; 2] = [Storage::Disk, Storage::Mount(POOL_MIB)];

/// The table.
pub const TOPIC: Topic = Topic {
    name: "mount",
    about: "unchanged programs with their files in `tidegate mount`",
    rows: &[
        Row::here("sync-together", SYNC_TOGETHER, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::WriteAndSync, 1, Place::Together)
        }),
        Row::here("sync-apart", SYNC_APART, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::WriteAndSync, 1, Place::Apart)
        }),
        Row::here("sync", SYNC, BARE, NEAR_BARE, |effort| over_bare(effort, Act::WriteAndSync, 1, Place::Unpinned)),
        Row::here("sync-2", SYNC_2, BARE, NEAR_BARE, |effort| over_bare(effort, Act::WriteAndSync, 2, Place::Unpinned)),
        Row::here("o-sync-together", O_SYNC_TOGETHER, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::SynchronousWrite, 1, Place::Together)
        }),
        Row::here("o-sync-apart", O_SYNC_APART, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::SynchronousWrite, 1, Place::Apart)
        }),
        Row::here("o-sync", O_SYNC, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::SynchronousWrite, 1, Place::Unpinned)
        }),
        Row::here("o-sync-2", O_SYNC_2, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::SynchronousWrite, 2, Place::Unpinned)
        }),
        Row::here("sync-disk", SYNC_DISK, "in the mount", Target::AtLeast(5.0), |effort| {
            let load = Load { act: Act::WriteAndSync, clients: 1, place: Place::Together };
            calls::compare(effort, load, DISK_OVER)
        }),
        Row::here("sync-below", BELOW, "sync", Target::AtMost(0.0), |effort| {
            count(effort, Act::WriteAndSync, "syncs_below")
        }),
        Row::here("sync-io", DEVICE_IO, "sync", Target::AtMost(0.0), calls::device_requests),
        Row::here("beside-greedy", MODEST, ALONE, Target::AtMost(1.5), |effort| {
            neighbours::p99_over_alone(effort, Storage::Mount(POOL_MIB), 1)
        }),
        Row::here("beside-greedy-bare", MODEST_BARE, ALONE, Target::Shown, |effort| {
            neighbours::p99_over_alone(effort, Storage::BareMount, 1)
        }),
        Row::here("beside-greedy-full", MODEST_FULL, ALONE, Target::AtMost(1.5), |effort| {
            neighbours::p99_over_alone(effort, Storage::Mount(SOON_FULL_MIB), 4)
        }),
        Row::here("beside-greedy-disk", MODEST_DISK, ALONE, Target::Shown, |effort| {
            neighbours::p99_over_alone(effort, Storage::Disk, 4)
        }),
        Row::here("append", APPEND, BARE, NEAR_BARE, |effort| {
            over_bare(effort, Act::AppendAndSync, 1, Place::Together)
        }),
        Row::here("append-lines", "lines flushed", APPEND, Target::AtMost(12.0), |effort| {
            count(effort, Act::AppendAndSync, "lines_flushed")
        }),
        Row::here("append-fences", "fences", APPEND, Target::AtMost(4.0), |effort| {
            count(effort, Act::AppendAndSync, "fences")
        }),
        Row::here("cached-1", CACHED_1, SHORTEST, Target::AtMost(2.0), |effort| {
            cached::compare(effort, 1, cached::MOUNT)
        }),
        Row::here("cached-512", CACHED_512, SHORTEST, Target::AtMost(2.0), |effort| {
            cached::compare(effort, 512, cached::MOUNT)
        }),
        Row::here("cached-1-disk", CACHED_1_DISK, SHORTEST, Target::Shown, |effort| {
            cached::compare(effort, 1, Storage::Disk)
        }),
        Row::here("cached-512-disk", CACHED_512_DISK, SHORTEST, Target::Shown, |effort| {
            cached::compare(effort, 512, Storage::Disk)
        }),
        Row::here("memory-per-page", MEMORY_PER_PAGE, "page", Target::AtMost(64.0), large_pool::memory_per_page),
        Row::here("first-byte", FIRST_BYTE, "start", Target::AtMost(1.0), large_pool::first_byte),
        Row::here("read", READ, DISK, Target::AtMost(1.05), |effort| over_disk(effort, Act::CachedRead)),
        Row::here("stat", STAT, BARE, Target::AtMost(1.05), |effort| over_bare(effort, Act::Stat, 1, Place::Together)),
        Row::here("stat-disk", STAT, DISK, Target::Shown, |effort| over_disk(effort, Act::Stat)),
        Row::here("untar", UNTAR, BARE_AND_DISK, NEAR_BARE, |effort| together(|| programs::over_both(effort, UNPACK))),
        Row::here("untar-bare", UNTAR, BARE, Target::Shown, |effort| {
            together(|| programs::compare(effort, UNPACK, OVER_BARE))
        }),
        Row::here("copy", CP, BARE_AND_DISK, NEAR_BARE, |effort| together(|| programs::over_both(effort, COPY))),
        Row::here("copy-bare", CP, BARE, Target::Shown, |effort| {
            together(|| programs::compare(effort, COPY, OVER_BARE))
        }),
        Row::here("git-status", "git status of a source tree, on one core", DISK, NEAR_DISK, |effort| {
            together(|| programs::compare(effort, GIT_STATUS, OVER_DISK))
        }),
        Row::here("make", "make -j2 of 40 C files", DISK, NEAR_DISK, |effort| {
            programs::compare(effort, MAKE, OVER_DISK)
        }),
        Row::here("fio-4k", FIO_4K, BARE, NEAR_BARE, |effort| buffered(effort, "4k", Storage::BareMount)),
        Row::here("fio-4k-disk", FIO_4K, DISK, Target::Shown, |effort| buffered(effort, "4k", Storage::Disk)),
        Row::here("fio-1m", FIO_1M, BARE, NEAR_BARE, |effort| buffered(effort, "1m", Storage::BareMount)),
        Row::here("fio-1m-disk", FIO_1M, DISK, Target::Shown, |effort| buffered(effort, "1m", Storage::Disk)),
        Row::here("redis-50", REDIS_50, "appendfsync no on the disk", Target::AtLeast(0.85), |effort| {
            redis::always_over_no(effort, Storage::Mount(POOL_MIB), 1)
        }),
        Row::here("redis-50x10", REDIS_50X10, "appendfsync no on the disk", Target::AtLeast(0.85), |effort| {
            redis::always_over_no(effort, Storage::Mount(POOL_MIB), 10)
        }),
        Row::here("redis-1", REDIS_1_MEMORY, "in the mount", Target::AtLeast(0.6), |effort| {
            redis::always_median(effort, MEMORY_OVER)
        }),
        Row::here("redis-1-disk", REDIS_1_DISK, "in the mount", Target::Shown, |effort| {
            redis::always_median(effort, DISK_OVER)
        }),
        Row::here("sqlite-wal", SQLITE_WAL, BARE, NEAR_BARE, |effort| {
            together(|| sqlite::compare(effort, Journal::Wal, OVER_BARE))
        }),
        Row::here("sqlite-wal-disk", SQLITE_WAL, DISK, Target::Shown, |effort| {
            together(|| sqlite::compare(effort, Journal::Wal, OVER_DISK))
        }),
        Row::here("sqlite-delete", SQLITE_DELETE, BARE_AND_JOURNAL, NEAR_BARE, |effort| {
            together(|| sqlite::delete_over_both(effort, OVER_BARE))
        }),
        Row::here("sqlite-delete-bare", SQLITE_DELETE, BARE, Target::Shown, |effort| {
            together(|| sqlite::compare(effort, Journal::Delete, OVER_BARE))
        }),
        Row::here("sqlite-delete-disk", SQLITE_DELETE, DISK, Target::Shown, |effort| {
            together(|| sqlite::compare(effort, Journal::Delete, OVER_DISK))
        }),
        Row::here("sqlite-batch-atomic", SQLITE_GROUPS, BARE, NEAR_BARE, |effort| {
            together(|| sqlite::compare(effort, Journal::Groups, OVER_BARE))
        }),
        Row::here("sqlite-batch-atomic-delete", SQLITE_GROUPS, "DELETE in the mount", Target::AtMost(0.45), |effort| {
            together(|| sqlite::groups_over_delete(effort, Storage::Mount(POOL_MIB)))
        }),
        Row::here("sqlite-batch-atomic-disk", SQLITE_GROUPS, DISK, Target::Shown, |effort| {
            together(|| sqlite::compare(effort, Journal::Groups, OVER_DISK))
        }),
        Row::here("rocksdb", ROCKSDB, MEMORY, Target::AtLeast(0.2), |effort| {
            together(|| store::fill_sync(effort, OVER_MEMORY))
        }),
        Row::here("rocksdb-disk", ROCKSDB, DISK, Target::Shown, |effort| {
            together(|| store::fill_sync(effort, OVER_DISK))
        }),
        Row::here("postgres-2", POSTGRES_2, BARE, NEAR_BARE_RATE, |effort| postgres(effort, 2, Storage::BareMount)),
        Row::here("postgres-8", POSTGRES_8, BARE, NEAR_BARE_RATE, |effort| postgres(effort, 8, Storage::BareMount)),
        Row::here("postgres-2-memory", POSTGRES_2, MEMORY, Target::Shown, |effort| {
            postgres(effort, 2, Storage::Memory)
        }),
        Row::here("postgres-8-memory", POSTGRES_8, MEMORY, Target::Shown, |effort| {
            postgres(effort, 8, Storage::Memory)
        }),
        Row::here("postgres-8-disk", POSTGRES_8, DISK, Target::Shown, |effort| postgres(effort, 8, Storage::Disk)),
        Row::here("mariadb", MARIADB, BARE, NEAR_BARE_RATE, |effort| mariadb(effort, Storage::BareMount)),
        Row::here("mariadb-memory", MARIADB, MEMORY, Target::Shown, |effort| mariadb(effort, Storage::Memory)),
        Row::here("mariadb-disk", MARIADB, DISK, Target::Shown, |effort| mariadb(effort, Storage::Disk)),
        Row::here("cluster-sync", CLUSTER_MEMORY, IN_MOUNTS, Target::AtLeast(0.5), |effort| {
            cluster::measure(effort, Asked::MemoryOverMounts)
        }),
        Row::here("cluster-sync-disk", CLUSTER_DISK, IN_MOUNTS, Target::Shown, |effort| {
            cluster::measure(effort, Asked::DiskOverMounts)
        }),
        Row::here("cluster-requests", "requests to the mount of a brick", CLUSTER_CALL, Target::Shown, |effort| {
            cluster::measure(effort, Asked::Count(Counted::Requests))
        }),
        Row::here("cluster-names", "attributes set in the mount of a brick", CLUSTER_CALL, Target::Shown, |effort| {
            cluster::measure(effort, Asked::Count(Counted::Names))
        }),
        Row::here("cluster-syncs", "syncs in the mount of a brick", CLUSTER_CALL, Target::Shown, |effort| {
            cluster::measure(effort, Asked::Count(Counted::Syncs))
        }),
        Row::here("cluster-waits", CLUSTER_WAITS, CLUSTER_CALL, Target::AtMost(0.0), |effort| {
            cluster::measure(effort, Asked::Count(Counted::Waits))
        }),
    ],
};

const BARE: &str = "on the bare server";
const BARE_AND_DISK: &str = "on the bare server and then on the disk's own file system";
const BARE_AND_JOURNAL: &str = "on the bare server, and an empty file made and removed on the disk's own file system";
const DISK: &str = "on the disk's own file system";
const MEMORY: &str = "in /dev/shm";
const NEAR_BARE: Target = Target::AtMost(1.3);
/// The rate of programs that take no more than 1.3 times as long.
const NEAR_BARE_RATE: Target = Target::AtLeast(0.77);
const NEAR_DISK: Target = Target::AtMost(1.5);

const ALONE: &str = "alone";
const MODEST: &str = "99th percentile of 4 KiB + fdatasync with pauses, beside a program that writes and syncs MiBs";
const MODEST_BARE: &str = "the same on the bare server";
const MODEST_FULL: &str = "the same beside four such programs, with a pool of a quarter of what they write";
const MODEST_DISK: &str = "the same beside four such programs, on the disk's own file system";
const SYNC_TOGETHER: &str = "4 KiB pwrite + fdatasync, client and server on one core";
const SYNC_APART: &str = "4 KiB pwrite + fdatasync, client and server on two cores";
const SYNC: &str = "4 KiB pwrite + fdatasync, not pinned";
const SYNC_2: &str = "4 KiB pwrite + fdatasync, 2 clients with a file each, not pinned";
const O_SYNC_TOGETHER: &str = "4 KiB pwrite with O_SYNC, client and server on one core";
const O_SYNC_APART: &str = "4 KiB pwrite with O_SYNC, client and server on two cores";
const O_SYNC: &str = "4 KiB pwrite with O_SYNC, not pinned";
const O_SYNC_2: &str = "4 KiB pwrite with O_SYNC, 2 clients with a file each, not pinned";
const SYNC_DISK: &str = "4 KiB pwrite + fdatasync on the disk's own file system";
const BELOW: &str = "syncs of a 4 KiB write that waited for the disk";
const DEVICE_IO: &str = "requests to the disk until a 4 KiB write is synced, in the quietest of several bursts";
const APPEND: &str = "100 bytes appended + fsync";
const CACHED_1: &str = "the longest fdatasync of 1 dirty page of 512, 16 Ki or 256 Ki cached ones";
const CACHED_512: &str =
    "the longest fdatasync of 512 dirty pages, no two neighbours, of 1 Ki, 16 Ki or 256 Ki cached ones";
const CACHED_1_DISK: &str = "the same of 1 dirty page on the disk's own file system";
const CACHED_512_DISK: &str = "the same of 512 dirty pages on the disk's own file system";
const MEMORY_PER_PAGE: &str = "memory of the service beside 1 Mi pages in the pool, each in a block of its own";
const FIRST_BYTE: &str = "seconds to the first byte after a crash with 1 Mi pages that SOURCE lacks";
const SHORTEST: &str = "the shortest";
const READ: &str = "4 KiB pread of cached pages";
const STAT: &str = "stat of a known path";
const UNTAR: &str = "tar xf of a source tree, on one core";
const CP: &str = "cp -a of a source tree, on one core";
const FIO_4K: &str = "fio, buffered 4 KiB writes in order";
const FIO_1M: &str = "fio, buffered 1 MiB writes in order";
const REDIS_50: &str = "redis SET, 50 clients, appendfsync always";
const REDIS_50X10: &str = "redis SET, 50 clients, pipelines of 10, appendfsync always";
const REDIS_1_MEMORY: &str = "median time of redis SET, 1 client, appendfsync always, in /dev/shm";
const REDIS_1_DISK: &str = "median time of redis SET, 1 client, appendfsync always, on the disk's own file system";
const SQLITE_WAL: &str = "SQLite, transactions of one row, WAL and synchronous=FULL, on one core";
const SQLITE_DELETE: &str = "SQLite, transactions of one row, DELETE and synchronous=FULL, on one core";
const SQLITE_GROUPS: &str = "SQLite with atomic groups, transactions of one row, synchronous=FULL, on one core";
const ROCKSDB: &str = "RocksDB, db_bench fillsync, values of 128 bytes, on one core";
const POSTGRES_2: &str = "PostgreSQL, pgbench, 2 clients, on one core";
const POSTGRES_8: &str = "PostgreSQL, pgbench, 8 clients, on one core";
const MARIADB: &str = "MariaDB, 2 clients, commits of one row, on one core";
const CLUSTER_MEMORY: &str = "GlusterFS, 3 replicas, 4 KiB pwrite + fdatasync, bricks in /dev/shm";
const CLUSTER_DISK: &str = "GlusterFS, 3 replicas, 4 KiB pwrite + fdatasync, bricks on the disk's own file system";
const IN_MOUNTS: &str = "bricks in mounts";
const CLUSTER_WAITS: &str = "syncs and attributes in the mount of a brick that waited for the disk";
const CLUSTER_CALL: &str = "4 KiB pwrite + fdatasync of the client of GlusterFS";

/// Runs a row whose program and servers share one core. Where the scheduler puts them decides
/// otherwise: to wake an idle core takes longer than most requests.
pub(crate) fn together(measure: impl FnOnce() -> anyhow::Result<Outcome> + Send) -> anyhow::Result<Outcome> {
    on_core(calls::CLIENT_CORE, measure)
}

/// Milliseconds of a task in the first storage over those in the second, all on one core.
pub(crate) fn task(effort: Effort, task: Task, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    together(|| programs::compare(effort, task, at))
}

fn postgres(effort: Effort, clients: u32, under: Storage) -> anyhow::Result<Outcome> {
    together(|| databases::postgres(effort, clients, under))
}

fn mariadb(effort: Effort, under: Storage) -> anyhow::Result<Outcome> {
    together(|| databases::mariadb(effort, under))
}

fn over_bare(effort: Effort, act: Act, clients: usize, place: Place) -> anyhow::Result<Outcome> {
    calls::compare(effort, Load { act, clients, place }, OVER_BARE)
}

fn over_disk(effort: Effort, act: Act) -> anyhow::Result<Outcome> {
    calls::compare(effort, Load { act, clients: 1, place: Place::Together }, OVER_DISK)
}
