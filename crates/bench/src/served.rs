//! The topic `served`: volumes over NBD, by the clients people use, beside the servers people use.
//!
//! Every server is a process of its own, started for its row: the release build of `tidegate` with
//! what it does unless asked otherwise, and a rival. Clients run on the first core, servers beside
//! them or on the second, and both servers of a row on the same. Volumes and files lie in
//! `/dev/shm`, written once before anything is measured.

mod copies;
pub(crate) mod load;
mod many_connections;
pub(crate) mod server;
mod silence;

use crate::target::{Method, Row, Target, Topic};
use load::{Direction, Load};
use server::Rival;

/// The table.
pub const TOPIC: Topic = Topic {
    name: "served",
    about: "volumes over NBD and a unix socket, beside other servers",
    rows: &[
        NBD_WRITE_DEPTH_1,
        NBD_READ_DEPTH_1,
        NBD_WRITE_DEPTH_1_TWICE,
        NBD_READ_DEPTH_1_TWICE,
        NBD_WRITE_DEPTH_32,
        NBD_READ_DEPTH_32,
        NBD_WRITE_DEPTH_32_TWICE,
        NBD_READ_DEPTH_32_TWICE,
        NBD_WRITE_DEPTH_1_APART,
        NBD_WRITE_DEPTH_1_QEMU,
        NBD_READ_DEPTH_1_QEMU,
        NBD_WRITE_DEPTH_32_QEMU,
        NBD_READ_DEPTH_32_QEMU,
        NBD_COPY_IN,
        NBD_COPY_OUT,
        NBD_AFTER_SILENCE,
        NBD_CROWD,
        NBD_CROWD_MEMORY,
    ],
};

/// Writes one at a time, beside a server that drops them.
pub const NBD_WRITE_DEPTH_1: Row = Row {
    name: "nbd-write-1",
    over: "fio 4 KiB random writes, depth 1, tidegate",
    under: "nbdkit null",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Write, 1), Rival::Null)),
};

/// Reads one at a time, beside a server that makes them up.
pub const NBD_READ_DEPTH_1: Row = Row {
    name: "nbd-read-1",
    over: "fio 4 KiB random reads, depth 1, tidegate",
    under: "nbdkit null",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Read, 1), Rival::Null)),
};

/// Writes one at a time on each of two connections, beside a server that drops them.
pub const NBD_WRITE_DEPTH_1_TWICE: Row = Row {
    name: "nbd-write-1x2",
    over: "fio 4 KiB random writes, depth 1 on 2 connections, tidegate",
    under: "nbdkit null",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Write, 2), Rival::Null)),
};

/// Reads one at a time on each of two connections, beside a server that makes them up.
pub const NBD_READ_DEPTH_1_TWICE: Row = Row {
    name: "nbd-read-1x2",
    over: "fio 4 KiB random reads, depth 1 on 2 connections, tidegate",
    under: "nbdkit null",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Read, 2), Rival::Null)),
};

/// Many writes at a time, beside a server that keeps them in its heap.
pub const NBD_WRITE_DEPTH_32: Row = Row {
    name: "nbd-write-32",
    over: "fio 4 KiB random writes, depth 32, tidegate",
    under: "nbdkit memory",
    target: Target::AtLeast(1.2),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Write, 1), Rival::Memory)),
};

/// Many reads at a time, beside a server that keeps blocks in its heap.
pub const NBD_READ_DEPTH_32: Row = Row {
    name: "nbd-read-32",
    over: "fio 4 KiB random reads, depth 32, tidegate",
    under: "nbdkit memory",
    target: Target::AtLeast(1.2),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Read, 1), Rival::Memory)),
};

/// Many writes at a time on each of two connections, beside a server that keeps them in its heap.
pub const NBD_WRITE_DEPTH_32_TWICE: Row = Row {
    name: "nbd-write-32x2",
    over: "fio 4 KiB random writes, depth 32 on 2 connections, tidegate",
    under: "nbdkit memory",
    target: Target::AtLeast(1.2),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Write, 2), Rival::Memory)),
};

