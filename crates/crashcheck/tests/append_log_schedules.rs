//! Threads on one append-only log, with a power cut at some access: see
//! `crashcheck::append_log::judge_log_threads`.
//!
//! With `--cfg shuttle` its scheduler stands in for locks and atomics and tries
//! `TIDEGATE_SCHEDULES` schedules of each kind; otherwise the system's scheduler chooses.

#[cfg(not(shuttle))]
use tidegate_crashcheck::append_log::LogBug;
use tidegate_crashcheck::append_log::judge_log_threads;

#[cfg(shuttle)]
#[test]
fn threads_on_one_log() {
    use shuttle::rand::Rng as _;
    let count =
        std::env::var("TIDEGATE_SCHEDULES").map_or(5_000, |count| count.parse().expect("a number of schedules"));
    let scene = || {
        let seed = shuttle::rand::thread_rng().r#gen();
        judge_log_threads(seed, None).unwrap_or_else(|failure| panic!("{failure}"));
    };
    // Without optimisation, a page that is on its way to the heap does not fit on the usual stack.
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 256 << 10;
        config
    };
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(count), config()).run(scene);
    shuttle::Runner::new(shuttle::scheduler::PctScheduler::new(3, count), config()).run(scene);
}

#[cfg(not(shuttle))]
#[test]
fn threads_on_one_log() {
    for seed in 0..600 {
        judge_log_threads(seed, None).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

#[cfg(not(shuttle))]
#[test]
fn fences_left_out_under_threads_are_caught() {
    for bug in [LogBug::DataFenceLeftOut, LogBug::WordFenceLeftOut, LogBug::WordsTogether] {
        let shown = (0..600).find_map(|seed| judge_log_threads(seed, Some(bug)).err().map(|failure| (seed, failure)));
        let (seed, failure) = shown.expect("no seed shows the mistake");
        println!("{bug:?}: seed {seed}: {failure}");
    }
}
