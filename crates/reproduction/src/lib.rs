//! The experiments of the papers, repeated with Tidegate and its rivals behind the same traits.
//!
//! Each experiment yields figures ([`figure`]), one file each in the folder of a run, so that a run
//! that was interrupted goes on where it was; [`page`] draws the figures that are there. What is
//! compared runs in turn within one process, over and over, so that a machine that slows down meets
//! all of it alike. The medium is memory of this machine made as slow as Optane
//! ([`tidegate_media::emulate`]): the figures tell order and ratio, not the paper's microseconds.

#![forbid(unsafe_code)]

pub mod caiti;
#[cfg(not(virtual_cores))]
pub mod clusters;
pub mod figure;
#[cfg(not(virtual_cores))]
pub mod hybrid;
pub mod kernel;
pub mod keys;
#[cfg(not(virtual_cores))]
pub mod mounted;
#[cfg(not(virtual_cores))]
pub mod nbd_export;
#[cfg(not(virtual_cores))]
pub mod page;
pub mod personalities;
#[cfg(not(virtual_cores))]
pub mod placement;
pub mod recorded;
mod running;
mod seeds;
pub mod tinca;
#[cfg(not(virtual_cores))]
pub mod verdicts;

use figure::{Figure, Provenance};
pub use running::{figures_in, run};
use serde::{Deserialize, Serialize};
use tidegate_measure::machine::Machine;
use tidegate_measure::medium::WALK_BYTES;

/// The blocks written to over the cache of those that have one, unless its size is what the
/// experiment varies. In the paper 512 MiB of 64 GB.
const BLOCKS_OVER_CACHE: u64 = 16;

/// How long an experiment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Samples of each point.
    pub rounds: u16,
    /// Requests of a sample.
    pub requests: u32,
    /// Bytes of the blocks written to.
    pub walk_bytes: u64,
    /// The largest cache or burst of writes, in bytes, where that is varied.
    pub bytes_max: u64,
}

impl Scale {
    /// Seconds for each point.
    pub const FULL: Scale = Scale { rounds: 9, requests: 400_000, walk_bytes: WALK_BYTES, bytes_max: 512 << 20 };
    /// A look at everything within two minutes: intervals are wide.
    pub const QUICK: Scale = Scale { rounds: 3, requests: 10_000, walk_bytes: WALK_BYTES / 4, bytes_max: 32 << 20 };
    /// Whether each experiment runs: what it measures means nothing, and no verdict rests on it.
    pub const SMOKE: Scale = Scale { rounds: 1, requests: 2_000, walk_bytes: 32 << 20, bytes_max: 16 << 20 };
}

impl Scale {
    /// The scale that these options ask for, the smallest of them.
    pub fn of_options(smoke: bool, quick: bool) -> Scale {
        match (smoke, quick) {
            (true, _) => Scale::SMOKE,
            (false, true) => Scale::QUICK,
            (false, false) => Scale::FULL,
        }
    }

    /// The option of `bench experiments` that asks for it.
    fn option(self) -> Option<&'static str> {
        match self {
            Scale::QUICK => Some("--quick"),
            Scale::SMOKE => Some("--smoke"),
            _ => None,
        }
    }

    fn cache_bytes(self) -> u64 {
        self.walk_bytes / BLOCKS_OVER_CACHE
    }
}

/// What an experiment runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Threads of this machine, over memory made as slow as Optane.
    Threads,
    /// Programs on a file system on the subject; needs root, loop devices and FUSE.
    Programs,
    /// Programs with their files in mounts, on the disk below these and in memory; needs root, FUSE
    /// and a disk.
    Files,
    /// The paper's platform, in virtual time; needs this program built for virtual cores.
    VirtualCores,
    /// What programs asked of a device while they ran here, on that platform; needs what both do.
    Recorded,
    /// Replays of traces, counted, in virtual time on no cores.
    Replay,
}

/// An experiment of the paper.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// What it runs on.
    pub driver: Driver,
    measure: fn(Scale) -> anyhow::Result<Vec<Figure>>,
    /// What its pseudorandom choices come from.
    seed: &'static str,
    /// The figures it yields.
    pub figures: &'static [&'static str],
}

