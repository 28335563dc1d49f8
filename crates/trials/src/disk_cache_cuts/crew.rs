//! Several threads over one list of scripts.

use crate::disk_cache_cuts::judge::{CacheCampaign, CacheTally};
use crate::disk_cache_cuts::script::CacheStep;
use crate::disk_cache_cuts::small::SmallCache;
use crate::disk_cache_cuts::watch::Watched;
use crate::power_cuts::{Failure, Seen, scripts};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Judges every script of `steps` operations on `cache`, on two threads. Stops at the first failure.
pub fn judge_cache_scripts<R, W>(cache: &SmallCache, wrap: W, steps: u32, seen: &Seen) -> Result<CacheTally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Watched) -> R + Sync,
{
    let alphabet = CacheStep::alphabet(&cache.lbas);
    let scripts = Mutex::new(scripts(&alphabet, steps));
    let stop = AtomicBool::new(false);
    let work = || {
        let mut campaign = CacheCampaign::new(cache, &wrap, seen);
        // Relaxed: a thread that sees it late judges one script more.
        while !stop.load(Ordering::Relaxed) {
            let next = scripts.lock().expect("no script is made by panicking").next();
            let Some(script) = next else { break };
            campaign.run(&script).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        }
        Ok(campaign.tally())
    };
    let mut total = CacheTally::default();
    let tallies: Vec<Result<CacheTally, Failure>> = thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).into()
    });
    for tally in tallies {
        total.add(&tally?);
    }
    Ok(total)
}
