//! Says what lies on a region, before anything is written to it, and why a volume is not opened.

use crate::locate::{CopyState, NotLocated, Summary, locate};
use tidegate_layout::foreign::{HEAD_BYTES, TAIL_BYTES, recognise};
use tidegate_media::{Corrupt, Poison, Region, Sealed};

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

/// Why a volume was not opened. Nothing on the medium was changed, but for info blocks and
/// interrupted writes that were already finished, where the medium failed amid that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The region is blank.
    #[error("the region holds no volume: it is blank")]
    Blank,
    /// The region holds something else.
    #[error("the region holds no volume of ours, but {what}")]
    Foreign {
        /// What its first bytes look like.
        what: &'static str,
    },
    /// The first info block is foreign, and the second good: perhaps the region was given to
    /// somebody else.
    #[error("the first info block at {at:#x} is overwritten with something else ({what}), the second one is intact")]
    FirstCopyForeign {
        /// Where the first info block should be.
        at: u64,
        /// What the region's first bytes look like.
        what: &'static str,
    },
    /// The region ends before the volume does.
    #[error("the volume needs {needs} bytes and the region has {has}: it was cut short")]
    CutShort {
        /// Bytes of region the volume needs.
        needs: u64,
        /// Bytes the region has.
        has: u64,
    },
    /// The volume can be opened with [`crate::Writes::Refused`] only: a write could destroy what it
    /// holds.
    #[error("the volume can be read and not written: {0}")]
    Unwritable(Corrupt),
    /// The volume's structures break a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The medium cannot give the structures back.
    #[error(transparent)]
    Media(#[from] Poison),
    /// The medium refused a store.
    #[error(transparent)]
    Sealed(#[from] Sealed),
}

/// Why there is no volume on `region`.
pub(crate) fn no_volume<R: Region + ?Sized>(region: &R, reason: NotLocated) -> Result<OpenError, Poison> {
    Ok(match reason {
        NotLocated::Corrupt(corrupt) => OpenError::Corrupt(corrupt),
        NotLocated::CutShort { needs, has } => OpenError::CutShort { needs, has },
        NotLocated::Unreadable(poison) => OpenError::Media(poison),
        NotLocated::Absent => match identify(region)? {
            Identity::Foreign { what } => OpenError::Foreign { what },
            Identity::Blank | Identity::Btt(_) | Identity::Damaged { .. } => OpenError::Blank,
        },
    })
}
