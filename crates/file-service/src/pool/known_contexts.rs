//! What the placement knows of program contexts, in a file beside the pool.
//!
//! A mount begins with what the last one learnt. The file may be lost or damaged without harm: then
//! contexts are learnt anew.

use crate::pool::record::replaced;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_policy::placement::LearntPattern;

/// Version of the file.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes: those that are written have less than a tenth.
const BYTES_MAX: u64 = 1 << 20;

/// The file.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    contexts: Vec<SavedPattern>,
}

/// One context. Numbers of 64 bits are text, which every reader of JSON keeps whole.
#[derive(Serialize, Deserialize)]
struct SavedPattern {
    context: String,
    pages: [u32; 3],
    sampled: [u32; 2],
    touches: [u32; 2],
    again_share: f32,
    interval: f32,
    loop_pages: u32,
}

impl SavedPattern {
    fn of(known: &LearntPattern) -> SavedPattern {
        let LearntPattern { context, pages, sampled, touches, again_share, interval, loop_pages } = *known;
        SavedPattern { context: format!("{context:x}"), pages, sampled, touches, again_share, interval, loop_pages }
    }

    fn known(self) -> Option<LearntPattern> {
        let SavedPattern { context, pages, sampled, touches, again_share, interval, loop_pages } = self;
        let context = u64::from_str_radix(&context, 16).ok()?;
        Some(LearntPattern { context, pages, sampled, touches, again_share, interval, loop_pages })
    }
}

/// What the last mount of a pool knew. What cannot be read is not known.
pub(crate) fn read(pool: &Path) -> Vec<LearntPattern> {
    read_by(&path_of(pool)).unwrap_or_else(|error| {
        tracing::debug!("program contexts are learnt anew: {error}");
        Vec::new()
    })
}

fn read_by(path: &Path) -> io::Result<Vec<LearntPattern>> {
    let file = tidegate_host::owned::open(path, OFlags::RDONLY)?;
    let saved: Saved = serde_json::from_reader(io::Read::take(file, BYTES_MAX))?;
    if saved.version != VERSION {
        return Err(io::Error::other(format!("the file has version {}", saved.version)));
    }
    Ok(saved.contexts.into_iter().filter_map(SavedPattern::known).collect())
}

/// Writes what is known for the next mount of a pool, in place of what was written before.
pub(crate) fn write(pool: &Path, known: &[LearntPattern]) {
    if known.is_empty() {
        return;
    }
    if let Err(error) = write_by(&path_of(pool), known) {
        tracing::debug!("program contexts are not saved: {error}");
    }
}

fn write_by(path: &Path, known: &[LearntPattern]) -> io::Result<()> {
    let contexts = known.iter().map(SavedPattern::of).collect();
    // A power loss may leave what was there before, or nothing.
    replaced(path, &serde_json::to_vec(&Saved { version: VERSION, contexts })?, |_| Ok(()))
}

fn path_of(pool: &Path) -> PathBuf {
    pool.with_added_extension("contexts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_is_read_again_and_what_is_damaged_is_not_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        assert_eq!(read(&pool), []);
        let (pages, sampled, touches) = ([10, 2, 8], [4, 3], [1, 3]);
        let known = LearntPattern {
            context: u64::MAX,
            pages,
            sampled,
            touches,
            again_share: 0.75,
            interval: 12.5,
            loop_pages: 8,
        };
        write(&pool, &[known]);
        assert_eq!(read(&pool), [known]);
        write(&pool, &[]);
        assert_eq!(read(&pool), [known], "a mount that learns nothing knows no better");
        for text in ["", "{", "{\"version\":2,\"contexts\":[]}", "[1,2]"] {
            std::fs::write(path_of(&pool), text).expect("written");
            assert_eq!(read(&pool), [], "{text}");
        }
        let strange = "{\"version\":1,\"contexts\":[{\"context\":\"x\",\"pages\":[0,0,0],\"sampled\":[0,0],\"touches\":[0,0],\"again_share\":0.0,\"interval\":0.0,\"loop_pages\":0}]}";
        std::fs::write(path_of(&pool), strange).expect("written");
        assert_eq!(read(&pool), [], "a context is a number");
    }
}
