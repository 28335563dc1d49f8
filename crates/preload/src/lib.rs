//! The library under programs that `tidegate run-log` starts: it takes over those of libc's
//! functions that change or sync files.
//!
//! The kernel's page cache always has the newest bytes of every file: each call reaches the kernel,
//! and reads are not even looked at. What this library adds is that a sync need not wait for the
//! disk. It notes where a *held* file was written; a sync then asks the supervisor to *keep* those
//! bytes in persistent memory, and ends when they are there. The supervisor brings the file to its
//! disk later. Small writes are put on a *strip* of the pool at once, if the supervisor gave one
//! for the file, and a sync of nothing but such writes is this library's own commit.
//!
//! # The rules
//!
//! 1. A sync that returned covers every write to the file that had returned before it began. So a
//!    write is noted after the kernel has it and before it returns, and what cannot be noted
//!    exactly puts the file *in doubt*: its next sync is the kernel's.
//! 2. A file is held by one process. It holds the file first and syncs by the kernel then, so
//!    nothing older is missed. Any other process that writes or syncs the file finds it in the
//!    table *after* the kernel was done and before it returns, and *joins*: the file is *common*
//!    from then on, see [`joined`]. If its writes cannot all be seen, it has the supervisor
//!    *abandon* the file: everybody's syncs are the kernel's then.
//! 3. Nothing kept is older than what somebody was promised by the kernel: whoever makes a held
//!    file durable otherwise has what was kept of it forgotten before returning, and whoever
//!    shortens, renames or replaces one has it settled before the kernel acts.
//! 4. What writes past libc's functions (streams, shared mappings, asynchronous I/O) has its file
//!    abandoned before it begins; a mapping that is only for reading, before it is made writable:
//!    see [`mapped`].
//! 5. If the supervisor is gone, or out of reach, everything is synced by the kernel, once, between
//!    two lines in the journal of holds: the first has a supervisor that lives promise nothing any
//!    more, the second says that what was kept is void.
//! 6. A commit to a strip counts if the table and the first byte of the journal still allow it when
//!    it is durable: whoever disallows it syncs the file then, which has at least what was
//!    committed before. Otherwise the sync goes on as one without a strip. Only a write beside
//!    which no other one was under way is put there, as nobody knows in which order the kernel made
//!    others; and only what the kernel took, as the program's memory had it when the call returned.
//!    When the strip is nearly full and all of it is committed, and counts, the file's other strip
//!    is filled, if that is free, and the supervisor is asked to absorb the full one. It is
//!    answered before anything else is, so that what it keeps later is newer. The full strip is not
//!    stored to again before `Done` was read; until then, and if anything else is answered, the
//!    records of both count.
//! 7. A write that is a sync (O_SYNC, O_DSYNC) reaches a held file through a second descriptor that
//!    does not wait for the disk, if right before the kernel says that both lead to the held file
//!    and write alike. A sync follows before it returns. Otherwise it is the kernel's own, and what
//!    was kept is forgotten before it returns. The second descriptor is closed only where the first
//!    one is: closing it drops the process's record locks on the file.
//! 8. A file that this process made with a name that it holds is *young*: see [`names`].
//! 9. The table of descriptors is only ever a memory: an entry is forgotten whenever its number may
//!    mean something else, and learned anew from the kernel. A child between vfork and exec shares
//!    memory with its parent but not descriptors: it learns nothing, and believes nothing that the
//!    memory says.
//!
//! # The law of the unsafe code
//!
//! - **L1** Exports are called as libc's own functions of the same name may be called; what the
//!   next definition gets is what they got.
//! - **L2** The next definition of a name has the type that libc's header gives it.
//! - **L3** The mappings of the table, of its part that programs may write, of the notes, and of
//!   the journal's beginning, and the page that forks wipe, live as long as the process; the
//!   mapping of a pair of strips lives as long as it is in its place.
//! - **L4** Variadic functions of libc that take at most one argument of word size behind the named
//!   ones get it in the same register either way.
//! - **L5** The strips of a held file or name are only touched under the lock of its place.
//! - **L6** Where there are protection keys, the strips, the notes and the part of the table that
//!   programs may write are only touched while this thread has the process's key open: strips by
//!   the verbs of their [`MappedPart`](tidegate_media::MappedPart), which open it, that part within
//!   [`process::young`], and the notes within [`process::notes`]. So a store of the program itself
//!   that goes astray reaches none of them.
//!
//! No panic reaches C: what is done beside the call is under [`guarded`], which aborts.

mod asked;
mod descriptors;
mod exports;
mod files;
mod follow;
mod held;
mod joined;
mod line;
mod loud;
mod mapped;
mod names;
mod process;
mod quiet;
mod recent;
mod strip;

use tidegate_preload_common::{guarded, lock, next};
