//! Lines that are stored to a side anew from its twin, as wholes.
//!
//! A power cut may take any words of a line that is being stored. The side would then hold a
//! mixture that no single region could, and may be the only one left, or the one that is right. So
//! the lines lie in the side's page first, with a checksum, durably; an opening that finds them
//! there stores them again. They go from the page, durably, before an engine stores to those lines.

use crate::copy::{LINE_LEN, LineBytes};
use crate::page::{page_at, page_of};
use tidegate_layout::mirror::{REDO_HEAD_AT, REDO_LINES_AT, REDO_LINES_MAX, REDO_PLACES_AT, RedoHead};
use tidegate_media::{LINE_BYTES, Region, Sealed};
use zerocopy::{FromZeros, IntoBytes};

/// Whole lines to be stored to one side.
#[derive(Default)]
pub(crate) struct Redo {
    places: Vec<u64>,
    contents: Vec<u8>,
}

impl Redo {
    /// Adds the line at `at`, whole. If that makes as many as one redo takes, stores them.
    pub(crate) fn add<R: Region>(&mut self, region: &R, at: u64, line: &LineBytes) -> Result<(), Sealed> {
        self.places.push(at);
        self.contents.extend_from_slice(line.bytes());
        if self.places.len() < REDO_LINES_MAX { Ok(()) } else { self.store(region) }
    }

    /// Stores the lines added, durably as wholes.
    pub(crate) fn store<R: Region>(&mut self, region: &R) -> Result<(), Sealed> {
        if self.places.is_empty() {
            return Ok(());
        }
        let page = page_of(region);
        for (place, at) in self.places.iter().zip((page + REDO_PLACES_AT..).step_by(8)) {
            region.stream(at, &place.to_le_bytes());
        }
        region.stream(page + REDO_LINES_AT, &self.contents);
        region.stream(page + REDO_HEAD_AT, RedoHead::new(&self.places, &self.contents).as_bytes());
        region.fence()?;
        self.store_lines(region);
        region.fence()?;
        region.stream(page + REDO_HEAD_AT, RedoHead::new_zeroed().as_bytes());
        region.fence()?;
        *self = Redo::default();
        Ok(())
    }

    /// Stores again what a cut interrupted on `region`, a side. Returns whether there was anything.
    pub(crate) fn finish<R: Region>(region: &R) -> Result<bool, Sealed> {
        match Redo::left_on(region) {
            Some(mut left) => left.store(region).map(|()| true),
            None => Ok(false),
        }
    }

    /// The lines that a cut left in the page of `region`.
    fn left_on<R: Region>(region: &R) -> Option<Redo> {
        let page = page_at(region.len())?;
        let mut head = RedoHead::new_zeroed();
        region.read(page + REDO_HEAD_AT, head.as_mut_bytes()).ok()?;
        let lines = head.lines()?;
        let (mut places, mut contents) = (vec![0; lines], vec![0; lines * LINE_LEN]);
        region.read(page + REDO_PLACES_AT, places.as_mut_bytes()).ok()?;
        region.read(page + REDO_LINES_AT, &mut contents).ok()?;
        places.iter_mut().for_each(|place: &mut u64| *place = u64::from_le(*place));
        let inside = places.iter().all(|place| place.checked_add(LINE_BYTES).is_some_and(|end| end <= page));
        (inside && head.covers(&places, &contents)).then_some(Redo { places, contents })
    }

    fn store_lines<R: Region>(&self, region: &R) {
        for (place, line) in self.places.iter().zip(self.contents.chunks(LINE_LEN)) {
            region.stream(*place, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::read_line;
    use tidegate_sim::{Reduction, Region as Simulated, power_cuts};

    #[test]
    fn a_cut_leaves_each_line_old_or_new_after_the_next_opening() {
        let start = Simulated::new(4 * 4096).visible();
        let (mut old, mut new) = (0, 0);
        let cuts = power_cuts(&start, |region| {
            region.stream(128, &[9; 64]);
            region.fence().unwrap();
            let line = read_line(&**region, 128, 64).unwrap();
            let mut redo = Redo::default();
            redo.add(&**region, 4096, &line).unwrap();
            redo.store(&**region).unwrap();
        });
        let reduction = Reduction { images_max: 500, samples: 200, ..Reduction::none() };
        for image in cuts[1..].iter().flat_map(|cut| cut.images(&reduction)) {
            let region = Simulated::from_image(image);
            Redo::finish(&region).unwrap();
            let mut line = [0; 64];
            region.read(4096, &mut line).unwrap();
            assert!(line == [0; 64] || line == [9; 64], "torn: {line:?}");
            (old, new) = (old + u32::from(line == [0; 64]), new + u32::from(line == [9; 64]));
            assert_eq!(Redo::finish(&region), Ok(false), "it is done once");
        }
        assert!(old > 0 && new > 0, "{old} old, {new} new");
    }
}
