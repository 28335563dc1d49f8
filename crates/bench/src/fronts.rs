//! The topic `fronts`: one volume by the protocols that attach it, driven alike.
//!
//! The server is a process of its own, the release build of `tidegate`, and offers one volume by
//! vhost-user-blk and NBD at once; beside it stands QEMU's server of a file in the same memory. The
//! driver of vhost-user-blk plays the guest, with its rings in shared memory; no machine is
//! emulated. Driver and server run on one core, or on one each.

mod drivers;
mod signals;

use crate::target::{Method, Row, Target, Topic};
use drivers::{Client, Depth, Waiting};
use tidegate_measure::workload::Effort;

/// The table.
pub const TOPIC: Topic = Topic {
    name: "fronts",
    about: "vhost-user-blk beside NBD and QEMU's server: 4 KiB random writes to one volume",
    rows: &[
        VHOST_WRITE_DEPTH_1,
        VHOST_WRITE_DEPTH_1_NBD,
        VHOST_WRITE_DEPTH_1_QEMU,
        VHOST_WRITE_DEPTH_1_POLLED,
        VHOST_WRITE_DEPTH_32,
        VHOST_WRITE_DEPTH_32_QEMU,
        VHOST_DOORBELLS,
        VHOST_IDLE,
    ],
};

/// One write at a time, beside the signals and the write that it cannot do without.
const VHOST_WRITE_DEPTH_1: Row = Row {
    name: "vhost-write-1",
    over: "vhost-user-blk write, depth 1, one core",
    under: "an eventfd each way between threads, and the write",
    target: Target::AtMost(1.2),
    method: Method::Here(signals::compare),
};

/// One write at a time by either front of one server.
const VHOST_WRITE_DEPTH_1_NBD: Row = Row {
    name: "vhost-write-1-nbd",
    over: "vhost-user-blk writes, depth 1, one core",
    under: "NBD writes alike",
    target: Target::Shown,
    method: Method::Here(|effort| {
        drivers::compare(effort, Client::Vhost, Client::Nbd, (Depth::One, Waiting::AsleepTogether))
    }),
};

/// One write at a time, beside QEMU's server.
const VHOST_WRITE_DEPTH_1_QEMU: Row = Row {
    name: "vhost-write-1-qemu",
    over: "vhost-user-blk writes, depth 1, one core, tidegate",
    under: "qemu-storage-daemon",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| {
        drivers::compare(effort, Client::Vhost, Client::VhostOfQemu, (Depth::One, Waiting::AsleepTogether))
    }),
};

/// One write at a time, with a client that looks for its answer and never sleeps.
const VHOST_WRITE_DEPTH_1_POLLED: Row = Row {
    name: "vhost-write-1-polled",
    over: "vhost-user-blk writes, depth 1, both ends busy on a core of their own",
    under: "NBD writes alike",
    target: Target::AtLeast(2.0),
    method: Method::Here(|effort| {
        drivers::compare(effort, Client::Vhost, Client::Nbd, (Depth::One, Waiting::BusyApart))
    }),
};

/// Many writes at a time by either front of one server.
const VHOST_WRITE_DEPTH_32: Row = Row {
    name: "vhost-write-32",
    over: "vhost-user-blk writes, depth 32, a core for each end",
    under: "NBD writes alike",
    target: Target::AtLeast(4.0),
    method: Method::Here(|effort| {
        drivers::compare(effort, Client::Vhost, Client::Nbd, (Depth::Many, Waiting::AsleepApart))
    }),
};

/// Many writes at a time, beside QEMU's server.
const VHOST_WRITE_DEPTH_32_QEMU: Row = Row {
    name: "vhost-write-32-qemu",
    over: "vhost-user-blk writes, depth 32, a core for each end, tidegate",
    under: "qemu-storage-daemon",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| {
        drivers::compare(effort, Client::Vhost, Client::VhostOfQemu, (Depth::Many, Waiting::AsleepApart))
    }),
};

/// How often a driver with many writes under way has to ring.
const VHOST_DOORBELLS: Row = Row {
    name: "vhost-doorbells",
    over: "doorbells of a driver at depth 32",
    under: "vhost-user-blk write",
    target: Target::Shown,
    method: Method::Here(drivers::doorbells),
};

/// What a server costs that has nothing to do.
const VHOST_IDLE: Row = Row {
    name: "vhost-idle",
    over: "clock ticks of processor time, with a machine attached that is silent",
    under: "second",
    target: Target::AtMost(0.0),
    method: Method::Here(drivers::idle),
};

/// What a row needs beside `tidegate`.
const REMEDY: &str = "apt-get install qemu-system-common";

/// Writes of one sample.
fn writes(effort: Effort) -> u64 {
    u64::from(effort.steps).clamp(500, 20_000)
}