impl Experiment {
    /// How its figures come about at `scale`, here.
    fn provenance(&self, scale: Scale) -> Provenance {
        let option = scale.option().map_or(String::new(), |option| format!(" {option}"));
        let machine = Machine::this();
        Provenance {
            command: format!("cargo run --release -p tidegate-bench -- experiments {}{option}", self.name),
            machine: match self.driver {
                Driver::Threads | Driver::Programs | Driver::Files => machine.to_string(),
                Driver::VirtualCores => format!("virtual cores in virtual time, computed on {machine}"),
                Driver::Recorded => format!("virtual cores in virtual time, after programs that ran on {machine}"),
                Driver::Replay => format!("counts and virtual time, computed on {machine}"),
            },
            seed: self.seed.to_owned(),
            scale: Some(scale),
        }
    }

    /// Whether it made `figures`, as it says, and measured something for each of their series.
    fn check(&self, figures: &[Figure], scale: Scale) -> anyhow::Result<()> {
        let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
        anyhow::ensure!(ids == self.figures, "{} made {ids:?}, not {:?}", self.name, self.figures);
        for (figure, series) in figures.iter().flat_map(|figure| figure.series.iter().map(move |one| (figure, one))) {
            let is_there = !series.points.is_empty();
            // The smallest scale is there to see that all of it is measured.
            let is_judged = scale == Scale::SMOKE && self.driver == Driver::Threads;
            let is_something = !is_judged || series.points.iter().all(|point| point.median > 0.0);
            anyhow::ensure!(is_there && is_something, "{}: {} lacks values: {series:?}", self.name, figure.id);
        }
        Ok(())
    }
}

