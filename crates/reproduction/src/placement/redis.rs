//! Cheetah's Fig. 4: Redis, whose log is synced before each answer, on the direct path and on file
//! systems in memory.
//!
//! The paper's cache lies in front of Ext4-DAX, and its size is varied. Here the pool lies in front
//! of Ext4 on a block device in memory. NOVA and file systems with DAX are not here: the kernel of
//! this machine has no NOVA, and no memory for DAX.
//!
//! By its own rule (§ 3.1) Cheetah has synchronous writes go to NVM, so that DRAM would not matter.
//! But its text has more with more DRAM, and lets data be written into DRAM while cold data migrate
//! (§ 5.3). So what is varied here is the memory that takes in the log before the file system below
//! has it.

use super::programs::{EXT4, XFS};
use crate::Scale;
use crate::figure::{Figure, bytes_in_words};
use crate::hybrid::{MEMORY, Samples, Subject, frame, in_turn};
use tidegate_measure::redis::{Load, PROGRAMS, Policy, REMEDY, Server};
use tidegate_measure::testbed::disk::FileSystem;
use tidegate_measure::testbed::{Storage, absent};

/// The direct path with the paper's three sizes of the cache, the largest last.
pub(crate) const CACHES: [&str; 3] = ["direct path, 1 GB", "direct path, 2 GB", "direct path, 4 GB"];
/// Bytes of a value.
const SIZES: [u32; 5] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];
/// Clients at once: what the benchmark of Redis has by itself.
const CLIENTS: u32 = 50;
/// Samples of a subject at most.
const ROUNDS_MAX: u16 = 5;
/// A pool of this size or a larger one has so many lanes, and a file lies in one of them.
const LANES_FROM: (u32, u32) = (256, 4);

/// What is compared. Each is told how many MiB stand for the paper's GB.
const SUBJECTS: [Subject; 6] = [
    Subject { label: CACHES[0], storage: |gb| Storage::DirectInMemory(pool_mib(gb)) },
    Subject { label: CACHES[1], storage: |gb| Storage::DirectInMemory(pool_mib(2 * gb)) },
    Subject { label: CACHES[2], storage: |gb| Storage::DirectInMemory(pool_mib(4 * gb)) },
    Subject { label: EXT4, storage: |_| Storage::MemoryDisk(FileSystem::Ext4) },
    Subject { label: XFS, storage: |_| Storage::MemoryDisk(FileSystem::Xfs) },
    Subject { label: MEMORY, storage: |_| Storage::Memory },
];

/// MiB of a pool in which one file has so many.
const fn pool_mib(of_a_file: u32) -> u32 {
    let (from, lanes) = LANES_FROM;
    if of_a_file * lanes >= from { of_a_file * lanes } else { of_a_file }
}

/// MiB that stand for a GB of the paper.
fn gb_mib(scale: Scale) -> u32 {
    match scale {
        Scale::SMOKE => 8,
        _ => 64,
    }
}

/// Whether this machine can have it.
fn is_there(subject: &Subject) -> bool {
    match (subject.storage)(1) {
        Storage::MemoryDisk(file_system) => file_system.is_there(),
        _ => true,
    }
}

/// Fig. 4.
pub(crate) fn commands_logged(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let missing = absent(&PROGRAMS);
    anyhow::ensure!(missing.is_empty(), "no {}: {REMEDY}", missing.join(" and "));
    anyhow::ensure!(absent(&["mkfs.xfs"]).is_empty(), "no mkfs.xfs: apt-get install xfsprogs");
    let mut subjects: Vec<Subject> = SUBJECTS.into_iter().filter(is_there).collect();
    let labels: Vec<&str> = subjects.iter().map(|subject| subject.label).collect();
    let log_bytes = log_bytes(scale);
    let rounds = scale.rounds.min(ROUNDS_MAX);
    let taken = in_turn(rounds, &mut subjects, |subject| alone(*subject, gb_mib(scale), log_bytes))?;
    let mut samples = Samples::of(labels.iter().copied());
    for (nth, size) in SIZES.into_iter().enumerate() {
        let of_size = |rounds: &Vec<Vec<f64>>| rounds.iter().map(|sizes| sizes[nth]).collect();
        samples.add(&bytes_in_words(size.into()), labels.iter().copied(), taken.iter().map(of_size).collect());
    }
    Ok(vec![figure(scale, &samples)])
}

