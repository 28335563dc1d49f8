//! What a service answered to a claim, checked.

use tidegate_file_wire::{Answer, Claim};
use tidegate_layout::file_cache::{Class, LeaseElement, LeaseGrant, LeaseHead, LeasePlan};
use tidegate_media::LINE_BYTES;

/// The lease that was granted of a file in a pool of `pool_bytes`. `None`: none was, or one that
/// cannot be.
pub(crate) fn grant_of(claim: &Claim, pool_bytes: u64) -> Option<LeaseGrant> {
    if Answer::of(claim.answer.get()) != Answer::Granted || claim.lease.get() == 0 {
        return None;
    }
    let elements = u32::try_from(claim.log_elements.get()).ok()?;
    let is_a_size = |class: &Class| LeasePlan::of(0, *class).elements == elements;
    Class::ALL.iter().find(|class| is_a_size(class))?;
    let bytes = size_of::<LeaseHead>() as u64 + u64::from(elements) * size_of::<LeaseElement>() as u64;
    let log = LeasePlan { at: claim.log_at.get(), elements };
    let is_inside = log.at.checked_add(bytes)? <= pool_bytes && log.at.is_multiple_of(LINE_BYTES);
    let blocks_at = claim.blocks_at.get();
    let has_blocks = blocks_at < pool_bytes && blocks_at.is_multiple_of(LINE_BYTES);
    let (size, room) = (claim.size.get(), [claim.room_from.get(), claim.room_until.get()]);
    let is_a_file = size <= OFFSET_MAX && room[0] <= room[1] && room[1] <= OFFSET_MAX;
    let grant = LeaseGrant { lease: claim.lease.get(), log, blocks_at, size, room };
    (is_inside && has_blocks && is_a_file).then_some(grant)
}

/// The last offset that a file may have.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_file_wire::VERSION;

    const POOL_BYTES: u64 = 1 << 20;

    fn claim() -> Claim {
        let mut claim = Claim { version: VERSION.into(), answer: Answer::Granted.word().into(), ..Claim::default() };
        claim.lease = 7.into();
        claim.log_at = (POOL_BYTES - 16_384).into();
        claim.log_elements = 508.into();
        claim.blocks_at = 4096.into();
        claim.size = 10.into();
        claim.room_until = 20.into();
        claim
    }

    #[test]
    fn a_grant_is_what_the_service_said() {
        let log = LeasePlan { at: POOL_BYTES - 16_384, elements: 508 };
        let grant = LeaseGrant { lease: 7, log, blocks_at: 4096, size: 10, room: [0, 20] };
        assert_eq!(grant_of(&claim(), POOL_BYTES), Some(grant));
    }

    #[test]
    fn what_cannot_be_is_no_grant() {
        let spoilt: [fn(&mut Claim); 11] = [
            |claim| claim.answer = Answer::Later.word().into(),
            |claim| claim.lease = 0.into(),
            |claim| claim.log_elements = 507.into(),
            |claim| claim.log_elements = (508 + (1 << 32)).into(),
            |claim| claim.log_at = (POOL_BYTES - 8192).into(),
            |claim| claim.log_at = 64_u64.wrapping_neg().into(),
            |claim| claim.log_at = 8.into(),
            |claim| claim.blocks_at = POOL_BYTES.into(),
            |claim| claim.blocks_at = 8.into(),
            |claim| claim.size = u64::MAX.into(),
            |claim| claim.room_from = 21.into(),
        ];
        for (number, spoil) in spoilt.into_iter().enumerate() {
            let mut claim = claim();
            spoil(&mut claim);
            assert_eq!(grant_of(&claim, POOL_BYTES), None, "{number}");
        }
    }
}
