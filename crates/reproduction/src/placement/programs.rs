//! Cheetah's Fig. 3 with a program: synchronous writes on the direct path and on file systems in
//! memory.
//!
//! The paper has Ext4 and XFS on Optane used as a disk, and with DAX; here they lie on block
//! devices in memory. Its NOVA and its DAX are not here: the kernel of this machine has neither.

use crate::Scale;
use crate::figure::{Figure, bytes_in_words};
use crate::hybrid::writer::{Task, Writer};
use crate::hybrid::{DIRECT, MEMORY, MOUNT, Samples, Subject, disk_is_there, frame, in_turn};
use tidegate_measure::testbed::disk::FileSystem;
use tidegate_measure::testbed::{Storage, absent};

/// File systems on block devices in memory, as figures call them.
pub(crate) const EXT4: &str = "Ext4";
pub(crate) const XFS: &str = "XFS";

/// Bytes of a write.
const SIZES: [u64; 5] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];
/// The paper's ratio to both file systems.
pub(crate) const PUBLISHED: f64 = 2.1;

/// MiB of a pool with room for the files: one lies in one of four lanes.
const POOL_MIB: u32 = 4096;
/// Samples of a subject at most.
const ROUNDS_MAX: u16 = 5;

/// What is compared.
const SUBJECTS: [Subject; 5] = [
    Subject { label: DIRECT, storage: Storage::Direct },
    Subject { label: MOUNT, storage: Storage::Mount },
    Subject { label: EXT4, storage: |_| Storage::MemoryDisk(FileSystem::Ext4) },
    Subject { label: XFS, storage: |_| Storage::MemoryDisk(FileSystem::Xfs) },
    Subject { label: MEMORY, storage: |_| Storage::Memory },
];

/// Those that this machine can have.
fn subjects() -> Vec<Subject> {
    let is_there = |subject: &Subject| match (subject.storage)(POOL_MIB) {
        Storage::MemoryDisk(file_system) => file_system.is_there(),
        _ => true,
    };
    SUBJECTS.into_iter().filter(is_there).collect()
}

/// Fig. 3.
pub(crate) fn synchronous(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    anyhow::ensure!(absent(&["mkfs.xfs"]).is_empty(), "no mkfs.xfs: apt-get install xfsprogs");
    let (bytes, milliseconds) = match scale {
        Scale::FULL => (128 << 20, 300),
        Scale::SMOKE => (4 << 20, 1),
        _ => (64 << 20, 100),
    };
    let subjects = subjects();
    let labels = || subjects.iter().map(|subject| subject.label);
    let start = |subject: &Subject| Writer::start(*subject, POOL_MIB, bytes, 10 * milliseconds);
    let mut writers = subjects.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut samples = Samples::of(labels());
    // The memory that a lease is given is mapped when it is first written to.
    let warm = Task::Random { bytes: SIZES[0], threads: 1, milliseconds: 10 * milliseconds };
    writers.iter_mut().try_for_each(|writer| writer.sample(warm, SIZES[0]).map(drop))?;
    for bytes in SIZES {
        let task = Task::Random { bytes, threads: 1, milliseconds };
        let taken = in_turn(scale.rounds.min(ROUNDS_MAX), &mut writers, |writer| {
            let sample = writer.sample(task, bytes)?;
            writer.write_back()?;
            Ok(sample)
        })?;
        samples.add(&bytes_in_words(bytes), labels(), taken);
    }
    let title = "Random writes with an fsync each, one thread";
    let empty = frame("cheetah-fig-3-files", "", title, "MiB/s", EXT4);
    let mut figure = Figure { paper: "Cheetah, Fig. 3".to_owned(), ..empty };
    let sizes = SIZES.map(bytes_in_words);
    let published: Vec<(&str, &str, f64)> = sizes.iter().map(|size| (DIRECT, size.as_str(), PUBLISHED)).collect();
    figure.series = samples.series(|sample| sample.mib_per_second, &published);
    figure.notes.push(
        "pwrite and fsync of a file of 64 MiB, 128 MiB in the full form; the paper has fio, and does not tell its engine. In /dev/shm an fsync does nothing. Every policy of \
         placement, Cheetah's too, has synchronous writes go to the pool: what is measured is the way there. \
         What a mount writes back to its disk later is in no sample."
            .to_owned(),
    );
    if let Some(absent) = SUBJECTS.iter().find(|subject| labels().all(|label| label != subject.label)) {
        figure.notes.push(format!("{} is not there: the kernel of this machine has not loaded it.", absent.label));
    }
    Ok(vec![figure])
}

/// The places of the figure.
pub(crate) fn places() -> [String; 5] {
    SIZES.map(bytes_in_words)
}
