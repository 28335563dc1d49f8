//! How much of a lease log was taken over, as the last word of its entry says it.

use crate::on_media::{Broken, rule};

/// How many elements the service took over is said in so many bits.
const ADOPTED_BITS: u32 = 20;

/// The mark of a log whose lease was revoked.
const CLOSED_MARK: u32 = (1 << ADOPTED_BITS) + 1;

/// How much of a lease log the service has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMark {
    /// The lease goes on, or ended with its process. The lowest bits of how many elements were
    /// taken over.
    Open(u32),
    /// The lease was revoked, and everything that counts was taken over.
    Closed,
}

impl LeaseMark {
    /// The mark of a lease of which so many elements were taken over.
    pub fn open(adopted: u64) -> LeaseMark {
        LeaseMark::Open(u32::try_from(adopted % (1 << ADOPTED_BITS)).expect("20 bits"))
    }

    /// How many elements were taken over, if `visible` ones are there and at most `most` of them
    /// were not. `None`: that cannot be.
    pub fn adopted(self, visible: u64, most: u32) -> Option<u64> {
        let LeaseMark::Open(low) = self else { return None };
        let behind = visible.wrapping_sub(u64::from(low)) % (1 << ADOPTED_BITS);
        visible.checked_sub(behind).filter(|_| behind <= u64::from(most))
    }

    /// The place of the length in the last word of an entry.
    pub(super) fn bits(self) -> u32 {
        match self {
            LeaseMark::Open(low) => low + 1,
            LeaseMark::Closed => CLOSED_MARK,
        }
    }

    pub(super) fn of_bits(bits: u32) -> Result<LeaseMark, Broken> {
        rule((1..=CLOSED_MARK).contains(&bits), "the mark of a lease log is known", 24, bits)?;
        Ok(if bits == CLOSED_MARK { LeaseMark::Closed } else { LeaseMark::Open(bits - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_how_many_elements_were_taken_over() {
        for adopted in [0, 1, 508, (1 << 20) - 1, 1 << 20, 5 << 20] {
            for behind in [0, 1, 508] {
                assert_eq!(LeaseMark::open(adopted).adopted(adopted + behind, 508), Some(adopted));
            }
            assert_eq!(LeaseMark::open(adopted).adopted(adopted + 509, 508), None);
        }
        assert_eq!(LeaseMark::open(5).adopted(3, 508), None, "more than there are");
        assert_eq!(LeaseMark::Closed.adopted(3, 508), None);
        assert!(LeaseMark::of_bits(0).is_err() && LeaseMark::of_bits(CLOSED_MARK + 1).is_err());
    }
}
