//! Volumes of a few pages, whose cuts can be enumerated.

use std::iter;
use std::num::NonZeroU32;
use std::sync::Arc;
use tidegate_btt::{Contents, FormatSpec, OpenOptions, PlannedArena, format_arenas};
use tidegate_layout::btt::{ArenaGeometry, Version};
use tidegate_sim::{Image, Reduction, Region};

/// One arena, at byte 0, too small for the format's own limits.
#[derive(Clone, Debug)]
pub struct SmallVolume {
    /// How the arena is cut.
    pub geometry: ArenaGeometry,
    /// What its users see of a block.
    pub block_bytes: usize,
    /// One write in so many is followed by the move of another sector.
    pub level_wear_every: Option<NonZeroU32>,
}

impl SmallVolume {
    /// Five pages: seven blocks of 512 bytes, four of them free.
    pub fn four_free() -> SmallVolume {
        let geometry = ArenaGeometry::of(5 * 4096, 512, 4).expect("seven blocks fit");
        assert_eq!((geometry.internal_nlba, geometry.external_nlba), (7, 3));
        SmallVolume { geometry, block_bytes: 512, level_wear_every: None }
    }

    /// Five pages: five blocks of 512 bytes, two of them free, so that a freed block is soon
    /// written again.
    pub fn two_free() -> SmallVolume {
        let geometry = SmallVolume::four_free().geometry;
        let geometry = ArenaGeometry { nfree: 2, internal_nlba: 5, ..geometry };
        SmallVolume { geometry, ..SmallVolume::four_free() }
    }

    /// This volume, with another sector moved after every write.
    pub fn levelled(self) -> SmallVolume {
        SmallVolume { level_wear_every: Some(NonZeroU32::MIN), ..self }
    }

    /// How it is opened.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { level_wear_every: self.level_wear_every, ..OpenOptions::default() }
    }

    /// Eleven pages: six blocks of 4096 bytes, four of them free. Zeroes are a state of the map
    /// here.
    pub fn whole_pages() -> SmallVolume {
        let geometry = ArenaGeometry::of(11 * 4096, 4096, 4).expect("six blocks fit");
        assert_eq!((geometry.internal_nlba, geometry.external_nlba), (6, 2));
        SmallVolume { geometry, block_bytes: 4096, level_wear_every: None }
    }

    /// Bytes of the region the volume fills.
    pub fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// Sectors.
    pub fn sectors(&self) -> u64 {
        u64::from(self.geometry.external_nlba)
    }

    /// Lays the volume out, with `identity` in its uuid.
    pub fn format<R: tidegate_media::Region + ?Sized>(&self, region: &R, identity: u8, contents: Contents) {
        let spec = FormatSpec {
            version: Version::V2_0,
            sector_size: self.geometry.external_lbasize,
            uuid: [identity; 16],
            parent_uuid: [0; 16],
        };
        let plan = [PlannedArena { start: 0, geometry: self.geometry }];
        format_arenas(region, &spec, &plan, contents).expect("the region is sound");
    }

    /// The medium after a format that nothing interrupted.
    pub fn formatted(&self) -> Image {
        let region = Arc::new(Region::new(self.bytes()));
        self.format(&*region, 1, Contents::Zeroed);
        region.cut().least().clone()
    }

    /// Everything in full but the words of data blocks, which neither recovery nor check ever
    /// reads.
    pub fn reduction(&self) -> Reduction {
        let start = self.geometry.dataoff;
        let bytes = u64::from(self.geometry.internal_nlba) * u64::from(self.geometry.internal_lbasize);
        Reduction::of(iter::once(start..start + bytes))
    }
}
