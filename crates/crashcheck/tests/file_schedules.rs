//! Threads on one pool of files, with a power cut at some instant: see
//! `crashcheck::file_cache::threads` and `lease_threads`.
//!
//! With `--cfg shuttle` its scheduler stands in for locks and atomics and tries
//! `TIDEGATE_SCHEDULES` schedules of each kind; otherwise the system's scheduler chooses.

use tidegate_crashcheck::checker::Failure;
use tidegate_crashcheck::file_cache::{SmallPool, judge_lease_threads, judge_threads};

/// What is run for each schedule, which a seed makes different.
type Scene = fn(&SmallPool, u64) -> Result<(), Failure>;

#[cfg(shuttle)]
fn judge(small: SmallPool, scene: Scene) {
    use shuttle::rand::Rng as _;
    let count =
        std::env::var("TIDEGATE_SCHEDULES").map_or(5_000, |count| count.parse().expect("a number of schedules"));
    let scene = move || {
        let seed = shuttle::rand::thread_rng().r#gen();
        scene(&small, seed).unwrap_or_else(|failure| panic!("{failure}"));
    };
    shuttle::check_random(scene.clone(), count);
    shuttle::check_pct(scene, count, 3);
}

#[cfg(not(shuttle))]
fn judge(small: SmallPool, scene: Scene) {
    for seed in 0..300 {
        scene(&small, seed).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

#[test]
fn threads_on_files_of_one_lane() {
    judge(SmallPool { dram_blocks: 64, ..small(1) }, judge_threads);
}

#[test]
fn threads_on_files_of_two_lanes() {
    judge(SmallPool { dram_blocks: 64, ..small(2) }, judge_threads);
}

/// Two append by leases that they share, the third revokes them.
#[test]
fn a_lease_revoked_at_any_instant() {
    judge(SmallPool { dram_blocks: 64, ..small(1) }, judge_lease_threads);
}

/// Formats once; every schedule starts from a copy.
#[cfg(shuttle)]
fn small(lanes: u32) -> SmallPool {
    let pool = std::sync::Arc::new(std::sync::OnceLock::new());
    let into = pool.clone();
    shuttle::check_random(move || drop(into.set(SmallPool::with_lanes(lanes, 4))), 1);
    pool.get().cloned().expect("one schedule ran")
}

#[cfg(not(shuttle))]
fn small(lanes: u32) -> SmallPool {
    SmallPool::with_lanes(lanes, 4)
}
