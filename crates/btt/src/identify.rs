//! Says what lies on a region, before anything is written to it.

use crate::locate::{CopyState, NotLocated, Summary, locate};
use tidegate_layout::foreign::{HEAD_BYTES, TAIL_BYTES, recognise};
use tidegate_media::{Corrupt, Poison, Region};

/// What lies on a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Zeroes, where anybody puts a signature.
    Blank,
    /// A block translation table whose info blocks are sound.
    Btt(Summary),
    /// What is left of one.
    Damaged {
        /// The first rule that is broken.
        corrupt: Corrupt,
        /// What it is, if a second info block is intact.
        twin: Option<Summary>,
    },
    /// Something else.
    Foreign {
        /// What its first bytes look like.
        what: &'static str,
    },
}

/// Says what lies on `region`. Reads only.
pub fn identify<R: Region + ?Sized>(region: &R) -> Result<Identity, Poison> {
    match locate(region, None) {
        Ok(located) => {
            let summary = located.summary();
            let first_damaged = located.arenas.iter().find(|found| found.first != CopyState::Good);
            Ok(match first_damaged {
                None => Identity::Btt(summary),
                Some(found) => Identity::Damaged {
                    corrupt: Corrupt {
                        rule: "both info blocks are good",
                        at: found.arena.start(),
                        found: found.first.to_string(),
                    },
                    twin: Some(summary),
                },
            })
        }
        Err(NotLocated::Corrupt(corrupt)) => Ok(Identity::Damaged { corrupt, twin: None }),
        Err(NotLocated::CutShort { needs, has }) => Ok(Identity::Damaged {
            corrupt: Corrupt {
                rule: "the volume lies inside its region",
                at: has,
                found: format!("{needs} bytes needed"),
            },
            twin: None,
        }),
        Err(NotLocated::Unreadable(poison)) => Err(poison),
        Err(NotLocated::Absent) => foreign(region),
    }
}

fn foreign<R: Region + ?Sized>(region: &R) -> Result<Identity, Poison> {
    let piece = |at: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).expect("a few KiB")];
        region.read(at, &mut bytes).map(|()| bytes)
    };
    let head = piece(0, region.len().min(HEAD_BYTES))?;
    let tail_bytes = region.len().min(TAIL_BYTES);
    let tail = piece(region.len() - tail_bytes, tail_bytes)?;
    if let Some(what) = recognise(&head, &tail, region.len()) {
        return Ok(Identity::Foreign { what });
    }
    if head.iter().any(|byte| *byte != 0) {
        return Ok(Identity::Foreign { what: "data that is not recognised" });
    }
    Ok(Identity::Blank)
}