/// Many reads at a time on each of two connections, beside a server that keeps blocks in its heap.
pub const NBD_READ_DEPTH_32_TWICE: Row = Row {
    name: "nbd-read-32x2",
    over: "fio 4 KiB random reads, depth 32 on 2 connections, tidegate",
    under: "nbdkit memory",
    target: Target::AtLeast(1.2),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Read, 2), Rival::Memory)),
};

/// Writes one at a time across cores, beside a server that drops them.
pub const NBD_WRITE_DEPTH_1_APART: Row = Row {
    name: "nbd-write-1-apart",
    over: "fio 4 KiB random writes, depth 1, client and server on two cores, tidegate",
    under: "nbdkit null",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::across_cores(Direction::Write), Rival::Null)),
};

/// Writes one at a time, beside a server of a file in memory.
pub const NBD_WRITE_DEPTH_1_QEMU: Row = Row {
    name: "nbd-write-1-qemu",
    over: "fio 4 KiB random writes, depth 1, tidegate",
    under: "qemu-nbd",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Write, 1), Rival::Qemu)),
};

/// Reads one at a time, beside a server of a file in memory.
pub const NBD_READ_DEPTH_1_QEMU: Row = Row {
    name: "nbd-read-1-qemu",
    over: "fio 4 KiB random reads, depth 1, tidegate",
    under: "qemu-nbd",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::in_turn(Direction::Read, 1), Rival::Qemu)),
};

/// Many writes at a time, beside a server of a file in memory.
pub const NBD_WRITE_DEPTH_32_QEMU: Row = Row {
    name: "nbd-write-32-qemu",
    over: "fio 4 KiB random writes, depth 32, tidegate",
    under: "qemu-nbd",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Write, 1), Rival::Qemu)),
};

/// Many reads at a time, beside a server of a file in memory.
pub const NBD_READ_DEPTH_32_QEMU: Row = Row {
    name: "nbd-read-32-qemu",
    over: "fio 4 KiB random reads, depth 32, tidegate",
    under: "qemu-nbd",
    target: Target::AtLeast(1.0),
    method: Method::Here(|effort| load::compare(effort, Load::at_once(Direction::Read, 1), Rival::Qemu)),
};

/// A whole volume filled.
pub const NBD_COPY_IN: Row = Row {
    name: "nbdcopy-in",
    over: "nbdcopy of 1 GiB to tidegate",
    under: "nbdkit file",
    target: Target::AtLeast(1.0),
    method: Method::Here(copies::copy_in),
};

/// A whole volume read.
pub const NBD_COPY_OUT: Row = Row {
    name: "nbdcopy-out",
    over: "nbdcopy of 1 GiB from tidegate",
    under: "nbdkit file",
    target: Target::AtLeast(1.0),
    method: Method::Here(copies::copy_out),
};

/// Whether a server that sleeps deeply wakes up soon.
pub const NBD_AFTER_SILENCE: Row = Row {
    name: "nbd-after-silence",
    over: "round trip",
    under: "first 4 KiB write after 10 s of silence",
    target: Target::AtMost(150.0),
    method: Method::Here(silence::first_write),
};

/// Whether clients that are many, slow or hostile harm one that is none of it.
pub const NBD_CROWD: Row = Row {
    name: "nbd-crowd",
    over: "99th percentile of 4 KiB writes beside 10,000 connections, slow and hostile ones among them",
    under: "alone",
    target: Target::AtMost(2.0),
    method: Method::Here(many_connections::slowdown),
};

/// What connections that do little cost, whatever they do.
pub const NBD_CROWD_MEMORY: Row = Row {
    name: "nbd-crowd-memory",
    over: "resident bytes of the server",
    under: "connection, of 10,000 with slow and hostile ones among them",
    target: Target::AtMost(32768.0),
    method: Method::Here(many_connections::memory),
};
