//! Threads on one append-only log, with a power cut at some access: see
//! `crashcheck::append_log::judge_log_threads`.
//!
//! With `--cfg shuttle` its scheduler stands in for locks and atomics and tries
//! `TIDEGATE_SCHEDULES` schedules of each kind; otherwise the system's scheduler chooses.

use tidegate_crashcheck::append_log::judge_log_threads;

#[cfg(shuttle)]
#[test]
fn threads_on_one_log() {
    use shuttle::rand::Rng as _;
    let count =
        std::env::var("TIDEGATE_SCHEDULES").map_or(5_000, |count| count.parse().expect("a number of schedules"));
    let scene = || {
        let seed = shuttle::rand::thread_rng().r#gen();
        judge_log_threads(seed).unwrap_or_else(|failure| panic!("{failure}"));
    };
    shuttle::check_random(scene, count);
    shuttle::check_pct(scene, count, 3);
}

#[cfg(not(shuttle))]
#[test]
fn threads_on_one_log() {
    for seed in 0..600 {
        judge_log_threads(seed).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
