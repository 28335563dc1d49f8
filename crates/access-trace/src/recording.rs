//! The trace of a run: records that programs store while they run, and the text that they become.

use crate::recorded::{Recorded, RecordedFile};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tidegate_file_wire::{BOARD_LOST_AT, BOARDS_MAX};

/// What the name of the records has behind the trace's, while programs run.
const RECORDS_EXTENSION: &str = "records";

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
    is_heard: Cell<bool>,
}

impl Recording {
    /// Begins one at `trace`, where there is no file yet, and which is in none of `roots`: it would
    /// be one of the files whose accesses are recorded.
    pub fn begin(trace: &Path, roots: &[PathBuf]) -> Result<Recording, RecordingFailure> {
        let trace = std::path::absolute(trace).map_err(failed(trace))?;
        let folder = trace.parent().unwrap_or(&trace).canonicalize().map_err(failed(&trace))?;
        if let Some(root) = roots.iter().find(|root| folder.starts_with(root)) {
            let why = format!("it would be in the root {}, whose files' accesses are recorded", root.display());
            return Err(failed(&trace)(io::Error::other(why)));
        }
        if roots.len() > BOARDS_MAX {
            let why = format!("there are {} roots, and at most {BOARDS_MAX} can be recorded", roots.len());
            return Err(failed(&trace)(io::Error::other(why)));
        }
        let records = trace.with_added_extension(RECORDS_EXTENSION);
        if trace.symlink_metadata().is_ok() {
            return Err(failed(&trace)(io::Error::from_raw_os_error(EEXIST)));
        }
        made(&records).map_err(failed(&records))?;
        Ok(Recording { trace, records, is_heard: Cell::new(false) })
    }

    /// Where programs store their records.
    pub fn records(&self) -> &Path {
        &self.records
    }

    /// Fails if programs cannot record: the mounts of their files have not said which those are.
    pub fn is_heard_by(&self, boards: &[PathBuf]) -> Result<(), RecordingFailure> {
        let why = || io::Error::other("the mount does not say which files are its own");
        self.is_heard.set(!boards.is_empty());
        if self.is_heard.get() { Ok(()) } else { Err(failed(&self.trace)(why())) }
    }

    /// Writes the trace, with the names that its files have below `roots`. If no program was to be
    /// [heard](Recording::is_heard_by), there is none.
    ///
    /// `lost` accesses could not be recorded, which the trace tells. If this fails, the records are
    /// left where they were.
    pub fn end(self, roots: &[PathBuf], lost: u64) -> Result<(), RecordingFailure> {
        if !self.is_heard.get() {
            return Ok(());
        }
        let bytes = fs::read(&self.records).map_err(failed(&self.records))?;
        let recorded =
            Recorded::parse(&bytes).map_err(|error| failed(&self.records)(io::Error::other(format!("{error:#}"))))?;
        let written = made(&self.trace).and_then(|mut file| {
            let text = recorded.trace.text();
            let (header, requests) = text.split_at(text.find('\n').map_or(text.len(), |end| end + 1));
            let lost = if lost == 0 { String::new() } else { format!("# {lost} accesses could not be recorded\n") };
            write!(file, "{header}{lost}{}{requests}", comments(&recorded.files, roots))
        });
        written.and_then(|()| fs::remove_file(&self.records)).map_err(failed(&self.trace))
    }
}

/// How many accesses could not be recorded since the mounts of these boards began: there was no
/// room for a chunk, or the program has a limit of file sizes.
pub fn lost_records(boards: &[PathBuf]) -> u64 {
    let lost = |board: &PathBuf| {
        let mut word = [0; 8];
        File::open(board)?.read_exact_at(&mut word, BOARD_LOST_AT)?;
        io::Result::Ok(u64::from_le_bytes(word))
    };
    boards.iter().filter_map(|board| lost(board).ok()).sum()
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Nobody has recorded anything: it is in nobody's way.
        if self.records.metadata().is_ok_and(|about| about.len() == 0) {
            let _ = fs::remove_file(&self.records);
        }
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
