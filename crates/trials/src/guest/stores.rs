//! Counts of a guest kernel's stores to its NVDIMMs, byte by byte: taken by QEMU itself, at each
//! store.
//!
//! The kernel's own counts of a block device miss what drivers store by mapping it. Here it does
//! not matter who stores.

use crate::artefacts::{CProgram, MissingError};
use std::ffi::OsString;
use std::fs;
use std::ops::Sub;
use std::path::Path;

/// What QEMU loads.
const COUNTER: CProgram = CProgram {
    name: "stores",
    source: include_str!("../../guest/stores.c"),
    flags: &["-shared", "-fPIC"],
    packages: "gcc libc6-dev",
};

/// Where the kernel maps physical memory, if told to map it where it always did and by four levels
/// of page tables.
const ALL_MEMORY_AT: u64 = 0xffff_8880_0000_0000;
/// Words of the kernel's command line that tell it so.
pub(super) const KERNEL_WORDS: &str = "nokaslr no5lvl";
/// Where QEMU's machine `pc` puts memory that is plugged in, beside little memory of its own.
const PLUGGED_IN_AT: u64 = 4 << 30;

/// What was stored to all NVDIMMs of a guest, from its beginning to a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    /// Bytes.
    pub bytes: u64,
    /// Store fences, whatever they are for.
    pub fences: u64,
}

impl Sub for Stores {
    type Output = Stores;

    fn sub(self, before: Stores) -> Stores {
        Stores { bytes: self.bytes - before.bytes, fences: self.fences - before.fences }
    }
}

/// The option of QEMU that counts stores to `bytes` bytes of NVDIMMs, and writes each mark to
/// `out`.
pub(super) fn option(out: &Path, bytes: u64) -> Result<OsString, MissingError> {
    let mut option = OsString::from(COUNTER.build()?);
    let first = ALL_MEMORY_AT + PLUGGED_IN_AT;
    option.push(format!(",out={},first={first:#x},bytes={bytes:#x}", out.display()));
    Ok(option)
}

/// The counts at each mark.
pub(super) fn read(out: &Path) -> Result<Vec<Stores>, MissingError> {
    let text = fs::read_to_string(out).map_err(MissingError::file(out))?;
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Stores> {
    let mut counts = line.split(' ').map(str::parse);
    let mut next = || counts.next()?.ok();
    Some(Stores { bytes: next()?, fences: next()? })
}
