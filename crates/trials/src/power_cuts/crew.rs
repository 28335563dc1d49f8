//! Several threads over one list of scripts.

use crate::power_cuts::judge::{Campaign, Failure, SecondCuts, Seen, Tally};
use crate::power_cuts::script::Step;
use crate::power_cuts::volume::SmallVolume;
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
    let scripts = Mutex::new(crate::power_cuts::scripts(alphabet, steps));
    let stop = AtomicBool::new(false);
    let work = || {
        let mut campaign = Campaign::new(volume, &wrap, seen, second_cuts);
        // Relaxed: a thread that sees it late judges one script more.
        while !stop.load(Ordering::Relaxed) {
            let next = scripts.lock().expect("no script is made by panicking").next();
            let Some(script) = next else { break };
            campaign.run(&script).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        }
        Ok(campaign.tally())
    };
    let mut total = Tally::default();
    let tallies: Vec<Result<Tally, Failure>> = thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).into()
    });
    for tally in tallies {
        total.add(&tally?);
    }
    Ok(total)
}
