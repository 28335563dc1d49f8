//! A device that refuses writes, for every device below it.

use std::sync::Arc;
use tidegate_media::{BlockDevice, Durability, Geometry, Lba, LbaRange, Misuse, Result};

/// A device of which only reads come through.
pub struct ReadOnly(pub Arc<dyn BlockDevice>);

impl BlockDevice for ReadOnly {
    tidegate_media::forward!(self => self.0; read, extent);

    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.0.geometry() }
    }

    fn write(&self, _at: Lba, _data: &[u8], _durability: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _range: LbaRange) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }

    fn write_zeroes(&self, _range: LbaRange, _durability: Durability) -> Result<()> {
        Err(Misuse::ReadOnly.into())
    }
}
