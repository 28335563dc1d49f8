//! The trace of a run: records that programs append while they run, and the text that they become.

use crate::recorded::{Recorded, RecordedFile};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the name of the records has behind the trace's, while programs run.
const RECORDS_SUFFIX: &str = ".records";

/// What the system says of a name that is taken.
const EEXIST: i32 = rustix::io::Errno::EXIST.raw_os_error();

/// Why a trace is not recorded.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct RecordingFailure {
    /// The file that is in the way, or cannot be read or written.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub error: io::Error,
}

/// A trace that is being recorded.
pub struct Recording {
    trace: PathBuf,
    records: PathBuf,
}

impl Recording {
    /// Begins one at `trace`, where there is no file yet.
    pub fn begin(trace: &Path) -> Result<Recording, RecordingFailure> {
        let trace = std::path::absolute(trace).map_err(failed(trace))?;
        let mut records = trace.clone().into_os_string();
        records.push(RECORDS_SUFFIX);
        let records = PathBuf::from(records);
        if trace.symlink_metadata().is_ok() {
            return Err(failed(&trace)(io::Error::from_raw_os_error(EEXIST)));
        }
        made(&records).map_err(failed(&records))?;
        Ok(Recording { trace, records })
    }

    /// Where programs append their records.
    pub fn records(&self) -> &Path {
        &self.records
    }

    /// Writes the trace, with the names that its files have below `roots`.
    pub fn end(self, roots: &[PathBuf]) -> Result<(), RecordingFailure> {
        let bytes = fs::read(&self.records).map_err(failed(&self.records))?;
        let recorded =
            Recorded::parse(&bytes).map_err(|error| failed(&self.records)(io::Error::other(format!("{error:#}"))))?;
        let written = made(&self.trace).and_then(|mut file| {
            let text = recorded.trace.text();
            let (header, requests) = text.split_at(text.find('\n').map_or(text.len(), |end| end + 1));
            write!(file, "{header}{}{requests}", comments(&recorded.files, roots))
        });
        written.and_then(|()| fs::remove_file(&self.records)).map_err(failed(&self.trace))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RecordingFailure + use<> {
    let path = path.to_owned();
    |error| RecordingFailure { path, error }
}

fn made(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// A line for each file: its number and its name.
fn comments(files: &[RecordedFile], roots: &[PathBuf]) -> String {
    let mut names: HashMap<u64, Option<PathBuf>> = files.iter().map(|file| (file.inode, None)).collect();
    roots.iter().for_each(|root| find_names(root, &mut names));
    let line = |file: &RecordedFile| match names.get(&file.inode).and_then(Option::as_ref) {
        Some(name) => format!("# file {}: {}\n", file.number, name.display().to_string().replace('\n', "?")),
        None => format!("# file {}: removed since (inode {})\n", file.number, file.inode),
    };
    files.iter().map(line).collect()
}

/// Finds a name below a directory for each inode. What cannot be read has none.
fn find_names(directory: &Path, names: &mut HashMap<u64, Option<PathBuf>>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            find_names(&entry.path(), names);
        } else if let Some(name) = names.get_mut(&about.ino()) {
            *name = Some(entry.path());
        }
    }
}
