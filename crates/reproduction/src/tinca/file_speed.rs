//! The speed of Filebench's personalities on the transactional cache, in virtual time, and the
//! blocks of a transaction at that speed (Fig. 13).
//!
//! The paper tells no speed, and it decides how much is dirty when the journal commits after five
//! seconds. Here it is measured: threads read whole files from the cache, dirty what their writes
//! and names change, and commit what is dirty whenever that is a number of blocks. Each operation
//! on a file takes the kernel's part of a request too ([`path_ns`]).

use super::super::Scale;
use super::super::figure::{Chart, Figure, Series};
use super::super::kernel::path_ns;
use super::super::personalities::Personality;
use super::files::{Files, blocks_at_speed, figure, transaction_blocks};
use super::testbed::{Kind, Setup, Testbed};
use super::{FIO, frame, point, series};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_baselines::classic::{Stack, TOGETHER};
use tidegate_measure::subject::Block;
use tidegate_virtual_cores::{charge, now_ns};

/// Everything but the journal is so many times smaller than in the paper, as the cache is.
const SMALLER: u64 = 128;

/// Threads of a personality; more of them only wait for the same disk.
const THREADS: u32 = 32;

/// Blocks that are dirty when a thread commits them.
const DIRTY_BLOCKS: usize = 1024;

/// The place of Fig. 13 at which rounds between two commits are the measured ones.
const AT_ITS_SPEED: &str = "at its speed";

const PERSONALITIES: [Personality; 2] = [Personality::WebProxy, Personality::FileServer];

/// What threads share; none holds its lock over a point.
struct Shared {
    files: Files,
    rounds: u32,
    begun_ns: u64,
    taken_ns: u64,
}

/// Fig. 13.
pub fn transactions(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let title = "Rounds of a personality in a second, on the cache";
    let mut speed = frame("fig-13-speed", "Fig. 13", title, Chart::Bars, "rounds per second");
    let title = "Blocks of a transaction, over the rounds between two commits";
    let unit = "blocks per transaction";
    let mut blocks = figure("fig-13", "Fig. 13", title, Chart::Lines, unit, Personality::WebProxy.label());
    let all = [25, 50, 100, 200, 400, 800, 1600];
    let rounds = if scale == Scale::SMOKE { &all[..2] } else { &all[..] };
    for (personality, published) in PERSONALITIES.into_iter().zip([1.0, 2.0]) {
        let per_second = rounds_per_second(personality, scale)?;
        let at = |&rounds: &u32| point(rounds.to_string(), transaction_blocks(personality, rounds), None);
        let mut points: Vec<_> = rounds.iter().map(at).collect();
        let measured = point(AT_ITS_SPEED, blocks_at_speed(personality, per_second), None);
        points.push(super::super::figure::Point { published: Some(published), ..measured });
        blocks.series.push(Series { label: personality.label().to_owned(), points });
        speed.series.push(series(personality.label(), vec![point("rounds", per_second, None)]));
    }
    speed.baseline = None;
    speed.notes.push(format!(
        "{THREADS} threads; files, cache and disk are a 128th of the paper's. Each operation on a file takes {} ns of the kernel's. No page cache and no network \
         stands before the cache. The paper does not tell its speed; that of a cluster is in another figure, by which the claims are judged.",
        path_ns()
    ));
    blocks.notes.push(
        "The paper has about 8,000 blocks of fileserver and half as many of webproxy. A quarter of the journal, 8,192 blocks, is all that JBD2 puts into a \
         transaction, whatever the speed. As many blocks of the cache are taken beside the committed ones until the commit ends, where all were cached: \
         32 MiB, 0.4 % of 8 GiB."
            .to_owned(),
    );
    Ok(vec![speed, blocks])
}

/// Operations on files in a round: each is a request to the kernel.
fn operations(personality: Personality) -> u64 {
    match personality {
        Personality::FileServer => 5,
        Personality::VarMail => 5,
        Personality::WebServer => 11,
        Personality::WebProxy => 8,
    }
}

fn rounds_per_second(personality: Personality, scale: Scale) -> anyhow::Result<f64> {
    let (filling, warm, measured) = match scale {
        Scale::FULL => (12_000, 4_000, 16_000),
        Scale::SMOKE => (400, 50, 100),
        _ => (6_000, 1_000, 4_000),
    };
    let files = Files::of(personality, SMALLER);
    let setup = Setup { blocks: files.blocks(), ..FIO };
    let testbed = Testbed::of(Kind::TIDEGATE, &setup)?;
    let shared = Arc::new(Mutex::new(Shared { files, rounds: 0, begun_ns: 0, taken_ns: 0 }));
    let mut block = Block::filled(6);
    testbed.warm(filling, |stack| round(&shared, stack, &mut block))?;
    let of_threads = shared.clone();
    testbed.run(THREADS, move |_, stack| {
        let mut block = Block::filled(6);
        loop {
            let mut all = locked(&of_threads);
            all.rounds += 1;
            match all.rounds {
                nth if nth == warm => all.begun_ns = now_ns(),
                nth if nth >= warm + measured => {
                    // The others' last rounds are under way.
                    if nth == warm + measured {
                        all.taken_ns = now_ns() - all.begun_ns;
                    }
                    return;
                }
                _ => {}
            }
            drop(all);
            charge(operations(personality) * path_ns());
            round(&of_threads, stack, &mut block).expect("the disk works");
        }
    })?;
    let taken_ns = locked(&shared).taken_ns;
    Ok(f64::from(measured) * 1e9 / taken_ns as f64)
}

fn round(shared: &Mutex<Shared>, stack: &dyn Stack, block: &mut Block) -> anyhow::Result<()> {
    let mut all = locked(shared);
    let read = all.files.read_in_a_round();
    all.files.round();
    let dirty = all.files.take_dirty(DIRTY_BLOCKS);
    drop(all);
    read.into_iter().try_for_each(|lba| stack.read(lba, block))?;
    dirty.chunks(TOGETHER).try_for_each(|together| stack.commit(together, block))
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_reads_whole_files_and_leaves_what_it_changes_dirty() {
        for (personality, read) in [(Personality::FileServer, 32), (Personality::WebProxy, 5 * 4)] {
            let mut files = Files::of(personality, SMALLER);
            let blocks = files.read_in_a_round();
            assert!(blocks.len() == read && blocks.iter().all(|block| *block < files.blocks()));
            assert!(files.take_dirty(1).is_empty(), "reading dirties nothing");
            files.round();
            assert!(files.take_dirty(1000).is_empty() && files.take_dirty(1).len() > 4);
        }
    }
}
