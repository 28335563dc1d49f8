//! Logs, queues and files that are written in place.

use crate::applications::promise::{Clause, Protocol};
use crate::applications::protocols::{F, P, R};
use crate::applications::step::At::{Before, Byte, Record, Slot};
use crate::applications::step::Step;
use Step::{
    Append, Create, Empty, MakeDirectory, MapAndSync, Punch, Remove, Rename, Reserve, Sync, SyncDirectory, Truncate,
    Write, WriteThrough, Zero,
};

pub(super) const PROTOCOLS: [Protocol; 19] = [
    Protocol {
        name: "a log that is appended to, each record synced",
        processes: 1,
        before: &[Create("log")],
        act: &[Truncate("log", Record(R)), Append("log", R), Sync("log")],
        promise: &[Clause::Log("log", R)],
    },
    Protocol {
        name: "a log with records of three writes and one sync (group commit)",
        processes: 1,
        before: &[Create("log")],
        act: &[Truncate("log", Record(3 * R)), Append("log", R), Append("log", R), Append("log", R), Sync("log")],
        promise: &[Clause::Log("log", 3 * R)],
    },
    Protocol {
        name: "a log written with O_DSYNC",
        processes: 1,
        before: &[Create("log")],
        act: &[WriteThrough("log", Record(R), R)],
        promise: &[Clause::Log("log", R)],
    },
    Protocol {
        name: "a log that its first act makes",
        processes: 1,
        before: &[],
        act: &[Create("log"), Write("log", Record(R), R), Sync("log")],
        promise: &[Clause::Log("log", R)],
    },
    Protocol {
        name: "a log with room reserved for it (etcd)",
        processes: 1,
        before: &[Create("log"), Reserve("log", 16 * R)],
        act: &[Write("log", Record(R), R), Sync("log")],
        promise: &[Clause::Log("log", R)],
    },
    Protocol {
        name: "a log with records larger than a page",
        processes: 1,
        before: &[Create("log")],
        act: &[Write("log", Record(P + R), P + R), Sync("log")],
        promise: &[Clause::Log("log", P + R)],
    },
    Protocol {
        name: "two processes that append to one log",
        processes: 2,
        before: &[Create("log")],
        act: &[Append("log", R), Sync("log")],
        promise: &[Clause::SharedLog("log", R)],
    },
    Protocol {
        name: "two processes with logs of their own",
        processes: 2,
        before: &[Create("log{p}")],
        act: &[Write("log{p}", Record(R), R), Sync("log{p}")],
        promise: &[Clause::Log("log{p}", R)],
    },
    Protocol {
        name: "segments of a log, the last one removed when the next is there",
        processes: 1,
        before: &[],
        act: &[
            Create("segment-{}"),
            Write("segment-{}", Byte(0), F),
            Sync("segment-{}"),
            SyncDirectory(""),
            Remove("segment-{-}"),
            SyncDirectory(""),
        ],
        promise: &[Clause::KeptLastOrNext("segment-{}", F), Clause::GoneWithNext("segment-{}")],
    },
    Protocol {
        name: "segments with room reserved for them",
        processes: 1,
        before: &[],
        act: &[
            Create("segment-{}"),
            Reserve("segment-{}", F),
            Write("segment-{}", Byte(0), F),
            Sync("segment-{}"),
            SyncDirectory(""),
        ],
        promise: &[Clause::Kept("segment-{}", F)],
    },
    Protocol {
        name: "a log, an index that is mapped, and a checkpoint renamed over (Kafka)",
        processes: 1,
        before: &[
            Create("log"),
            Create("index"),
            Truncate("index", Byte(P)),
            Create("checkpoint"),
            Write("checkpoint", Byte(0), R),
        ],
        act: &[
            Write("log", Record(R), R),
            Sync("log"),
            MapAndSync("index", Slot(4, R), R),
            Empty("checkpoint.tmp"),
            Write("checkpoint.tmp", Byte(0), R),
            Sync("checkpoint.tmp"),
            Rename("checkpoint.tmp", "checkpoint"),
        ],
        promise: &[Clause::Log("log", R), Clause::Slots("index", 4, R), Clause::Version("checkpoint", R)],
    },
    Protocol {
        name: "a queue with a hole where its records were taken",
        processes: 1,
        before: &[Create("queue")],
        act: &[Write("queue", Record(F), F), Punch("queue", Before(2, F), F), Sync("queue")],
        promise: &[Clause::Trimmed("queue", F, 2)],
    },
    Protocol {
        name: "a queue with zeroes where its records were taken",
        processes: 1,
        before: &[Create("queue")],
        act: &[Write("queue", Record(F), F), Sync("queue"), Zero("queue", Before(2, F), F), Sync("queue")],
        promise: &[Clause::Trimmed("queue", F, 2)],
    },
    Protocol {
        name: "a file written in place and synced",
        processes: 1,
        before: &[Create("f"), Write("f", Byte(0), F)],
        act: &[Write("f", Byte(0), F), Sync("f")],
        promise: &[Clause::Newest("f", F)],
    },
    Protocol {
        name: "two files emptied and written in turn",
        processes: 1,
        before: &[],
        act: &[Empty("f{2}"), Write("f{2}", Byte(0), F), Sync("f{2}")],
        promise: &[Clause::KeptLast("f{2}", F)],
    },
    Protocol {
        name: "two files removed and made anew in turn",
        processes: 1,
        before: &[],
        act: &[Remove("f{2}"), Create("f{2}"), Write("f{2}", Byte(0), F), Sync("f{2}"), SyncDirectory("")],
        promise: &[Clause::KeptLast("f{2}", F)],
    },
    Protocol {
        name: "pages of a mapping, each synced by msync",
        processes: 1,
        before: &[Create("map"), Truncate("map", Byte(2 * P))],
        act: &[MapAndSync("map", Slot(2, P), P)],
        promise: &[Clause::Slots("map", 2, P)],
    },
    Protocol {
        name: "words of one mapped page, each synced by msync (journald)",
        processes: 1,
        before: &[Create("map"), Truncate("map", Byte(P))],
        act: &[MapAndSync("map", Slot(4, R), R)],
        promise: &[Clause::Slots("map", 4, R)],
    },
    Protocol {
        name: "pieces of a file with room reserved, in any order (downloads)",
        processes: 1,
        before: &[MakeDirectory("d"), Create("d/f"), Reserve("d/f", 4 * F)],
        act: &[Write("d/f", Slot(4, F), F), Sync("d/f")],
        promise: &[Clause::Slots("d/f", 4, F)],
    },
];
