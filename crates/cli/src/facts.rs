//! What there is to say about a volume: the part that `create`, `serve` and `info` have in common.

use crate::answer::line;
use crate::contract::{self, Columns, Promise};
use crate::size::Human;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::Summary;
use tidegate_media::{Domain, Instructions, MappedRegion, Region};
use uuid::Uuid;

/// A volume, the memory it lies in, and what is promised there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    /// The region file.
    pub(crate) file: PathBuf,
    /// Bytes of the region.
    pub(crate) region_bytes: u64,
    /// Version of the format.
    pub(crate) version: String,
    /// The volume's identity.
    pub(crate) uuid: Uuid,
    /// Bytes of a sector, per-sector metadata included.
    pub(crate) sector_size: u32,
    /// Bytes of a block as clients see it.
    pub(crate) block_size: u32,
    /// Blocks in the volume.
    pub(crate) blocks: u64,
    /// Arenas in the region.
    pub(crate) arenas: u32,
    /// Which troubles the memory survives.
    pub(crate) domain: String,
    /// The instructions that carry stores to the memory.
    pub(crate) instructions: String,
    /// What survives what.
    pub(crate) contract: Vec<Promise>,
    #[serde(skip)]
    in_domain: Domain,
    #[serde(skip)]
    cached: bool,
}

/// A region's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    bytes: u64,
    domain: Domain,
    instructions: Instructions,
}

impl Memory {
    /// The memory of `region`.
    pub(crate) fn of(region: &MappedRegion) -> Memory {
        Memory { bytes: region.len(), domain: region.domain(), instructions: region.instructions() }
    }
}

impl Facts {
    /// What is known of the volume `summary` in the region `path`, made of `memory`.
    pub(crate) fn of(path: &Path, memory: Memory, summary: &Summary) -> Facts {
        Facts {
            file: path.to_owned(),
            region_bytes: memory.bytes,
            version: summary.version.to_string(),
            uuid: Uuid::from_bytes(summary.uuid),
            sector_size: summary.sector_size,
            block_size: summary.block_size,
            blocks: summary.blocks,
            arenas: summary.arenas,
            domain: memory.domain.to_string(),
            instructions: memory.instructions.to_string(),
            contract: contract::promises(memory.domain, false).to_vec(),
            in_domain: memory.domain,
            cached: false,
        }
    }

    /// The same volume behind a cache, or not.
    pub(crate) fn behind_a_cache(self, cached: bool) -> Facts {
        Facts { contract: contract::promises(self.in_domain, cached).to_vec(), cached, ..self }
    }

    /// Bytes that clients can store.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "volume", self.file.display())?;
        line(f, "format", format_args!("BTT {}, uuid {}", self.version, self.uuid))?;
        let arenas = if self.arenas == 1 { "arena" } else { "arenas" };
        let (blocks, block_size) = (self.blocks, self.block_size);
        line(f, "size", format_args!("{}: {blocks} blocks of {block_size} bytes", Human(self.bytes())))?;
        line(f, "region", format_args!("{} in {} {arenas}", Human(self.region_bytes), self.arenas))?;
        line(f, "stores", &self.instructions)?;
        line(f, "domain", format_args!("{}: {}", self.domain, contract::meaning(self.in_domain)))?;
        write!(f, "{}", Columns { domain: self.in_domain, cached: self.cached })
    }
}
