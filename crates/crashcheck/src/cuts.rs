//! Where a cut is made: a simulated region that announces each access before it is made. And which
//! words of a cut arrived.

use std::sync::Arc;
use tidegate_media::{LineOrder, Poison, Region as Medium, Sealed};
use tidegate_sim::{Cut, Image, Region};

/// A region and whom it tells.
pub struct Observed<F> {
    region: Arc<Region>,
    before: F,
}

impl<F: Fn(&Region) + Send + Sync> Observed<F> {
    /// `region`, which calls `before` before each access. Nothing between the call and the access
    /// lets another thread run.
    pub fn new(region: Arc<Region>, before: F) -> Observed<F> {
        Observed { region, before }
    }

    fn pass(&self) -> &Region {
        (self.before)(&self.region);
        &self.region
    }
}

impl<F: Fn(&Region) + Send + Sync> Medium for Observed<F> {
    fn len(&self) -> u64 {
        self.region.len()
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.pass().read(at, out)
    }
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.pass().load_u64(at)
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.pass().write(at, bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.pass().stream(at, bytes);
    }
    fn store_u64(&self, at: u64, word: u64) {
        self.pass().store_u64(at, word);
    }
    fn flush(&self, at: u64, len: u64) {
        self.pass().flush(at, len);
    }
    fn fence(&self) -> Result<(), Sealed> {
        self.pass().fence()
    }
    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}

/// Which words of the cut arrived in the image.
pub(crate) fn described(cut: &Cut, image: &Image) -> String {
    let words = cut.difference(image);
    let few: Vec<String> = words.iter().take(6).map(|(at, _, word)| format!("{at:#x}: {word:#x}")).collect();
    format!("{cut}, of which {} arrived ({})", words.len(), few.join(", "))
}