/// Every experiment. Built for virtual cores, it lacks most of those that run elsewhere, for a
/// small build.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "staging-cost",
        about: "time of a random write with and without a flush every 128 writes (Caiti Fig. 2a)",
        driver: Driver::Threads,
        measure: caiti::staging_cost,
        seed: seeds::WRITERS,
        figures: &["fig-2a"],
    },
    Experiment {
        name: "flush",
        about: "time of a flush after so many bytes of random writes (Caiti Fig. 2b)",
        driver: Driver::Threads,
        measure: caiti::flush_times,
        seed: seeds::WRITERS,
        figures: &["fig-2b"],
    },
    Experiment {
        name: "windows",
        about: "the slowest of each 100 requests in a window of 50,000 (Caiti Fig. 2c-e, 5b)",
        driver: Driver::Threads,
        measure: caiti::windows,
        seed: seeds::WRITERS,
        figures: &["fig-2c-e-5b"],
    },
    Experiment {
        name: "writers",
        about: "time per request and 99.99th percentile, one and two writers (Caiti Fig. 5a, 5d, 5e)",
        driver: Driver::Threads,
        measure: caiti::writers,
        seed: seeds::WRITERS,
        figures: &["fig-5a", "fig-5d"],
    },
    Experiment {
        name: "capacity",
        about: "time per request over the size of the cache (Caiti Table 1)",
        driver: Driver::Threads,
        measure: caiti::capacity,
        seed: seeds::WRITERS,
        figures: &["table-1"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "store",
        about: "RocksDB on Ext4 on each subject (Caiti Fig. 8)",
        driver: Driver::Programs,
        measure: caiti::applications::store,
        seed: seeds::CLIENTS,
        figures: &["fig-8a-rocksdb", "fig-8b-rocksdb", "fig-8c-rocksdb"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "leveldb",
        about: "LevelDB's own workloads on Ext4 on each subject (Caiti Fig. 8)",
        driver: Driver::Programs,
        measure: caiti::ycsb::leveldb,
        seed: seeds::CLIENTS,
        figures: &["fig-8a", "fig-8b", "fig-8c", "fig-8d"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "ycsb",
        about: "YCSB's load, A and F over LevelDB on Ext4 on each subject (Caiti Fig. 9)",
        driver: Driver::Programs,
        measure: caiti::ycsb::ycsb,
        seed: seeds::CLIENTS,
        figures: &["fig-9a", "fig-9b", "fig-9c", "fig-9d"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "servers",
        about: "Filebench's personalities on Ext4 on each subject (Caiti Fig. 10)",
        driver: Driver::Programs,
        measure: caiti::applications::servers,
        seed: seeds::CLIENTS,
        figures: &["fig-10a", "fig-10b"],
    },
    Experiment {
        name: "platform-staging-cost",
        about: "the same as staging-cost on the paper's platform",
        driver: Driver::VirtualCores,
        measure: caiti::platform::staging_cost,
        seed: seeds::JOBS,
        figures: &["platform-fig-2a-told", "platform-fig-2a-fitted"],
    },
    Experiment {
        name: "platform-flush",
        about: "the same as flush on the paper's platform",
        driver: Driver::VirtualCores,
        measure: caiti::platform::flush_times,
        seed: seeds::JOBS,
        figures: &["platform-fig-2b-told", "platform-fig-2b-fitted"],
    },
    Experiment {
        name: "platform-windows",
        about: "response times in windows of 50,000 and 1,000,000 requests (Caiti Fig. 2c-e, 3, 5b, 5c)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::windows,
        seed: seeds::JOBS,
        figures: &["platform-fig-2c-e-5b-fitted", "platform-fig-3-5c-fitted"],
    },
    Experiment {
        name: "platform-depth",
        about: "time per request and 99.99th percentile over the depth (Caiti Fig. 5a, 5d)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::depth,
        seed: seeds::JOBS,
        figures: &["platform-fig-5a-told", "platform-fig-5d-told", "platform-fig-5a-fitted", "platform-fig-5d-fitted"],
    },
    Experiment {
        name: "platform-jobs",
        about: "time per request over the number of jobs (Caiti Fig. 5e)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::jobs,
        seed: seeds::JOBS,
        figures: &["platform-fig-5e-told", "platform-fig-5e-fitted"],
    },
    Experiment {
        name: "platform-capacity",
        about: "time per request over the size of the cache (Caiti Table 1)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::capacity,
        seed: seeds::JOBS,
        figures: &["platform-table-1-told", "platform-table-1-fitted"],
    },
    Experiment {
        name: "platform-inside",
        about: "where the time of writes and reads goes (Caiti Fig. 6)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::inside::breakdown,
        seed: seeds::JOBS,
        figures: &[
            "platform-fig-6a-told",
            "platform-fig-6b-told",
            "platform-fig-6c-told",
            "platform-fig-6d-told",
            "platform-fig-6a-fitted",
            "platform-fig-6b-fitted",
            "platform-fig-6c-fitted",
            "platform-fig-6d-fitted",
            "platform-stalls",
        ],
    },
    Experiment {
        name: "platform-timeline",
        about: "a hundred writes one after the other (Caiti Fig. 7)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::inside::timeline,
        seed: seeds::JOBS,
        figures: &["platform-fig-7-caiti-fitted", "platform-fig-7-btt-fitted"],
    },
    Experiment {
        name: "platform-programs",
        about: "LevelDB's and Filebench's requests, recorded, on the paper's platform (Caiti Fig. 8 to 10)",
        driver: Driver::Recorded,
        measure: caiti::platform::programs::programs,
        seed: seeds::CLIENTS,
        figures: &[
            "platform-fig-8a-fitted",
            "platform-fig-8b-fitted",
            "platform-fig-9c-fitted",
            "platform-fig-10a-fitted",
        ],
    },
    Experiment {
        name: "metadata",
        about: "bytes of metadata for each slot (Caiti § 5.1)",
        driver: Driver::Threads,
        measure: caiti::platform::inside::metadata,
        seed: seeds::NOTHING,
        figures: &["metadata"],
    },
    Experiment {
        name: "platform-reasons",
        about: "what explains the differences to the paper, one fitted number after the other",
        driver: Driver::VirtualCores,
        measure: caiti::platform::reasons,
        seed: seeds::JOBS,
        figures: &["platform-reasons"],
    },
    Experiment {
        name: "platform-cores",
        about: "what cores without a writer do for two writers",
        driver: Driver::VirtualCores,
        measure: caiti::platform::cores,
        seed: seeds::JOBS,
        figures: &["platform-cores"],
    },
    Experiment {
        name: "platform-wear",
        about: "writes of each block and their time, with wear levelled and without (what Caiti leaves to others)",
        driver: Driver::VirtualCores,
        measure: caiti::platform::wear::levelling,
        seed: seeds::JOBS,
        figures: &["wear-most", "wear-time", "wear-uniform", "wear-zipfian", "wear-hot-spot", "wear-one-alone"],
    },
    Experiment {
        name: "cache-mix",
        about: "random reads and writes on the disk cache and on Classic (Tinca Fig. 7a)",
        driver: Driver::VirtualCores,
        measure: tinca::mixes,
        seed: seeds::USERS,
        figures: &["tinca-fig-7a", "tinca-fig-7a-disk", "tinca-fig-7a-jobs"],
    },
    Experiment {
        name: "cache-counts",
        about: "lines flushed and disk blocks written of the same (Tinca Fig. 7b, 7c)",
        driver: Driver::Threads,
        measure: tinca::counts,
        seed: seeds::ONE_USER,
        figures: &["tinca-fig-7b", "tinca-fig-7c"],
    },
    Experiment {
        name: "cache-transactions",
        about: "TPC-C's transactions on the disk cache and on Classic (Tinca Fig. 8)",
        driver: Driver::VirtualCores,
        measure: tinca::transactions,
        seed: seeds::USERS,
        figures: &["tinca-fig-8a", "tinca-fig-8b", "tinca-fig-8c"],
    },
    Experiment {
        name: "cache-parts",
        about: "what Classic's journal, flushes and metadata cost it (Tinca Fig. 3b, 4)",
        driver: Driver::VirtualCores,
        measure: tinca::ablations::ablations,
        seed: seeds::USERS,
        figures: &["tinca-fig-3b", "tinca-fig-4"],
    },
    Experiment {
        name: "cache-files",
        about: "what a journal adds to Filebench's writes (Tinca Fig. 3a)",
        driver: Driver::Threads,
        measure: tinca::files::files,
        seed: seeds::FILES,
        figures: &["tinca-fig-3a"],
    },
    Experiment {
        name: "cache-file-speed",
        about: "rounds of Filebench in a second, and the blocks of a transaction at that speed (Tinca Fig. 13)",
        driver: Driver::VirtualCores,
        measure: tinca::file_speed::transactions,
        seed: seeds::FILES_ON_CORES,
        figures: &["tinca-fig-13-speed", "tinca-fig-13"],
    },
    Experiment {
        name: "cache-grounds",
        about: "TPC-C on other disks and memories, and how often its writes hit (Tinca Fig. 12)",
        driver: Driver::VirtualCores,
        measure: tinca::other_media::other_media,
        seed: seeds::USERS,
        figures: &["tinca-fig-12a", "tinca-fig-12a-disk", "tinca-fig-12b", "tinca-fig-12c"],
    },
    Experiment {
        name: "cache-pace",
        about: "what writers feel of destaging, below the disk's speed and above",
        driver: Driver::VirtualCores,
        measure: tinca::destage_latency::destage_latency,
        seed: seeds::USERS_OF_PACE,
        figures: &["tinca-pace", "tinca-pace-above"],
    },
    Experiment {
        name: "cache-recovery",
        about: "power cuts and kills at every instant of a transaction (Tinca § 5.1)",
        driver: Driver::Replay,
        measure: tinca::recovery::recovery,
        seed: seeds::EVERY_IMAGE,
        figures: &["tinca-recovery"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "cluster-files",
        about: "Filebench on GlusterFS, with bricks on mounts, on ext4 and in memory (Tinca Fig. 11, 13)",
        driver: Driver::Files,
        measure: clusters::filebench::personalities,
        seed: seeds::OF_THREADS,
        figures: &[
            "tinca-fig-11a",
            "tinca-fig-11a-settled",
            "tinca-fig-11b",
            "tinca-fig-11c",
            "tinca-fig-13-cluster",
            "tinca-fig-11-syncs",
            "tinca-fig-11-sync-time",
            "tinca-fig-11-bytes",
        ],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "cluster-teragen",
        about: "TeraGen on HDFS, with data nodes on mounts, on ext4 and in memory (Tinca Fig. 10)",
        driver: Driver::Files,
        measure: clusters::teragen::replicas,
        seed: seeds::OF_TERAGEN,
        figures: &["tinca-fig-10a", "tinca-fig-10a-settled", "tinca-fig-10b", "tinca-fig-10c"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "cluster-dfsio",
        about: "TestDFSIO on HDFS, with data nodes on mounts, on ext4 and in memory (beyond the papers)",
        driver: Driver::Files,
        measure: clusters::dfsio::replicas,
        seed: seeds::OF_DFSIO,
        figures: &[
            "tinca-dfsio-write",
            "tinca-dfsio-write-job",
            "tinca-dfsio-write-settled",
            "tinca-dfsio-read",
            "tinca-dfsio-sync-time",
            "tinca-dfsio-syncs",
            "tinca-dfsio-disk",
        ],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "hybrid-interfaces",
        about: "random writes by stores and by requests to a disk (hybrid page cache Fig. 3.2)",
        driver: Driver::Files,
        measure: hybrid::interfaces::interfaces_compared,
        seed: seeds::FILE_WRITERS,
        figures: &["hybrid-fig-3-2", "hybrid-fig-3-2-cpu", "hybrid-fig-3-2-2", "hybrid-fig-3-2-cpu-2"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "hybrid-syncs",
        about: "fdatasync of dirty pages beside cached ones (hybrid page cache Fig. 5.1)",
        driver: Driver::Files,
        measure: hybrid::writeback::syncs,
        seed: seeds::NOTHING,
        figures: &[
            "hybrid-fig-5-1-dirty",
            "hybrid-fig-5-1-dirty-whole",
            "hybrid-fig-5-1-mapped",
            "hybrid-fig-5-1-mapped-whole",
            "hybrid-fig-5-1-cpu",
            "hybrid-fig-5-1-cached",
        ],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "hybrid-writes",
        about: "random writes with an fsync each (hybrid page cache Fig. 5.2)",
        driver: Driver::Files,
        measure: hybrid::synced_writes::writes,
        seed: seeds::FILE_WRITERS,
        figures: &["hybrid-fig-5-2", "hybrid-fig-5-2-cpu", "hybrid-fig-5-2-2", "hybrid-fig-5-2-cpu-2"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "hybrid-redis",
        about: "Redis SET by policy and pipeline (hybrid page cache Fig. 5.3 to 5.6)",
        driver: Driver::Files,
        measure: hybrid::redis::commands_logged,
        seed: seeds::OF_REDIS,
        figures: &["hybrid-fig-5-3", "hybrid-fig-5-4", "hybrid-fig-5-5", "hybrid-fig-5-6"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-dd",
        about: "time and hits of dd, looping to random 1 to 10 (UHNVM Fig. 8, 9)",
        driver: Driver::Replay,
        measure: placement::uhnvm::dd,
        seed: seeds::WORKLOADS,
        figures: &["uhnvm-fig-8", "uhnvm-fig-9"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-units",
        about: "throughput of a loop and random access by size of request (UHNVM Fig. 10)",
        driver: Driver::Replay,
        measure: placement::uhnvm::units,
        seed: seeds::WORKLOADS,
        figures: &["uhnvm-fig-10a", "uhnvm-fig-10b"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-proportions",
        about: "time and hits over the share of NVM (UHNVM Fig. 11, 12)",
        driver: Driver::Replay,
        measure: placement::uhnvm::proportions,
        seed: seeds::WORKLOADS,
        figures: &["uhnvm-fig-11a", "uhnvm-fig-12a", "uhnvm-fig-11b", "uhnvm-fig-12b"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-sizes",
        about: "hits over the size of the cache (UHNVM Fig. 13)",
        driver: Driver::Replay,
        measure: placement::uhnvm::sizes,
        seed: seeds::WORKLOADS,
        figures: &["uhnvm-fig-13", "uhnvm-fig-13-time"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-syncs",
        about: "synchronous writes among reads, with UHNVM's rules and Tidegate's exception",
        driver: Driver::Replay,
        measure: placement::uhnvm::syncs,
        seed: seeds::WORKLOADS,
        figures: &["uhnvm-syncs", "uhnvm-syncs-written"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-shifts",
        about: "a program that goes on to other files, phase by phase",
        driver: Driver::Replay,
        measure: placement::uhnvm::shifts,
        seed: seeds::WORKLOADS,
        figures: &["placement-shifts", "placement-shifts-time"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-blocks",
        about: "what blocks by size of the write save, and the size of DRAM (Cheetah Fig. 3, § 3.2)",
        driver: Driver::Replay,
        measure: placement::cheetah::block_sizes,
        seed: seeds::WORKLOADS,
        figures: &["cheetah-amplification", "cheetah-fig-3", "cheetah-fig-3-dram"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-threshold",
        about: "what the threshold of migration brings to DRAM (Cheetah § 3.1)",
        driver: Driver::Replay,
        measure: placement::cheetah::thresholds,
        seed: seeds::WORKLOADS,
        figures: &["cheetah-threshold", "cheetah-threshold-moved", "cheetah-threshold-time"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-programs",
        about: "synchronous writes beside Ext4 and XFS in memory (Cheetah Fig. 3)",
        driver: Driver::Files,
        measure: placement::programs::synchronous,
        seed: seeds::FILE_WRITERS,
        figures: &["cheetah-fig-3-files"],
    },
    #[cfg(not(virtual_cores))]
    Experiment {
        name: "placement-redis",
        about: "Redis with a log always synced, beside Ext4 and XFS in memory (Cheetah Fig. 4)",
        driver: Driver::Files,
        measure: placement::redis::commands_logged,
        seed: seeds::OF_REDIS,
        figures: &["cheetah-fig-4"],
    },
    Experiment {
        name: "platform-tried",
        about: "what was tried against Caiti as published",
        driver: Driver::VirtualCores,
        measure: caiti::platform::improvements,
        seed: seeds::JOBS,
        figures: &[
            "platform-tried-told",
            "platform-tried-tail-told",
            "platform-tried-fitted",
            "platform-tried-tail-fitted",
        ],
    },
];
