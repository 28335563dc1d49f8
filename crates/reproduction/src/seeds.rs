//! Where the pseudorandom choices of each experiment come from, as its report says.

/// Threads that write to a subject at random.
pub(crate) const WRITERS: &str = "writer w in round r: 0x9e3779b97f4a7c15 × (r + 1) + (w << 32)";

/// Clients of databases and servers.
pub(crate) const CLIENTS: &str = "the numbers of the clients' threads; RocksDB's benchmark chooses its own";

/// Jobs on the virtual cores of the paper's platform.
pub(crate) const JOBS: &str = "cores 1; job j: j << 32";

/// Users of a disk cache on virtual cores.
pub(crate) const USERS: &str = "cores 1; user u: u + 7";

/// The one user whose work is counted.
pub(crate) const ONE_USER: &str = "7";

/// Users beside destaging.
pub(crate) const USERS_OF_PACE: &str = "cores 1; user u: u + 3";

/// A file system's clients.
pub(crate) const FILES: &str = "11";

/// A file system's clients on virtual cores.
pub(crate) const FILES_ON_CORES: &str = "cores 1; files 11";

/// Threads of Filebench's personalities.
pub(crate) const OF_THREADS: &str = "the thread's number";

/// Rows of TeraGen.
pub(crate) const OF_TERAGEN: &str = "none: TeraGen's rows follow from their numbers";

/// Files of TestDFSIO.
pub(crate) const OF_DFSIO: &str = "none: TestDFSIO writes fifty bytes again and again";

/// Threads that write to a file at random.
pub(crate) const FILE_WRITERS: &str = "thread t in the n-th sample: (n << 8) + t";

/// Clients of Redis.
pub(crate) const OF_REDIS: &str = "none: redis-benchmark sets one key";

/// Synthetic traces.
pub(crate) const WORKLOADS: &str = "constants of each workload, in the experiment's source";

/// Images after a power cut, of which every one is opened.
pub(crate) const EVERY_IMAGE: &str = "none: every image is tried";

/// Only bytes are counted.
pub(crate) const NOTHING: &str = "none: nothing is random";