/// Bytes of the values of a sample: as many as the largest cache has room for.
fn log_bytes(scale: Scale) -> u32 {
    (4 * gb_mib(scale)) << 20
}

/// Commands in a second by the size of values, of a server that is the only one there.
fn alone(subject: Subject, gb_mib: u32, log_bytes: u32) -> anyhow::Result<Vec<f64>> {
    let server = Server::start((subject.storage)(gb_mib), Policy::Always)?;
    let write_back = || server.testbed().mount().map_or(Ok(()), |mount| mount.flush());
    let sample = |value_bytes: u32| {
        let load = Load { clients: CLIENTS, pipeline: 1, commands: log_bytes / value_bytes, value_bytes };
        let per_second = server.load(load)?.per_second;
        write_back()?;
        Ok(per_second)
    };
    // Memory of the pool and of the block device is there once it was written to.
    sample(SIZES[SIZES.len() - 1])?;
    SIZES.into_iter().map(sample).collect()
}

fn figure(scale: Scale, samples: &Samples<f64>) -> Figure {
    let title = "Redis SET by the size of values, appendfsync always";
    let empty = frame("cheetah-fig-4", "", title, "SET/s", EXT4);
    let mut figure = Figure { paper: "Cheetah, Fig. 4".to_owned(), ..empty };
    figure.series = samples.series(|per_second| *per_second, &[]);
    let gb = gb_mib(scale);
    figure.notes.push(format!(
        "{CLIENTS} clients of redis-benchmark without a pipeline, on the same cores. Each server runs alone, all in turn. The cache is the part of a pool in \
         memory that one file can have: {gb}, {} and {} MiB for the paper's 1, 2 and 4 GB. A sample logs values of {} MiB, as much as the largest cache has \
         room for; the paper does not tell how much it writes. What is left in the pool is written back before the next sample.",
        2 * gb,
        4 * gb,
        log_bytes(scale) >> 20
    ));
    let [small, medium, large] = CACHES;
    let mean = |over: &str, under: &str, paper: &str| mean_in_words(&figure, over, under, paper);
    let means = [
        mean(large, EXT4, "2.9"),
        mean(large, XFS, "4.2"),
        mean(medium, small, "1.46"),
        mean(large, medium, "1.27"),
        mean(MEMORY, EXT4, "nothing"),
        mean(MEMORY, XFS, "nothing"),
    ];
    figure.notes.push(format!(
        "Means over the sizes of values: {}.",
        means.into_iter().flatten().collect::<Vec<_>>().join("; ")
    ));
    figure.notes.push(
        "Below the pool is Ext4 on a block device in memory, which is beside it alone, and XFS. The paper's Ext4-DAX, XFS-DAX and NOVA are not here: the \
         kernel has no memory for DAX. In /dev/shm a sync does nothing."
            .to_owned(),
    );
    figure
}

/// How `over` stands to `under` in the mean, with what the paper tells.
fn mean_in_words(figure: &Figure, over: &str, under: &str, paper: &str) -> Option<String> {
    let ratio = figure.mean_quotient(over, under)?;
    Some(format!("{over} has {ratio:.2} times {under}'s (the paper tells {paper})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_room_of_its_cache_whatever_the_lanes() {
        assert_eq!([16, 32, 64, 128, 256].map(pool_mib), [16, 32, 256, 512, 1024]);
        assert_eq!((log_bytes(Scale::SMOKE), log_bytes(Scale::FULL)), (32 << 20, 256 << 20));
    }
}
