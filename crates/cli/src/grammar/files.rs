//! Commands about files of programs: run a program, show its files, recover its pool.

use super::values::{ByteRange, byte_range, glob, policies, sandbox_wishes, size};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use tidegate_file_wire::FRAMES_MAX;
use tidegate_policy::placement::NamedPlacement;
use tidegate_sandbox::SandboxWish;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Run {
    /// The pool: a file in persistent memory (on a DAX file system), or a DAX device; created if
    /// absent [default: one in the user's state directory, named after DIR]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pool: Option<PathBuf>,

    /// A TOML file with the keys pool, size, dram, read_cache, pin_max, policy, upgrade_mappings,
    /// bypass, context_frames, root, no_busy_poll and sandbox. Flags win over the file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Bytes of a pool that is created: 64M, 1G [default: 1G]
    #[arg(long, alias = "pool-size", value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,

    /// Most bytes of DRAM for blocks of writes that are not synced yet, of each mount that the run
    /// begins [default: 256M, and at most half of /dev/shm]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) dram: Option<u64>,

    /// Most bytes of DRAM in which each process of the program keeps what it read of files that it
    /// has leases of; 0: it keeps nothing [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) read_cache: Option<u64>,

    /// Most bytes of the pool of each such mount that all programs together may pin by mlock
    /// [default: an eighth of the pool]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) pin_max: Option<u64>,

    /// How the pool of each such mount chooses the data that it caches for reading [default:
    /// tidegate]
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<NamedPlacement>,

    /// Have shared mappings of files that the program syncs again and again show pages of the pool
    /// in place of the kernel's: then msync needs no request. For programs that do not ask for
    /// direct mappings by themselves
    #[arg(long, conflicts_with = "is_indirect")]
    pub(crate) upgrade_mappings: bool,

    /// Files that bypass the pool: writes and syncs go to the files below. A name with * and ? in
    /// it, or a path from the root on, with ** for any folders; repeatable
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) bypass: Vec<String>,

    /// How many functions of a call stack, from the innermost one on, make up the program context
    /// by which a policy distinguishes accesses: 1 to 8 [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(FRAMES_MAX)))]
    pub(crate) context_frames: Option<u32>,

    /// A directory that is mounted over itself for the run, unless it is in a mount already;
    /// repeatable [default: the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Vec<PathBuf>,

    /// Record each read and write of a file in a root, with its program context, to a new file, for
    /// `bench replay`. What programs do by mappings is not recorded
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "is_indirect")]
    pub(crate) trace: Option<PathBuf>,

    /// Mount for the program alone. Until the run ends, other processes see the files below, which
    /// may be older, and must not change them. It needs root
    #[arg(long = "private")]
    pub(crate) is_private: bool,

    /// Do not load the library of the direct path into the program: each sync is a request to the
    /// mount
    #[arg(long = "no-direct")]
    pub(crate) is_indirect: bool,

    /// Once everything is open, have the server of each such mount give up system calls and
    /// capabilities that it never needs. auto: if the kernel cannot do this, serve without it and
    /// warn; on: refuse to mount [default: auto]
    #[arg(long, value_name = "WHEN", value_parser = sandbox_wishes())]
    pub(crate) sandbox: Option<SandboxWish>,

    /// Never poll for a program's next request, as on a machine that needs its processors for other
    /// work: each request then wakes a thread. Without this, a thread polls for up to 50 µs while a
    /// processor is idle and requests come more quickly so
    #[arg(long)]
    pub(crate) no_busy_poll: bool,

    /// Run even if the pool is not persistent memory: a power loss then takes what programs synced
    /// last
    #[arg(long = "try")]
    pub(crate) is_trial: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments, required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Mount {
    /// The directory whose files are shown
    #[arg(value_name = "SOURCE", value_hint = ValueHint::DirPath, required_unless_present = "config", conflicts_with = "config")]
    pub(crate) source: Option<PathBuf>,

    /// An empty directory where they are shown, or SOURCE itself
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath, required_unless_present = "config", conflicts_with = "config")]
    pub(crate) mountpoint: Option<PathBuf>,

    /// A TOML file with mounts, in place of SOURCE and MOUNTPOINT. Flags win over the file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Which mount of the file is meant [default: the only one]
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) name: Option<String>,

    /// The pool: a file in persistent memory (on a DAX file system), or a DAX device; created if
    /// absent [default: one in the user's state directory, named after SOURCE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pool: Option<PathBuf>,

    /// Bytes of a pool that is created: 64M, 1G [default: 1G]
    #[arg(long, alias = "size", value_name = "SIZE", value_parser = size)]
    pub(crate) pool_size: Option<u64>,

    /// Most bytes of DRAM for blocks of writes that are not synced yet, from 1M on; what exceeds
    /// them goes to the pool first [default: 256M, and at most half of /dev/shm]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) dram: Option<u64>,

    /// Most bytes of the pool that all programs together may pin by mlock [default: an eighth of
    /// the pool]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) pin_max: Option<u64>,

    /// How the pool chooses the data of SOURCE that it caches for reading [default: tidegate]
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<NamedPlacement>,

    /// Files that bypass the pool: writes and syncs go to SOURCE. A name with * and ? in it, or a
    /// path from SOURCE on, with ** for any folders; repeatable
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) bypass: Vec<String>,

    /// Mount even if the pool is not persistent memory: a power loss then takes what programs
    /// synced last
    #[arg(long = "try")]
    pub(crate) is_trial: bool,

    /// Once everything is open, have the server of the mount give up system calls and capabilities
    /// that it never needs. auto: if the kernel cannot do this, serve without it and warn; on:
    /// refuse to mount [default: auto]
    #[arg(long, value_name = "WHEN", value_parser = sandbox_wishes())]
    pub(crate) sandbox: Option<SandboxWish>,

    /// Never poll for a program's next request, as on a machine that needs its processors for other
    /// work: each request then wakes a thread. Without this, a thread polls for up to 50 µs while a
    /// processor is idle and requests come more quickly so
    #[arg(long)]
    pub(crate) no_busy_poll: bool,

    /// If SOURCE belongs to another pool, mount all the same: what only that pool has is lost
    #[arg(long)]
    pub(crate) discard_former_pool: bool,

    /// Leave the terminal's session
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Umount {
    /// Where `tidegate mount` shows files. If programs use them, the command names the programs
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,

    /// Unmount for new programs at once, and wait for those that use files
    #[arg(long)]
    pub(crate) lazy: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The pool of a mount or run, its MOUNTPOINT or SOURCE
    #[arg(value_name = "POOL", value_hint = ValueHint::FilePath)]
    pub(crate) pool: PathBuf,

    /// Show all counts since the start of the mount, then every second the growth of each counter
    /// and the value of each gauge
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// A file of a mount, by its path there or in SOURCE
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Only these bytes: 0..64K, 1M..2M [default: all]
    #[arg(long, value_name = "FROM..UNTIL", value_parser = byte_range)]
    pub(crate) range: Option<ByteRange>,
}

#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// The pool of a mount or run that was killed or met a power loss, or its SOURCE
    #[arg(value_name = "POOL", value_hint = ValueHint::FilePath)]
    pub(crate) pool: PathBuf,

    /// Save what was synced to files that are missing or were changed since to POOL.salvaged
    #[arg(long)]
    pub(crate) force: bool,
}
