//! `flush` and `recover` of the pool of a mount.

use crate::errors::{Exit, Failure};
use crate::output::{self, Teller};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_file_service::{self as file_service, PoolRecovered, RecoveredFile, Unplaced};
use tidegate_host::columns::line;
use tidegate_host::owned;

/// What `flush` answers about a mount.
#[derive(Serialize)]
struct FlushAnswer {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    flushed: bool,
}

impl fmt::Display for FlushAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flushed    {}: the files have everything that was written before", self.pool.display())
    }
}

/// Brings everything that was written to a mount to its files, durably. The mount does it beside
/// its clients; without one, recovery does.
pub(crate) fn flush(pool: &Path, json: bool) -> Result<Exit, Failure> {
    if file_service::flush(pool, output::teller(json))? {
        output::give(&FlushAnswer { pool: pool.to_owned(), flushed: true }, json)?;
        return Ok(Exit::Done);
    }
    let (answer, exit) = recover(pool, Unplaced::Retain, output::teller(json))?;
    output::end_with(&answer, json, exit)
}

/// What `recover` answers about the pool of a mount.
#[derive(Serialize)]
pub(crate) struct RecoverAnswer {
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    written: Vec<PathBuf>,
    /// Files that were removed through the mount: what was synced to them is given up.
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    removed: Vec<PathBuf>,
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    retained: Vec<PathBuf>,
    /// The folder beside the pool with the data of files that were missing or changed by others.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    saved: Option<PathBuf>,
}

impl fmt::Display for RecoverAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.written {
            line(f, "recovered", file.display())?;
        }
        for file in &self.removed {
            line(f, "removed", format_args!("{}: a program removed it, and its data is given up", file.display()))?;
        }
        for file in &self.retained {
            // One that a program made without a name, or not yet with one, has none.
            let is_nameless = file.as_os_str().is_empty();
            let shown = if is_nameless { "a file without a name".into() } else { file.to_string_lossy() };
            line(f, "retained", format_args!("{shown}: missing, changed by others, or refused"))?;
        }
        if let Some(folder) = &self.saved {
            line(f, "saved", format_args!("{}: data of files that are missing or were changed", folder.display()))?;
        }
        let rest = match self.retained.is_empty() {
            true => "nothing of it is needed any more",
            false => {
                "it retains data of these files: put them back and recover again, or save the data beside the pool: --force"
            }
        };
        write!(f, "pool       {}: {rest}", self.pool.display())
    }
}

/// Recovers the pool of a mount.
pub(crate) fn recover(pool: &Path, unplaced: Unplaced, tell: Teller) -> Result<(RecoverAnswer, Exit), Failure> {
    owned::act_as_owner_of(pool).map_err(Failure::system("taking on the rights of the pool's owner"))?;
    let PoolRecovered { files, salvage, .. } = file_service::recover_pool(pool, unplaced, tell)?;
    let may_be_saved = unplaced == Unplaced::Salvage && files.iter().any(RecoveredFile::is_salvaged);
    let paths = |is_so: fn(&RecoveredFile) -> bool| {
        files.iter().filter(|file| is_so(file)).map(|RecoveredFile { file, .. }| file.clone()).collect()
    };
    let answer = RecoverAnswer {
        pool: pool.to_owned(),
        written: paths(|file| !file.is_retained() && !file.is_removed()),
        removed: paths(RecoveredFile::is_removed),
        retained: paths(RecoveredFile::is_retained),
        saved: Some(salvage).filter(|folder| may_be_saved && folder.exists()),
    };
    let exit = if answer.retained.is_empty() { Exit::Done } else { Exit::Refused };
    Ok((answer, exit))
}
