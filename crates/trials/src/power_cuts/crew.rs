//! Several threads over one list of scripts.

use crate::power_cuts::judge::{Campaign, Failure, SecondCuts, Seen, Tally};
use crate::power_cuts::script::{Step, scripts};
use crate::power_cuts::volume::SmallVolume;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tidegate_sim::Region;

/// Judges every script of `steps` operations out of `alphabet`, on two threads. Stops at the first failure.
pub fn judge_scripts<R, W>(
    volume: &SmallVolume,
    wrap: W,
    alphabet: &[Step],
    steps: u32,
    seen: &Seen,
    second_cuts: SecondCuts,
) -> Result<Tally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Arc<Region>) -> R + Sync,
{
    let tallies = on_two_threads(scripts(alphabet, steps), |dealt| {
        let mut campaign = Campaign::new(volume, &wrap, seen, second_cuts);
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally())
    })?;
    let mut total = Tally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}

/// How a campaign over an engine with a planted mistake shows it: by a failure, or by an assertion of the engine's own.
pub fn shown_by<T>(campaign: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(campaign)) {
        Ok(judged) => judged.map_err(|failure| failure.to_string()),
        Err(_) => Err("an assertion of the engine".to_owned()),
    }
}

/// Deals `scripts` out to two threads and returns what `judge` says on each. After a failure nothing more is dealt.
pub(crate) fn on_two_threads<S, T: Send>(
    scripts: impl Iterator<Item = S> + Send,
    judge: impl Fn(&mut dyn Iterator<Item = S>) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (scripts, stop) = (Mutex::new(scripts), AtomicBool::new(false));
    let work = || {
        let mut dealt = std::iter::from_fn(|| {
            // Relaxed: a thread that sees it late judges one script more.
            let stopped = stop.load(Ordering::Relaxed);
            if stopped { None } else { scripts.lock().expect("no script is made by panicking").next() }
        });
        judge(&mut dealt).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let ended = threads.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.into_iter().collect()
    })
}
