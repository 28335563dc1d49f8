//! The description of a volume: the part of their answers that `create`, `serve` and `info` share.

use crate::VolumeRegion;
use crate::damage::Damage;
use crate::guarantees::{self, Columns, Promise, Stack};
use crate::mirror::MirrorState;
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::Summary;
use tidegate_disk_cache::{Checksums, Identity};
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_layout::disk_cache::DETACHED;
use tidegate_media::{DiskIdentity, Domain, Instructions, Region};
use uuid::Uuid;

/// What is said of a disk without a name.
pub const NO_NAME: &str = "has no name, and is told from others by its size and place alone";

/// A volume, the memory it lies in, and what is promised there.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// The region file.
    #[serde(with = "tidegate_host::json_path")]
    pub file: PathBuf,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// The mirror that the region is, or is a side of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorState>,
    /// The format.
    pub format: Format,
    /// Its version.
    pub version: String,
    /// The volume's identity.
    pub uuid: Uuid,
    /// Bytes of a sector, per-sector metadata included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Bytes of a block as clients see it.
    pub block_size: u32,
    /// Blocks in the volume.
    pub blocks: u64,
    /// Arenas in the region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arenas: Option<u32>,
    /// Blocks of the disk that the region holds at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_blocks: Option<u32>,
    /// Bytes of the largest write that is put in place as a whole, if that is more than a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic_bytes: Option<u64>,
    /// Whether each block in front of a disk has a checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksums: Option<bool>,
    /// Whether the disk alone is what all writes up to a moment left.
    pub ordered: Option<bool>,
    /// Whether the disk has a name to know it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_has_name: Option<bool>,
    /// Which troubles the memory survives.
    pub domain: String,
    /// The instructions that carry stores to the memory.
    pub instructions: String,
    /// What survives what.
    pub contract: Vec<Promise>,
    /// Which rules of its format the volume breaks, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
    #[serde(skip)]
    in_domain: Domain,
    #[serde(skip)]
    stack: Stack,
}

/// What lies in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A block translation table.
    Btt,
    /// A cache of a disk.
    DiskCache,
}

impl Format {
    /// Its name for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Format::Btt => "btt",
            Format::DiskCache => "disk-cache",
        }
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Btt => "BTT",
            Format::DiskCache => "disk cache",
        })
    }
}

/// A region's memory.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) bytes: u64,
    pub(crate) domain: Domain,
    instructions: Instructions,
    mirror: Option<MirrorState>,
}

impl Memory {
    /// The memory of `region`.
    pub fn of(region: &VolumeRegion) -> Memory {
        Memory {
            bytes: region.len(),
            domain: region.reader().domain(),
            instructions: region.reader().instructions(),
            mirror: MirrorState::of(region),
        }
    }
}

/// What is promised of memory in `domain`, and of a mirror of it that has both sides.
fn promised(domain: Domain, stack: Stack, mirror: Option<&MirrorState>) -> Vec<Promise> {
    match mirror {
        Some(mirror) if mirror.sides.len() == 2 => guarantees::of_mirror(domain, stack),
        _ => guarantees::promises(domain, stack),
    }
}

impl Description {
    /// What is known of the volume `summary` in the region `path`, made of `memory`.
    pub fn of(path: &Path, memory: Memory, summary: &Summary) -> Description {
        Description {
            file: path.to_owned(),
            region_bytes: memory.bytes,
            format: Format::Btt,
            version: summary.version.to_string(),
            uuid: Uuid::from_bytes(summary.uuid),
            sector_size: Some(summary.sector_size),
            block_size: summary.block_size,
            blocks: summary.blocks,
            arenas: Some(summary.arenas),
            cached_blocks: None,
            checksums: None,
            ordered: None,
            disk_has_name: None,
            atomic_bytes: None,
            domain: memory.domain.to_string(),
            instructions: memory.instructions.to_string(),
            contract: promised(memory.domain, Stack::Alone, memory.mirror.as_ref()),
            damage: None,
            in_domain: memory.domain,
            mirror: memory.mirror,
            stack: Stack::Alone,
        }
    }

