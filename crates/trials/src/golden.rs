//! Two images that Linux's own driver formatted and wrote, and their known contents.
//!
//! `golden/README.md` tells how they came to be.

use crate::artefacts::MissingError;
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// An image made by Linux.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    /// The BTT version, as Linux writes it.
    pub version: &'static str,
    packed: &'static [u8],
    /// Bytes at the end of the image that are the label area of its NVDIMM.
    pub label_bytes: u64,
    /// SHA-256 of the image.
    pub image_sha256: &'static str,
    /// Bytes in the image.
    pub image_bytes: u64,
    /// Sectors of 4096 bytes.
    pub sectors: u64,
    /// SHA-256 of all sectors in order, as Linux read them.
    pub device_sha256: &'static str,
    /// The uuid of the BTT.
    pub uuid: [u8; 16],
    /// The uuid of the enclosing namespace, zeroes for none.
    pub parent_uuid: [u8; 16],
}

/// BTT v1.1 in a namespace without a label.
pub const V1_1: Golden = Golden {
    version: "1.1",
    packed: include_bytes!("../golden/linux-v1.1.img.xz"),
    label_bytes: 0,
    image_sha256: "b55d95c54e808d3075d3f4cc50437b306d56e4d63c466705aed47ee174184fed",
    image_bytes: 32 << 20,
    sectors: 7920,
    device_sha256: "06f953c036c54969e8980f2005e642ff330d3f47917fe9d128dd35e75cf440c1",
    uuid: 0x5ec7_0400_0001_4b77_a111_0000_0000_0001_u128.to_be_bytes(),
    parent_uuid: [0; 16],
};

/// BTT v2.0 in a labelled namespace: the last 128 KiB are the label area.
pub const V2_0: Golden = Golden {
    version: "2.0",
    packed: include_bytes!("../golden/linux-v2.0.img.xz"),
    label_bytes: 128 << 10,
    image_sha256: "c2a00a619c3eb6edf623f16e1bad68e5ec5c38c04e2f22f68925adc800cfe474",
    image_bytes: (32 << 20) + (128 << 10),
    sectors: 7921,
    device_sha256: "487ede8aa6a595e54d9b30e82395827fb86db0a50a8e4ff09aea2bbe19ad5bd0",
    uuid: 0xf295_4da9_391f_404f_a64a_4b9f_277b_a1ac_u128.to_be_bytes(),
    parent_uuid: 0xbf42_ab96_925d_4f09_84d6_99aa_02ad_8f7b_u128.to_be_bytes(),
};

impl Golden {
    /// The whole image.
    pub fn image(&self) -> Vec<u8> {
        let mut image = Vec::new();
        lzma_rs::xz_decompress(&mut Cursor::new(self.packed), &mut image).expect("the stored image unpacks");
        image
    }

    /// Writes the whole image to a new file.
    pub fn unpack(&self, path: &Path) -> Result<(), MissingError> {
        fs::write(path, self.image()).map_err(MissingError::file(path))
    }

    /// Bytes of the namespace: the image without its label area.
    pub fn namespace_bytes(&self) -> u64 {
        self.image_bytes - self.label_bytes
    }

    /// What Linux wrote into a sector: the record repeated in it, `None` for a sector never
    /// written.
    pub fn record(&self, sector: u64) -> Option<String> {
        let generation = match sector {
            1000 => 3,
            4..=7 => 2,
            0..=15 => 1,
            last if last == self.sectors - 1 => 1,
            _ => return None,
        };
        Some(format!("LBA{sector:08} G{generation:02}\n"))
    }
}
