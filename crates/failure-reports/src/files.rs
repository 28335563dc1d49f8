//! Reasons why a mount does not begin or end, and why its pool is not recovered.

use crate::volume::past_the_limit;
use crate::{Exit, Report};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;
use tidegate_file_service::{DramRefused, NamespaceError, NotTogether, PoolOpenError, ServiceFailure};
use tidegate_host::rlimits::lifting;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::MapError;

const NAME_POOL: &str = "name another pool; to mount and run: --pool FILE";
const DYING: &str = "do it again once that process has ended";
const ONE_A_FILE: &str = "its server has one open for each file that programs have open";
const RAISE: &str = "raise the limit: ulimit -n 1048576; in a unit: LimitNOFILE=1048576";
const HIDDEN: &str = "only the mount's user and root may look into its SOURCE";
const MEMORY: &str = "make room in /dev/shm, and mount it for writing: mount -o remount,rw /dev/shm";
const REPAIR: &str = "put that file system right; then: tidegate recover POOL, which has the data until then";
const ONE_SERVICE: &str = "a directory can have only one file service";
const GREATER: &str = "name a greater size: --pool-size 1G";
const NOT_PERSISTENT: &str = "pool-not-persistent";
const NAME_NEW_POOL: &str = "name another file, or one that is not there yet: --pool FILE";
const DISCARD: &str = "or give up what only that pool has: tidegate mount --discard-former-pool";
const NAME_MOUNTS_POOL: &str = "name the pool of a mount";
const ALL_ZERO: &str = "it has only zeroes: no mount ever used it";
const NOT_ZERO: &str = "a pool can be made only in a file of zeroes";
const MAY_HAVE_DATA: &str = "the pool may have what files there lack";
const TRY: &str = "name a pool in persistent memory (domain power-fail): --pool FILE; or mount all the same, with files that you can lose: --try";
const FIND_MOUNT: &str = "find the mount with tidegate list, and end it: tidegate umount MOUNTPOINT";
const NAME_SOURCE: &str = "name a directory: tidegate mount SOURCE MOUNTPOINT";
const NAME_MOUNTPOINT: &str = "name a mountpoint elsewhere, or SOURCE itself, which the mount then covers";
const RECOVER_WITH_FORMER: &str = "write it back with the Tidegate that mounted it last: tidegate recover POOL; then delete it, or name another pool: --pool FILE";
const KEEP_COPY: &str = "keep a copy of the pool and of its record POOL.mount, and report it; without the pool: tidegate mount --discard-former-pool";
const NAMES_NEXT: &str = "restore SOURCE and the pool to states of the same time, and try again; or give up the recorded operations on names, and save contents that have no file";
const NAME_FILE: &str = "name a file of a mount: tidegate list shows mounts";
const ASK_LATER: &str =
    "it may be stopped or wait for its disk: look at its processes, which tidegate list names, and ask again";
const LEFT: &str =
    "its service was killed, or could not write all files: some are missing, were changed by others, or refuse";
const ASK_AS_OWNER: &str = "ask as the user who mounted it, or as root";
const END_MOUNT: &str = "and do this again after its end: tidegate umount MOUNTPOINT";
const WITHOUT_THEM: &str = "a mount begins and ends without them";
const END_PROGRAMS: &str = "end these programs, and do it again";
const OWNERS: &str = "only its owner and root may mark the directory, and close it to other users";
const MOUNT_AS_OWNER: &str = "mount it as that user, or as root";
const AGAIN: &str = "remove the cause, and try again";
const MAKE_WRITABLE: &str =
    "put that file system right, mount it for writing, and do this again; the pool keeps its data until then";