    /// What is known of the cache `identity` in the region `path`, made of `memory`, and of its
    /// disk.
    pub fn of_disk_cache(path: &Path, memory: Memory, identity: &Identity) -> Description {
        let stack = match identity.journal_blocks {
            _ if identity.disk == DETACHED => Stack::Detached,
            0 => Stack::BeforeDisk,
            _ => Stack::BeforeOrderedDisk,
        };
        let atomic_bytes = u64::from(identity.atomic_blocks()) * u64::from(identity.block_size);
        Description {
            file: path.to_owned(),
            region_bytes: memory.bytes,
            format: Format::DiskCache,
            version: "1".to_owned(),
            uuid: Uuid::from_bytes(identity.uuid),
            sector_size: None,
            block_size: identity.block_size,
            blocks: identity.disk_blocks,
            arenas: None,
            cached_blocks: Some(identity.blocks),
            checksums: Some(identity.sums == Checksums::Kept),
            ordered: Some(identity.journal_blocks > 0),
            disk_has_name: (identity.disk != DETACHED).then(|| DiskIdentity(identity.disk).is_known()),
            atomic_bytes: (stack != Stack::Detached).then_some(atomic_bytes),
            domain: memory.domain.to_string(),
            instructions: memory.instructions.to_string(),
            contract: promised(memory.domain, stack, memory.mirror.as_ref()),
            damage: None,
            in_domain: memory.domain,
            mirror: memory.mirror,
            stack,
        }
    }

    /// This volume behind a write cache, or without one.
    pub fn behind_a_cache(self, cached: bool) -> Description {
        let stack = if cached { Stack::BehindWriteCache } else { Stack::Alone };
        Description { contract: promised(self.in_domain, stack, self.mirror.as_ref()), stack, ..self }
    }

    /// This volume with `damage`.
    pub fn with_damage(self, damage: Option<Damage>) -> Description {
        Description { damage, ..self }
    }

    /// Bytes that clients can store.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "volume", self.file.display())?;
        line(f, "format", format_args!("{} {}, uuid {}", self.format, self.version, self.uuid))?;
        let (blocks, block_size) = (self.blocks, self.block_size);
        line(f, "size", format_args!("{}: {blocks} blocks of {block_size} bytes", Human(self.bytes())))?;
        let region = Human(self.region_bytes);
        match (self.arenas, self.cached_blocks) {
            (Some(1), _) => line(f, "region", format_args!("{region} in 1 arena"))?,
            (Some(arenas), _) => line(f, "region", format_args!("{region} in {arenas} arenas"))?,
            (None, Some(blocks)) => line(f, "region", format_args!("{region} for {blocks} blocks of the disk"))?,
            (None, None) => line(f, "region", region)?,
        }
        self.mirror.iter().try_for_each(|mirror| line(f, "mirror", mirror))?;
        if let Some(bytes) = self.atomic_bytes {
            line(f, "whole", format_args!("a write of up to {} is put in place as a whole", Human(bytes)))?;
        }
        if self.checksums == Some(true) {
            line(f, "checksums", "one of each block; `tidegate scrub` compares them all")?;
        }
        if self.stack == Stack::BeforeOrderedDisk {
            line(
                f,
                "ordered",
                "the disk alone is what all writes up to a moment left; `tidegate replay --force` if the memory is lost",
            )?;
        }
        if self.disk_has_name == Some(false) {
            line(f, "nameless", format_args!("the disk {NO_NAME}"))?;
        }
        if let Some(damage) = &self.damage {
            line(f, "damage", damage)?;
        }
        line(f, "stores", &self.instructions)?;
        line(f, "domain", format_args!("{}: {}", self.domain, self.in_domain.meaning()))?;
        write!(f, "{}", Columns { promises: &self.contract, stack: self.stack })
    }
}
