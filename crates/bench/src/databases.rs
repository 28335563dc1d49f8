//! The topic `databases`: twenty users of TPC-C over a database whose files are in a mount, beside
//! memory and the disk's own file system.
//!
//! Figures count new orders, which are 45 of a hundred transactions. After each sample the tables
//! are checked by the specification's conditions of consistency.

mod tpc_c;
mod users;

use crate::files::testbed::Storage;
use crate::target::{Row, Target, Topic};
use users::Database::{MariaDb, Postgres, Sqlite, SqliteGroups};
use users::{blocks, rates};

/// The mount, with room for all that is written between two turns; and with the direct path.
const MOUNT: Storage = Storage::Mount(512);
const RUN: Storage = Storage::Direct(512);

/// The table.
pub const TOPIC: Topic = Topic {
    name: "databases",
    about: "TPC-C with 20 users, the files of the database in `tidegate mount`",
    rows: &[
        Row::here("tpcc-sqlite", SQLITE, MEMORY, NEAR, |effort| rates(effort, Sqlite, Storage::Memory)),
        Row::here("tpcc-sqlite-disk", SQLITE, DISK, Target::Shown, |effort| rates(effort, Sqlite, Storage::Disk)),
        Row::here("tpcc-sqlite-blocks", SQLITE_BLOCKS, DISK, HALF, |effort| blocks(effort, Sqlite)),
        Row::here("tpcc-sqlite-run", SQLITE_RUN, MEMORY, NEAR, |effort| {
            users::rates_of(effort, Sqlite, [RUN, Storage::Memory])
        }),
        Row::here("tpcc-vfs", VFS, JOURNAL, NEAR, |effort| rates(effort, SqliteGroups, Storage::Memory)),
        Row::here("tpcc-vfs-disk", VFS, JOURNAL_DISK, Target::Shown, |effort| {
            rates(effort, SqliteGroups, Storage::Disk)
        }),
        Row::here("tpcc-vfs-blocks", VFS_BLOCKS, JOURNAL_DISK, HALF, |effort| blocks(effort, SqliteGroups)),
        Row::here("tpcc-postgres", POSTGRES, MEMORY, NEAR, |effort| rates(effort, Postgres, Storage::Memory)),
        Row::here("tpcc-postgres-disk", POSTGRES, DISK, Target::Shown, |effort| rates(effort, Postgres, Storage::Disk)),
        Row::here("tpcc-postgres-blocks", POSTGRES_BLOCKS, DISK, HALF, |effort| blocks(effort, Postgres)),
        Row::here("tpcc-mariadb", MARIADB, MEMORY, NEAR, |effort| rates(effort, MariaDb, Storage::Memory)),
        Row::here("tpcc-mariadb-disk", MARIADB, DISK, Target::Shown, |effort| rates(effort, MariaDb, Storage::Disk)),
        Row::here("tpcc-mariadb-blocks", MARIADB_BLOCKS, DISK, HALF, |effort| blocks(effort, MariaDb)),
    ],
};

const MEMORY: &str = "in /dev/shm";
const DISK: &str = "on the disk's own file system";
const NEAR: Target = Target::AtLeast(0.85);
const HALF: Target = Target::AtMost(0.5);

const SQLITE: &str = "TPC-C, 20 users, SQLite with WAL and synchronous=FULL";
const SQLITE_RUN: &str = "TPC-C, 20 users, SQLite with WAL and synchronous=FULL, under `tidegate run`";
const VFS: &str = "TPC-C, 20 users, SQLite with the VFS `tidegate` and synchronous=FULL";
const JOURNAL: &str = "with a rollback journal and synchronous=FULL, in /dev/shm";
const JOURNAL_DISK: &str = "with a rollback journal and synchronous=FULL, on the disk's own file system";
const POSTGRES: &str = "TPC-C, 20 users, PostgreSQL";
const MARIADB: &str = "TPC-C, 20 users, MariaDB";
const SQLITE_BLOCKS: &str = "blocks that the disk writes for a new order, SQLite with WAL and synchronous=FULL";
const VFS_BLOCKS: &str = "blocks that the disk writes for a new order, SQLite with the VFS `tidegate`";
const POSTGRES_BLOCKS: &str = "blocks that the disk writes for a new order, PostgreSQL";
const MARIADB_BLOCKS: &str = "blocks that the disk writes for a new order, MariaDB";