impl From<&ServiceFailure> for Report {
    fn from(failure: &ServiceFailure) -> Report {
        let what = failure.to_string();
        let reason =
            |kind, exit, why: &str, next: &str| Report { kind, what, why: why.to_owned(), next: next.to_owned(), exit };
        match failure {
            ServiceFailure::NotInMount { why, .. } => reason("not-in-mount", Exit::Usage, why, NAME_FILE),
            ServiceFailure::NoSource { error, .. } => reason("no-source", Exit::Usage, &error.to_string(), NAME_SOURCE),
            ServiceFailure::Nested { .. } => {
                reason("nested", Exit::Usage, "the service would wait for itself", NAME_MOUNTPOINT)
            }
            ServiceFailure::SourceInUse { .. } => reason("source-in-use", Exit::InUse, ONE_SERVICE, FIND_MOUNT),
            ServiceFailure::FilesInUse { .. } => reason("files-in-use", Exit::InUse, WITHOUT_THEM, END_PROGRAMS),
            ServiceFailure::NotOwned { .. } => reason("not-owned", Exit::Environment, OWNERS, MOUNT_AS_OWNER),
            ServiceFailure::Belonging(apart) => apart.into(),
            ServiceFailure::Mount(error) => error.into(),
            ServiceFailure::Sandbox(failure) => failure.into(),
            ServiceFailure::NoPool { .. } => reason("no-pool", Exit::Refused, "no such file", NAME_MOUNTS_POOL),
            ServiceFailure::FewDescriptors { .. } => reason("few-descriptors", Exit::Environment, ONE_A_FILE, RAISE),
            ServiceFailure::UnknownPool { .. } => reason("not-permitted", Exit::Environment, HIDDEN, ASK_AS_OWNER),
            ServiceFailure::NotInUse { pool } => {
                let next = format!("mount its SOURCE, or {}", recovery_of(pool));
                reason("not-mounted", Exit::Environment, "its mount ended or was killed", &next)
            }
            ServiceFailure::NotPersistent { is, .. } => reason(NOT_PERSISTENT, Exit::Refused, &volatile(is), TRY),
            ServiceFailure::Blank { .. } => reason("blank-pool", Exit::Refused, ALL_ZERO, NAME_MOUNTS_POOL),
            ServiceFailure::NotAPool { .. } => reason("not-a-pool", Exit::Refused, NOT_ZERO, NAME_NEW_POOL),
            ServiceFailure::NotFormatted { error, .. } => reason("pool-size", Exit::Usage, &error.to_string(), GREATER),
            ServiceFailure::Dram(refused) => refused.into(),
            ServiceFailure::NotOpened { error, .. } => {
                let (kind, next) = not_opened(error);
                reason(kind, Exit::Refused, &cause_of(failure), next)
            }
            ServiceFailure::NotWrittenBack { error, pool } => {
                let next = format!("put the disk of these files right; then {}", recovery_of(pool));
                reason("not-written-back", Exit::Environment, &format!("{error}; the pool retains their data"), &next)
            }
            ServiceFailure::LeftInPool { pool } => reason("left-in-pool", Exit::Refused, LEFT, &recovery_of(pool)),
            ServiceFailure::ServersDied { source_directory, pool, status } => {
                let why = format!("{status}; the pool {} has what files lack, and programs get errors", pool.display());
                let next = format!("find the reason in the log, and mount {} again", word(source_directory));
                reason("servers-died", Exit::Unexpected, &why, &next)
            }
            ServiceFailure::Names { error, pool } => names_not_brought(failure.to_string(), error, pool),
            ServiceFailure::System { error, .. } => of_system(failure.to_string(), error),
            ServiceFailure::NoAnswer { error, .. } => {
                let (kind, exit, why, next) = no_answer(error);
                reason(kind, exit, &why, next)
            }
            ServiceFailure::PoolInUse { pool, error } => {
                let next = format!("see which mount has it: tidegate status {}; {END_MOUNT}", word(pool));
                reason("pool-in-use", Exit::InUse, &error.to_string(), &next)
            }
            ServiceFailure::Memory(error) => not_mapped(error, ("memory-in-use", DYING), MEMORY),
            ServiceFailure::NotDurable { .. } => reason("not-durable", Exit::Environment, &cause_of(failure), REPAIR),
            ServiceFailure::Map(error) => not_mapped(error, ("pool-in-use", NAME_POOL), NAME_POOL),
            other => reason("files", Exit::Environment, &cause_of(other), AGAIN),
        }
    }
}

