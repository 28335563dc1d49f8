//! Several threads over one list of scripts.

use crate::disk_cache_cuts::judge::{CacheCampaign, CacheTally};
use crate::disk_cache_cuts::script::CacheStep;
use crate::disk_cache_cuts::small::SmallCache;
use crate::disk_cache_cuts::watch::Watched;
use crate::power_cuts::{Failure, Seen, on_two_threads, scripts};

/// Judges every script of `steps` operations on `cache`, on two threads. Stops at the first failure.
pub fn judge_cache_scripts<R, W>(cache: &SmallCache, wrap: W, steps: u32, seen: &Seen) -> Result<CacheTally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Watched) -> R + Sync,
{
    judge_some_cache_scripts(cache, wrap, steps, 1, seen)
}

/// Judges one script in `one_in` of `steps` operations on `cache`, as [`judge_cache_scripts`] does. If `one_in` shares no factor with the
/// number of operations there are, each of them comes at each place.
pub fn judge_some_cache_scripts<R, W>(
    cache: &SmallCache,
    wrap: W,
    steps: u32,
    one_in: usize,
    seen: &Seen,
) -> Result<CacheTally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Watched) -> R + Sync,
{
    let alphabet = CacheStep::alphabet(&cache.lbas);
    let tallies = on_two_threads(scripts(&alphabet, steps).step_by(one_in), |dealt| {
        let mut campaign = CacheCampaign::new(cache, &wrap, seen);
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally())
    })?;
    let mut total = CacheTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}
