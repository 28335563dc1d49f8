//! `tidegate status`: what a run is doing, asked of its supervisor.

use crate::commands::files::mount_status;
use crate::errors::{Exit, Failure};
use crate::grammar;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_file_service::{self as file_service, ServiceFailure};
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_run_log::RunFailure;
use tidegate_run_log::{self as run, FileStatus, Status};

/// What `status` answers.
#[derive(Serialize)]
struct PoolStatus {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    #[serde(flatten)]
    status: Status,
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { pool, held, kept, by_kernel, failed, unheld, files, more } = &self.status;
        line(f, "pool", format_args!("{}, {}", self.file.display(), Human(pool.pool_bytes)))?;
        let (waiting, in_segments) = (pool.waiting_bytes, pool.strip_bytes);
        line(f, "waiting", format_args!("{waiting} bytes for their disks, {in_segments} more in log segments alone"))?;
        line(f, "syncs", format_args!("{kept} completed in persistent memory, {by_kernel} fell back to the kernel"))?;
        if let Some(us) = pool.disk_sync_us {
            line(f, "disk", format_args!("{} syncs behind them, {us} µs each", pool.disk_syncs))?;
        }
        let (lines, fences) = (pool.lines_flushed, pool.fences);
        line(f, "memory", format_args!("{lines} lines flushed, {fences} fences"))?;
        if *failed > 0 {
            line(f, "failed", format_args!("{failed} files were not written back"))?;
        }
        if !unheld.is_nothing() {
            line(f, "others", format_args!("not accelerated: {unheld}"))?;
        }
        for FileStatus { path, held_ms, kept, by_program, by_kernel, bytes, keep_us } in files {
            let others = keep_us.map(|us| format!(", the others {us} µs each")).unwrap_or_default();
            let rate = kept * 1000 / held_ms.max(&1);
            let (path, more) = (path.display(), by_kernel);
            line(
                f,
                "file",
                format_args!(
                    "{path}: {kept} syncs, {by_program} by the program itself{others}, {rate}/s, {bytes} bytes; {more} by the kernel"
                ),
            )?;
        }
        write!(f, "files      {} accelerated now, {held} in all", files.len() + more)
    }
}

/// Runs `tidegate status`.
pub(crate) fn run(args: &grammar::Status, json: bool) -> Result<Exit, Failure> {
    let named = args.pool.as_deref().map(file_service::pool_of);
    let file = run::pool_or_default(named.as_deref());
    if file_service::is_pool(&file) {
        return if args.watch { mount_status::watch(&file, json) } else { mount_status::show(&file, json) };
    }
    if args.watch {
        return Err(ServiceFailure::NotInUse { pool: file }.into());
    }
    let Some(status) = run::status_of(&file)? else { return Err(RunFailure::NoRun { pool: file }.into()) };
    output::give(&PoolStatus { file, status }, json)?;
    Ok(Exit::Done)
}
