//! Redis with its log of commands, and its own benchmark.

use super::testbed::{Storage, missing};
use crate::target::Outcome;
use tidegate_measure::Pairs;
use tidegate_measure::redis::{Load, PROGRAMS, Policy, Report, Server, VALUE_BYTES};
use tidegate_measure::workload::Effort;

/// Most commands in a sample of many clients, and of one.
const COMMANDS: u32 = 40_000;
const COMMANDS_OF_ONE: u32 = 4_000;

fn load(server: &Server, load: Load, effort: Effort) -> anyhow::Result<Report> {
    server.load(Load { commands: load.commands.min(effort.steps * load.pipeline), ..load })
}

fn many(pipeline: u32) -> Load {
    Load { clients: 50, pipeline, commands: COMMANDS * pipeline, value_bytes: VALUE_BYTES }
}

const ONE: Load = Load { clients: 1, pipeline: 1, commands: COMMANDS_OF_ONE, value_bytes: VALUE_BYTES };

fn rates(effort: Effort, over: &Server, under: &Server, load: Load) -> anyhow::Result<Outcome> {
    let rate = |server: &Server| Ok(self::load(server, load, effort)?.per_second);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || rate(over), || rate(under))?;
    Ok(Outcome::ratio(&pairs, "SET/s"))
}

fn no_redis() -> Option<Outcome> {
    missing(&PROGRAMS)
}

/// 50 clients, with a sync for each batch of commands, over the same without any on the disk.
pub(crate) fn always_over_no(effort: Effort, storage: Storage, pipeline: u32) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let kept = Server::start(storage, Policy::Always)?;
    let plain = Server::start(Storage::Disk, Policy::No)?;
    rates(effort, &kept, &plain, many(pipeline))
}

/// 50 clients without any sync: requests in the first storage over those in the second.
pub(super) fn never_synced(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let (over, under) = (Server::start(at[0], Policy::No)?, Server::start(at[1], Policy::No)?);
    rates(effort, &over, &under, many(1))
}

/// The median time of a command of one client, with a sync for each, in the first storage over that
/// in the second. The rate would say how long other processes had the cores.
pub(crate) fn always_median(effort: Effort, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let (over, under) = (Server::start(at[0], Policy::Always)?, Server::start(at[1], Policy::Always)?);
    let median = |server: &Server| Ok(load(server, ONE, effort)?.p50_ms * 1000.0);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || median(&over), || median(&under))?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

/// The 99th percentile of one client in a storage, over the same with the files in memory.
pub(super) fn p99_over_memory(effort: Effort, storage: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = no_redis() {
        return Ok(missing);
    }
    let kept = Server::start(storage, Policy::Always)?;
    let memory = Server::start(Storage::Memory, Policy::Always)?;
    let p99 = |server: &Server| Ok(load(server, ONE, effort)?.p99_ms * 1000.0);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || p99(&kept), || p99(&memory))?;
    Ok(Outcome::ratio(&pairs, "µs"))
}
