//! Images as namespaces: the part of a file that holds blocks, without the label area at its end.

use std::path::Path;
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_media::{Access, Allocation, LineOrder, MappedRegion, Poison, Region, Sealed};

/// A mapped image without its label area.
pub struct Namespace {
    image: MappedRegion,
    bytes: u64,
}

impl Namespace {
    /// A new image of zeroes: `bytes` of namespace, sparse, and no label area.
    pub fn create(path: &Path, bytes: u64) -> Namespace {
        let image = MappedRegion::create(path, bytes, Allocation::Sparse).expect("a new image");
        Namespace { image, bytes }
    }

    /// An image that is there already, whose last `label_bytes` are its label area.
    pub fn open(path: &Path, label_bytes: u64) -> Namespace {
        let image = MappedRegion::open(path, Access::ReadWrite).expect("the image opens");
        let bytes = image.len() - label_bytes;
        Namespace { image, bytes }
    }

    /// Lays out a BTT on a namespace of zeroes.
    pub fn format(&self, spec: &FormatSpec) {
        tidegate_btt::format(self, spec, Contents::Zeroed).expect("the namespace takes a BTT");
    }

    /// The BTT in this namespace.
    pub fn into_btt(self) -> Btt<Namespace> {
        Btt::open(self, &OpenOptions::default()).unwrap_or_else(|error| panic!("the BTT does not open: {error}"))
    }
}

impl Region for Namespace {
    fn len(&self) -> u64 {
        self.bytes
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.image.read(at, out)
    }
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.image.load_u64(at)
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.image.write(at, bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.image.stream(at, bytes);
    }
    fn store_u64(&self, at: u64, word: u64) {
        self.image.store_u64(at, word);
    }
    fn flush(&self, at: u64, len: u64) {
        self.image.flush(at, len);
    }
    fn fence(&self) -> Result<(), Sealed> {
        self.image.fence()
    }
    fn line_order(&self) -> LineOrder {
        self.image.line_order()
    }
}
