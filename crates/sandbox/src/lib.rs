//! System calls that a server gives up once everything is open, so that a weakness in it does not
//! become a program of somebody else on the machine; and the capabilities of root that the server
//! of a mount has no use for.
//!
//! [`confine`] does so as its user wishes. [`enter`] takes effect for every thread of the process,
//! those that run already included, and for good: the kernel answers a refused call with `EPERM`,
//! and programs get no privileges by set-user-ID files (no new privileges). It is a list of what is
//! refused, by seccomp: starting programs, looking into other processes or signalling them,
//! mounting, loading code into the kernel, changing users, capabilities or namespaces, and sockets
//! that are neither unix nor TCP/IP; for the server of a mount, all but unix ones. Which files a
//! process may open is not changed: the kernel confines that for single threads only, and a server
//! has many before everything is open.
//!
//! On x86-64 the calls of the x32 interface are refused along with those that they stand for. A
//! call by the number of another architecture ends the process.

#![forbid(unsafe_code)]

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::str::FromStr;

mod capabilities;
mod confine;

pub use capabilities::{OF_MOUNT, give_up_capabilities};
pub use confine::{Confinement, confine};
pub use seccompiler::Error as FilterRefused;

/// Whether a server enters the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxWish {
    /// If the kernel can do it; if not, the server says so and serves.
    #[default]
    Auto,
    /// Always: a server that cannot does not serve.
    On,
    /// Never.
    Off,
}

impl SandboxWish {
    /// Each with its name.
    pub const NAMED: [(&'static str, SandboxWish); 3] =
        [("auto", SandboxWish::Auto), ("on", SandboxWish::On), ("off", SandboxWish::Off)];

    /// Its name, as the command line and configurations have it.
    pub fn name(self) -> &'static str {
        let named = SandboxWish::NAMED.into_iter().find(|(_, wish)| *wish == self);
        named.map_or("", |(name, _)| name)
    }
}

/// What a server serves, and so which calls it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Volumes, to clients at sockets.
    Volumes,
    /// The files of a mount, to the kernel. Its supervisor mounts and unmounts.
    Mount,
}

/// Text that names no wish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of \"auto\", \"on\" and \"off\"")]
pub struct UnknownWish {
    /// The text.
    pub text: String,
}

impl FromStr for SandboxWish {
    type Err = UnknownWish;

    fn from_str(text: &str) -> Result<SandboxWish, UnknownWish> {
        let named = SandboxWish::NAMED.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, wish)| wish).ok_or_else(|| UnknownWish { text: text.to_owned() })
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxFailure {
    /// The filter cannot be made for this machine.
    #[error("no filter of system calls can be made for {ARCH}")]
    Filter(#[from] BackendError),
    /// The kernel does not take it.
    #[error("the kernel takes no filter of system calls")]
    Kernel(#[from] FilterRefused),
    /// The capabilities cannot be given up.
    #[error("the kernel does not take capabilities back")]
    Capabilities(#[from] rustix::io::Errno),
}

/// Calls that are refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // Programs, and the insides of other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // What is mounted, and where the root is.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The kernel and its clock.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_quotactl,
    libc::SYS_userfaultfd,
    // Users, groups, capabilities and keys.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Calls that the server of a mount is refused beside those: a ring of requests is an interface of
/// its own to the kernel, which no filter sees.
const REFUSED_TO_MOUNT: &[libc::c_long] =
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Calls that this machine has beside those.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_kexec_file_load];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// What makes a number of x86-64 one of x32.
const X32: libc::c_long = 0x4000_0000;

/// Refused calls that have numbers of their own in x32: ptrace, execve, execveat, process_vm_readv
/// and process_vm_writev, rt_sigqueueinfo and rt_tgsigqueueinfo, kexec_load.
const X32_ONLY: &[libc::c_long] = &[520, 521, 524, 528, 536, 539, 540, 545];

/// Namespaces that a thread could leave for new ones.
const NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];

impl Served {
    /// Kinds of sockets that its server opens.
    fn sockets(self) -> &'static [libc::c_int] {
        match self {
            Served::Volumes => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
            Served::Mount => &[libc::AF_UNIX],
        }
    }

    /// What its server is refused that others may need.
    fn refused(self) -> &'static [libc::c_long] {
        match self {
            Served::Volumes => &[],
            Served::Mount => REFUSED_TO_MOUNT,
        }
    }
}

/// Gives up the calls, in all threads of this process and for good.
///
/// # Errors
/// The kernel takes no filter. Nothing is given up then, but the process may have no new
/// privileges.
pub fn enter(served: Served) -> Result<(), SandboxFailure> {
    Ok(seccompiler::apply_filter_all_threads(&filter(served)?)?)
}

fn filter(served: Served) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in REFUSED.iter().chain(REFUSED_HERE).chain(served.refused()) {
        rules.insert(*number, Vec::new());
    }
    let in_namespaces = || NAMESPACES.map(|kind| any_of(bits(kind)));
    rules.insert(libc::SYS_unshare, in_namespaces().into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_clone, in_namespaces().into_iter().collect::<Result<_, _>>()?);
    let others = served.sockets().iter().map(|kind| condition(SeccompCmpOp::Ne, bits(*kind)));
    let others = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
    rules.insert(libc::SYS_socket, vec![others]);
    // A process that aborts sends its own thread a signal.
    let of_another = condition(SeccompCmpOp::Ne, u64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![of_another])?]);
    if cfg!(target_arch = "x86_64") {
        let of_x32: Vec<_> = rules.iter().map(|(number, rules)| (X32 | number, rules.clone())).collect();
        rules.extend(of_x32);
        rules.extend(X32_ONLY.iter().map(|number| (X32 | number, Vec::new())));
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.try_into()?)?.try_into()
}

fn bits(number: libc::c_int) -> u64 {
    u64::from(number.unsigned_abs())
}

/// A rule for a first argument that has all of `bits`.
fn any_of(bits: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(SeccompCmpOp::MaskedEq(bits), bits)?])
}

/// A condition of the first argument.
fn condition(is: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, is, value)
}
