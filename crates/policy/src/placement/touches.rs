//! When pages were touched before: a table of the last touches of one page in eight.
//!
//! A page's row is found by its hash; in a full row the touch that is oldest gives way. There are
//! as many places as slots, so that the table reaches back eight times as far as the tiers do.
//! Ages are counted in 32 bits and wrap around: a touch before that long would seem a late one, and
//! cost one wrong guess.

/// Touches in a row.
const ROW: usize = 8;

/// Rows at least.
const ROWS_MIN: usize = 32;

/// One page in so many is sampled.
pub(super) const SAMPLED: u32 = 8;

/// Bytes that a slot takes here at most: places are rounded up to a power of two.
pub(super) const BYTES_PER_SLOT: usize = 2 * size_of::<Touched>();

#[derive(Clone, Copy, Default)]
struct Touched {
    /// Never 0 for a touch.
    fingerprint: u32,
    at: u32,
}

/// What the table has of a page's earlier touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// The page is not sampled.
    Unsampled,
    /// The page was not touched as far as the table reaches back.
    First,
    /// The page was touched so long ago.
    Again(u32),
}

/// The table.
pub(super) struct Touches {
    rows: Box<[[Touched; ROW]]>,
}

impl Touches {
    /// Makes an empty table for tiers of so many slots.
    pub(super) fn new(slots: u32) -> Touches {
        let rows = (slots as usize).div_ceil(ROW).next_power_of_two().max(ROWS_MIN);
        Touches { rows: vec![[Touched::default(); ROW]; rows].into() }
    }

    /// Notes that the page of this hash is touched at `now`; says when it was before.
    pub(super) fn touch(&mut self, hash: u64, now: u32) -> Earlier {
        if !hash.is_multiple_of(SAMPLED.into()) {
            return Earlier::Unsampled;
        }
        let fingerprint = u32::try_from(hash >> 32).expect("half of it").max(1);
        let low = usize::try_from((hash & u64::from(u32::MAX)) / u64::from(SAMPLED)).expect("half of it");
        let at = low & (self.rows.len() - 1);
        let row = &mut self.rows[at];
        if let Some(same) = row.iter_mut().find(|touched| touched.fingerprint == fingerprint) {
            return Earlier::Again(now.wrapping_sub(std::mem::replace(&mut same.at, now)));
        }
        let age = |touched: &Touched| match touched.fingerprint {
            0 => u32::MAX,
            _ => now.wrapping_sub(touched.at),
        };
        *row.iter_mut().max_by_key(|touched| age(touched)).expect("a row has places") =
            Touched { fingerprint, at: now };
        Earlier::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_in_eight_is_known_with_its_age() {
        let mut touches = Touches::new(4096);
        let hashes: Vec<u64> = (0..4096).map(crate::evict::mixed).collect();
        let first = hashes.iter().zip(0..).filter(|(hash, now)| touches.touch(**hash, *now) == Earlier::First).count();
        assert!((400..620).contains(&first), "{first}");
        let ages = hashes.iter().zip(10_000..).map(|(hash, now)| touches.touch(*hash, now));
        let known = ages.filter(|past| *past == Earlier::Again(10_000)).count();
        assert_eq!(known, first, "each is as old as it is");
    }

    #[test]
    fn the_oldest_touch_of_a_full_row_gives_way() {
        let mut touches = Touches::new(1);
        let in_one_row = |nth: u64| (nth + 1) << 32;
        (0..9).for_each(|nth| {
            touches.touch(in_one_row(nth), u32::try_from(nth).expect("few"));
        });
        assert_eq!(touches.touch(in_one_row(1), 20), Earlier::Again(19));
        assert_eq!(touches.touch(in_one_row(0), 21), Earlier::First);
    }
}