/// Why memory is not mapped: its kind and what to do if it is in use, and what else to do.
fn not_mapped(error: &MapError, in_use: (&'static str, &str), next: &str) -> Report {
    if let MapError::InUse { .. } = error {
        return Report::new((in_use.0, Exit::InUse), error.to_string(), "one mount has it at a time", in_use.1);
    }
    if let MapError::TooLarge { path, len } = error
        && let Some(limited) = past_the_limit(format!("cannot create {}", path.display()), *len)
    {
        return limited;
    }
    let lift = match error {
        MapError::Io { source, .. } => lifting(source),
        _ => None,
    };
    Report::new(("pool", Exit::Environment), error.to_string(), cause_of(error), lift.unwrap_or(next))
}

/// Why a service does not answer: its kind, its exit code, the reason, and what to do.
fn no_answer(error: &io::Error) -> (&'static str, Exit, String, &'static str) {
    if error.kind() == ErrorKind::PermissionDenied {
        let why = format!("its socket is another user's: {error}");
        return ("not-permitted", Exit::Environment, why, ASK_AS_OWNER);
    }
    ("no-answer", Exit::Environment, error.to_string(), ASK_LATER)
}

fn volatile(is: &str) -> String {
    format!("it is {is}: a power loss takes what programs synced last")
}

/// The kind of failure that a pool cannot be opened, and what to do.
fn not_opened(error: &PoolOpenError) -> (&'static str, &'static str) {
    match error {
        PoolOpenError::ReadOnlyFeatures => ("pool-newer", "use the version that mounted it last"),
        PoolOpenError::OtherVersion { .. } => ("pool-version", RECOVER_WITH_FORMER),
        _ => ("pool-damaged", KEEP_COPY),
    }
}

impl From<&DramRefused> for Report {
    fn from(refused: &DramRefused) -> Report {
        let (why, next) = match refused {
            DramRefused::TooSmall { least, .. } => {
                (format!("it has {} or more", Human(*least)), "name a greater size: --dram 256M")
            }
            DramRefused::TooLarge { room, .. } => (
                format!("unsynced writes lie in /dev/shm, which has {}", Human(*room)),
                "name a smaller size: --dram 256M; or enlarge /dev/shm",
            ),
        };
        Report { kind: "dram-size", what: refused.to_string(), why, next: next.to_owned(), exit: Exit::Usage }
    }
}

impl From<&NotTogether> for Report {
    fn from(apart: &NotTogether) -> Report {
        let what = apart.to_string();
        let reason = |kind, why: &str, next: &str| Report {
            kind,
            what,
            why: why.to_owned(),
            next: next.to_owned(),
            exit: Exit::Refused,
        };
        match apart {
            NotTogether::OtherSource { recorded, pool } => {
                let next = format!("mount {}, or {}, or {NAME_POOL}", word(recorded), recovery_of(pool));
                reason("other-source", MAY_HAVE_DATA, &next)
            }
            NotTogether::OtherPool { own, pool, .. } if own == pool => {
                let next = format!("put the former pool back there, {DISCARD}");
                reason("other-pool", "the former pool is not there any more; it may have what files lack", &next)
            }
            NotTogether::OtherPool { own, .. } => {
                let next = format!("mount with it: --pool {}; or {}; {DISCARD}", word(own), recovery_of(own));
                reason("other-pool", "that pool may have what files lack", &next)
            }
            NotTogether::SourceReplaced { .. } => {
                let next = format!("mount the file system with the former directory there, or {NAME_POOL}");
                reason("source-replaced", MAY_HAVE_DATA, &next)
            }
            NotTogether::NoRecord { record, .. } => {
                let why = format!("its record is not at {}, and the pool has data of files", record.display());
                reason("no-record", &why, "put the record back, and do it again, or name another pool: --pool FILE")
            }
        }
    }
}

/// Names are not brought to SOURCE.
fn names_not_brought(what: String, error: &NamespaceError, pool: &Path) -> Report {
    let (kind, next) = match error {
        NamespaceError::Source(_) => (("source-refuses", Exit::Environment), MAKE_WRITABLE.to_owned()),
        _ => (("names", Exit::Refused), format!("{NAMES_NEXT}: {} --force", recovery_of(pool))),
    };
    Report::new(kind, what, error.to_string(), next)
}

/// What failed is a service of the system's.
fn of_system(what: String, error: &io::Error) -> Report {
    let next = if error.kind() == ErrorKind::ReadOnlyFilesystem { MAKE_WRITABLE } else { AGAIN };
    Report::new(("files", Exit::Environment), what, error.to_string(), next)
}

fn cause_of(error: &dyn Error) -> String {
    error.source().map_or_else(|| "the system refused it".to_owned(), ToString::to_string)
}

fn recovery_of(pool: &Path) -> String {
    format!("recover it: tidegate recover {}", word(pool))
}
