//! Descriptors, and the files behind them that are leased or may be.

use crate::known::{Descriptor, KnownDescriptor, OWN};
use crate::process;
use crate::service::{NO_POOL, Service, lends};
use crate::{contexts, mappings, read_memory, trace};
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidegate_file_direct::{Attempted, DirectFile, ReadAids, Until, WriteTarget};
use tidegate_file_wire::{PoolDescription, Read};
use tidegate_media::ProtectionKey;
use tidegate_preload_common::lock::Lock;

/// Descriptors that are known, from 0 on.
const DESCRIPTORS: usize = 65536;

/// Files that are known at a time; further ones have no direct path.
const SLOTS: usize = 256;

/// So many reads that took no request are told of at a time.
const KEPT_READS_TOLD: u64 = 64;

/// A descriptor that was written so often may lead to a file that is worth a claim.
const WRITES_OFTEN: u32 = 64;

/// What is known of a descriptor, see [`KnownDescriptor`].
static KNOWN: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

static FILES: [FileSlot; SLOTS] = [const { FileSlot::new() }; SLOTS];

/// One past the highest descriptor that anything was known of, and past the last slot with a
/// file. Nobody touches the memory behind them: each page would cost a fault, in every child
/// that is forked.
static KNOWN_END: AtomicUsize = AtomicUsize::new(0);
static SLOTS_END: AtomicUsize = AtomicUsize::new(0);

/// The descriptors of which something may be known.
fn known_words() -> &'static [AtomicU64] {
    &KNOWN[..KNOWN_END.load(Ordering::Acquire)]
}

/// The slots that may have a file.
fn used_slots() -> &'static [FileSlot] {
    &FILES[..SLOTS_END.load(Ordering::Acquire)]
}

/// A file of this process.
struct FileSlot {
    lock: Lock,
    /// Taken before the other one by whoever uses the position of a descriptor, until it has moved.
    position: Lock,
    /// Descriptors that lead to it; 0: the slot is free.
    descriptors: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Which file the pool is: written before there is a file, and read while there is one. It is
    /// too long for small stacks.
    pool: UnsafeCell<PoolDescription>,
    file: UnsafeCell<SlotState>,
}

/// What a slot has behind its lock.
struct SlotState {
    file: Option<DirectFile<Service>>,
    /// Room for what is said about a read: the stack may be small.
    message: Read,
}

// SAFETY: L2.
unsafe impl Sync for FileSlot {}

impl FileSlot {
    const fn new() -> FileSlot {
        FileSlot {
            lock: Lock::new(),
            position: Lock::new(),
            descriptors: AtomicU32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            pool: UnsafeCell::new(NO_POOL),
            file: UnsafeCell::new(SlotState { file: None, message: Read::EMPTY }),
        }
    }

    /// Whether this is the slot of this file.
    fn is_of(&self, device: u64, inode: u64) -> bool {
        self.descriptors.load(Ordering::Relaxed) > 0
            && self.device.load(Ordering::Relaxed) == device
            && self.inode.load(Ordering::Relaxed) == inode
    }

    /// Calls `act` with the file; `None`: this very thread is at it already.
    fn with<T>(&self, act: impl FnOnce(&mut SlotState) -> T) -> Option<T> {
        if !self.lock.take() {
            return None;
        }
        // SAFETY: L2.
        let done = act(unsafe { &mut *self.file.get() });
        self.lock.give();
        Some(done)
    }

    /// Says on the board of the file's mount how many reads took no request, if there were `least`.
    fn tell_kept_reads(&self, file: &mut DirectFile<Service>, least: u64) {
        if let Some(count) = file.take_kept_reads(least) {
            contexts::count_kept_reads(self.device.load(Ordering::Relaxed), count);
        }
    }

    /// Calls `act` with the file, reached by `fd`, and room for a message.
    fn with_file<T>(&self, fd: i32, act: impl FnOnce(&mut DirectFile<Service>, &mut Read) -> T) -> Option<T> {
        self.with(|SlotState { file, message }| {
            let file = file.as_mut()?;
            file.os().fd = fd;
            // Once for all that is done with the memory of a lease: each change takes some 10 ns.
            let _open = file.is_leased().then(ProtectionKey::of_process).flatten().map(ProtectionKey::open);
            Some(act(file, message))
        })?
    }
}

impl Descriptor {
    fn slot(self) -> &'static FileSlot {
        &FILES[usize::from(self.slot).min(SLOTS - 1)]
    }

    /// This descriptor with the flags that it has now: another process that has the open file
    /// description may have changed them. One that is this process's own costs no system call.
    #[inline]
    fn with_flags_now(self, fd: i32) -> Descriptor {
        if self.is_own {
            return self;
        }
        // SAFETY: the program is about to use it; whether it is open, the kernel says.
        let flags = fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) });
        Descriptor { appends: flags.map_or(self.appends, |flags| flags.contains(OFlags::APPEND)), ..self }
    }

    /// Whether a write at the position goes to the end, wherever that is.
    pub(crate) fn appends(self) -> bool {
        self.appends
    }

    /// Writes by the lease; durably, if the descriptor or `until` says so.
    pub(crate) fn write(self, fd: i32, at: u64, data: &[u8], until: Until) -> Attempted {
        let place = if self.appends { WriteTarget::End } else { WriteTarget::At(at) };
        let until = if self.syncs { Until::Erased } else { until };
        let written = self.slot().with_file(fd, |file, message| file.write(place, data, until, message));
        let written = written.unwrap_or(Attempted::ByDescriptor);
        if written == Attempted::ByDescriptor {
            self.before_write_by_kernel(fd);
        }
        written
    }

    /// The kernel is about to write by the descriptor. If that appends, the position is behind the
    /// end that the kernel knows then: it has to know the real one.
    pub(crate) fn before_write_by_kernel(self, fd: i32) {
        if self.with_flags_now(fd).appends {
            have_kernel_ask(fd);
        }
    }

    /// Reads by the lease.
    pub(crate) fn read(self, fd: i32, at: u64, out: &mut [u8]) -> Attempted {
        if self.is_write_only {
            return Attempted::ByDescriptor;
        }
        let slot = self.slot();
        let read = slot.with_file(fd, |file, message| {
            let read = file.read(at, out, ReadAids { message, cache: read_memory::cache });
            slot.tell_kept_reads(file, KEPT_READS_TOLD);
            read
        });
        read.unwrap_or(Attempted::ByDescriptor)
    }

    /// Sets the file's length by the lease, to what it is.
    pub(crate) fn set_length(self, fd: i32, length: u64) -> Attempted {
        let set = self
            .slot()
            .with_file(fd, |file, message| file.set_length(length, ReadAids { message, cache: read_memory::cache }));
        set.unwrap_or(Attempted::ByDescriptor)
    }

    /// Syncs by the lease.
    pub(crate) fn sync(self, fd: i32) -> Attempted {
        self.slot().with_file(fd, |file, _| file.sync()).unwrap_or(Attempted::ByDescriptor)
    }

    /// The program is about to use the kernel's pages, or its length: it has to know that.
    pub(crate) fn hand_over(self, fd: i32) {
        self.give_up(fd);
        have_kernel_ask(fd);
    }

    /// The program is about to use the file in another way.
    fn give_up(self, fd: i32) {
        self.slot().with_file(fd, |file, _| file.leave());
    }
}

/// Has the kernel ask the service for the file's length, if it may not know it: others may have a
/// lease, and where an append ends is then the position.
pub(crate) fn have_kernel_ask(fd: i32) {
    if fd < 0 {
        return;
    }
    // SAFETY: the program is about to use it; whether it is open, the kernel says.
    let _ = fstat(unsafe { BorrowedFd::borrow_raw(fd) });
}

/// Whether this process has the direct path. A child that was forked forgets everything first.
pub(crate) fn has_path() -> bool {
    process::has_path(forget_all)
}

fn place(fd: i32) -> Option<&'static AtomicU64> {
    KNOWN.get(usize::try_from(fd).ok()?)
}

/// The place of a descriptor of which something comes to be known.
fn place_of_known(fd: i32) -> Option<&'static AtomicU64> {
    let place = place(fd)?;
    KNOWN_END.fetch_max(usize::try_from(fd).ok()? + 1, Ordering::AcqRel);
    Some(place)
}

/// The descriptor of a file of a mount, if it is known to be one.
#[inline]
pub(crate) fn known(fd: i32) -> Option<Descriptor> {
    // A child that was forked forgets everything in between.
    match (known_word(fd)?, has_path(), known_word(fd)?) {
        (KnownDescriptor::File(_), true, KnownDescriptor::File(descriptor)) if process::seems_to_own_descriptors() => {
            Some(descriptor)
        }
        _ => None,
    }
}

fn known_word(fd: i32) -> Option<KnownDescriptor> {
    Some(KnownDescriptor::of(place(fd)?.load(Ordering::Acquire)))
}

/// The descriptor that is about to be written: looked at if nothing is known of it, and once more
/// when it is written often.
#[inline]
pub(crate) fn written(fd: i32) -> Option<Descriptor> {
    match known_word(fd)? {
        KnownDescriptor::Nothing { .. } => look(fd, Moment::FirstWrite),
        KnownDescriptor::MaybeLater { place, .. } if place.is_some_and(contexts::may_be_leased) => {
            look(fd, Moment::WorthClaim);
        }
        known @ KnownDescriptor::MaybeLater { writes, is_in_mount, appends, is_own, place }
            if writes < WRITES_OFTEN =>
        {
            let more = KnownDescriptor::MaybeLater { writes: writes + 1, is_in_mount, appends, is_own, place };
            // Another thread may have closed it, or counted.
            _ = self::place(fd)?.compare_exchange(known.word(), more.word(), Ordering::Relaxed, Ordering::Relaxed);
            if appends {
                have_kernel_ask(fd);
            }
            return None;
        }
        KnownDescriptor::MaybeLater { .. } => look(fd, Moment::WorthClaim),
        KnownDescriptor::Plain { .. } | KnownDescriptor::File(_) => {}
    }
    known(fd).map(|descriptor| descriptor.with_flags_now(fd))
}

/// Whether the descriptor leads to a file of the mount that has the board of contexts: looked at if
/// nothing is known of it.
#[inline]
pub(crate) fn is_in_mount(fd: i32) -> bool {
    if matches!(known_word(fd), Some(KnownDescriptor::Nothing { .. })) {
        look(fd, Moment::FirstRead);
    }
    match known_word(fd) {
        None | Some(KnownDescriptor::Nothing { .. }) => false,
        Some(KnownDescriptor::Plain { is_in_mount } | KnownDescriptor::MaybeLater { is_in_mount, .. }) => is_in_mount,
        Some(KnownDescriptor::File(_)) => true,
    }
}

/// The descriptor that is about to be read: looked at if nothing is known of it.
#[inline]
pub(crate) fn read(fd: i32) -> Option<Descriptor> {
    match known_word(fd)? {
        KnownDescriptor::Nothing { .. } => look(fd, Moment::FirstRead),
        KnownDescriptor::MaybeLater { place, .. } if place.is_some_and(contexts::may_be_leased) => {
            look(fd, Moment::WorthClaim);
        }
        _ => {}
    }
    known(fd)
}

/// The descriptor that is about to be synced.
pub(crate) fn synced(fd: i32) -> Option<Descriptor> {
    if matches!(known_word(fd)?, KnownDescriptor::Nothing { .. } | KnownDescriptor::MaybeLater { .. }) {
        look(fd, Moment::WorthClaim);
    }
    known(fd)
}

/// Device and inode of the file that a descriptor leads to, if it is in a mount with a board. Of a
/// leased file nobody is asked: a question would have the service take over what was written.
pub(crate) fn identity_in_mount(fd: i32) -> Option<(u64, u64)> {
    if !is_in_mount(fd) {
        return None;
    }
    if let Some(descriptor) = known(fd) {
        let slot = descriptor.slot();
        return Some((slot.device.load(Ordering::Relaxed), slot.inode.load(Ordering::Relaxed)));
    }
    // SAFETY: the program has just used it; whether it is open, the kernel says.
    let about = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((about.st_dev, about.st_ino))
}

/// Whether each write by a descriptor is a sync.
pub(crate) fn is_synchronous(fd: i32) -> bool {
    let asked = || {
        // SAFETY: the program has just used it; whether it is open, the kernel says.
        let flags = fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) });
        flags.is_ok_and(|flags| flags.intersects(OFlags::DSYNC))
    };
    known(fd).map_or_else(asked, |descriptor| descriptor.syncs)
}

/// A thread's turn at the position of a descriptor, until this is dropped.
pub(crate) struct PositionTurn(&'static FileSlot);

impl PositionTurn {
    /// Waits until no other thread uses the position. `None`: the descriptor has no direct path, or
    /// this very thread is at it, below a signal handler.
    pub(crate) fn at_position(fd: i32) -> Option<PositionTurn> {
        let slot = known(fd)?.slot();
        slot.position.take().then_some(PositionTurn(slot))
    }
}

impl Drop for PositionTurn {
    fn drop(&mut self) {
        self.0.position.give();
    }
}

/// When a descriptor is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    FirstRead,
    FirstWrite,
    /// It is synced, or written often.
    WorthClaim,
}

fn look(fd: i32, moment: Moment) {
    if !has_path() || !process::owns_descriptors() {
        return;
    }
    let Some(place) = place_of_known(fd) else { return };
    let seen = place.load(Ordering::Acquire);
    let found = looked_at((fd, KnownDescriptor::of(seen)), moment);
    let found = found.unwrap_or(KnownDescriptor::Plain { is_in_mount: false });
    let is_taken = place.compare_exchange(seen, found.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let (false, KnownDescriptor::File(counted)) = (is_taken, found) {
        // Another thread looked too, or closed it: this one has counted the descriptor for nothing.
        counted.slot().with(|_| counted.slot().descriptors.fetch_sub(1, Ordering::Relaxed));
    }
}

/// What is there to know of a descriptor, of which something is known already.
fn looked_at((fd, before): (i32, KnownDescriptor), moment: Moment) -> Option<KnownDescriptor> {
    let is_own = before.is_own();
    // SAFETY: the program is about to use it; whether it is open, the kernel says.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl_getfl(descriptor).ok()?;
    // Nobody asks but for the board's sake.
    let is_in_mount = || (contexts::are_wanted() || trace::is_on()) && is_of_mount(descriptor);
    if flags.intersection(OFlags::RWMODE).is_empty() || flags.intersects(OFlags::DIRECT | OFlags::PATH) {
        return Some(KnownDescriptor::Plain { is_in_mount: is_in_mount() });
    }
    // O_SYNC is O_DSYNC and one bit more.
    let syncs = flags.intersects(OFlags::DSYNC);
    let place = if moment == Moment::WorthClaim { None } else { place_on_board(descriptor) };
    if moment != Moment::WorthClaim && !syncs && !place.is_some_and(contexts::may_be_leased) {
        let writes = u32::from(moment == Moment::FirstWrite);
        let appends = flags.contains(OFlags::APPEND);
        if appends {
            have_kernel_ask(fd);
        }
        return Some(KnownDescriptor::MaybeLater { writes, is_in_mount: is_in_mount(), appends, is_own, place });
    }
    let about = fstat(descriptor).ok()?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Some(KnownDescriptor::Plain { is_in_mount: false });
    }
    let slot = slot_of(fd, about.st_dev, about.st_ino)?;
    let (appends, is_write_only) = (flags.contains(OFlags::APPEND), flags.contains(OFlags::WRONLY));
    Some(KnownDescriptor::File(Descriptor { slot, appends, syncs, is_write_only, is_own }))
}

/// Where a mount's board says whether the file of a descriptor may have a lease: a request would
/// end it.
fn place_on_board(descriptor: BorrowedFd<'_>) -> Option<u16> {
    if !contexts::has_boards() {
        return None;
    }
    let about = fstat(descriptor).ok()?;
    contexts::place_of_leases(about.st_dev, about.st_ino)
}

fn is_of_mount(descriptor: BorrowedFd<'_>) -> bool {
    let is_regular = |about: &Stat| FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    fstat(descriptor).is_ok_and(|about| is_regular(&about) && contexts::is_device_of_mount(about.st_dev))
}

/// One lock for the choice of slots.
static CHOICE: Lock = Lock::new();

/// The slot of a file, which has one more descriptor now. `None`: its mount lends none, or there is
/// no slot.
fn slot_of(fd: i32, device: u64, inode: u64) -> Option<u16> {
    if !CHOICE.take() {
        return None;
    }
    let found = chosen(fd, (device, inode));
    CHOICE.give();
    found
}

fn chosen(fd: i32, (device, inode): (u64, u64)) -> Option<u16> {
    let is_this = |slot: &FileSlot| slot.is_of(device, inode);
    let is_free = |slot: &FileSlot| slot.descriptors.load(Ordering::Relaxed) == 0;
    let used = used_slots();
    let found = used.iter().position(is_this).or_else(|| used.iter().position(is_free)).unwrap_or(used.len());
    let slot = FILES.get(found)?;
    SLOTS_END.fetch_max(found + 1, Ordering::AcqRel);
    slot.with(|state| {
        if state.file.is_none() {
            // SAFETY: L2, and without a file nobody else reads or writes it.
            lends(fd, unsafe { &mut *slot.pool.get() }).then_some(())?;
            // SAFETY: nobody writes it while there is a file.
            let pool = unsafe { &*slot.pool.get() };
            let place = contexts::place_of_leases(device, inode);
            state.file = Some(DirectFile::new(Service { fd, pool, place }, pool.bytes.get()));
            slot.device.store(device, Ordering::Relaxed);
            slot.inode.store(inode, Ordering::Relaxed);
        }
        slot.descriptors.fetch_add(1, Ordering::Relaxed);
        u16::try_from(found).ok()
    })?
}

/// A descriptor is about to be closed, or its number to be given to another file.
pub(crate) fn closing(fd: i32) {
    forget(fd, 0);
}

/// Forgets what is known of a descriptor, but for these bits of its word.
fn forget(fd: i32, kept: u64) {
    let Some(place) = place(fd) else { return };
    let word = place.load(Ordering::Acquire);
    match KnownDescriptor::of(word) {
        KnownDescriptor::Nothing { .. } if word & kept == word => return,
        // Whoever uses it next looks again, also the parent of a child of `vfork`.
        KnownDescriptor::Nothing { .. } | KnownDescriptor::Plain { .. } | KnownDescriptor::MaybeLater { .. } => {
            // Another thread may have learnt more of it meanwhile.
            if place.compare_exchange(word, word & kept, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                forget(fd, kept);
            }
            return;
        }
        KnownDescriptor::File(_) if !has_path() || !process::owns_descriptors() => return,
        KnownDescriptor::File(_) => {}
    }
    if let KnownDescriptor::File(descriptor) = KnownDescriptor::of(place.swap(word & kept, Ordering::AcqRel)) {
        let slot = descriptor.slot();
        slot.with(|state| {
            if slot.descriptors.fetch_sub(1, Ordering::Relaxed) == 1
                && let Some(mut file) = state.file.take()
            {
                file.os().fd = fd;
                file.leave();
                slot.tell_kept_reads(&mut file, 1);
            }
        });
    }
}

/// All descriptors from `first` to `last` are about to be closed.
pub(crate) fn closing_among(first: u32, last: u32) {
    let end = u32::try_from(known_words().len()).unwrap_or(0).min(last.saturating_add(1));
    (first..end).filter_map(|fd| i32::try_from(fd).ok()).for_each(closing);
}

/// A number leads to what this process has just opened, whatever was known of it.
pub(crate) fn opened(fd: i32) {
    closing(fd);
    if fd >= 0
        && has_path()
        && process::owns_descriptors()
        && let Some(place) = place_of_known(fd)
    {
        let own = KnownDescriptor::Nothing { is_own: true }.word();
        // If another thread has closed it and given its number on, that one says what it is.
        let _ = place.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// `copy` leads to the same as `fd` from now on.
pub(crate) fn copied(fd: i32, copy: i32) {
    closing(copy);
    if !has_path() || !process::owns_descriptors() {
        return;
    }
    let Some(before) = known_word(fd) else { return };
    let word = match before {
        KnownDescriptor::File(_) => before.word(),
        _ => KnownDescriptor::Nothing { is_own: before.is_own() }.word(),
    };
    if word == 0 {
        return;
    }
    let Some(place) = place_of_known(copy) else { return };
    if let KnownDescriptor::File(descriptor) = before {
        descriptor.slot().descriptors.fetch_add(1, Ordering::Relaxed);
    }
    place.store(word, Ordering::Release);
}

/// A flag of a descriptor may have changed, which all copies of it share. Which those are nobody
/// says, and of some it may be known that they lead to its file, and of others not yet: forgotten
/// is what is known of the descriptors of its file, and of those that may be.
pub(crate) fn flags_changed(fd: i32) {
    forget(fd, OWN);
    if fd < 0 || known_words().is_empty() {
        return;
    }
    // SAFETY: the program has just used it; whether it is open, the kernel says.
    let Ok(about) = fstat(unsafe { BorrowedFd::borrow_raw(fd) }) else { return };
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return;
    }
    let may_lead_there = |word: &AtomicU64| match KnownDescriptor::of(word.load(Ordering::Acquire)) {
        KnownDescriptor::File(other) => other.slot().is_of(about.st_dev, about.st_ino),
        KnownDescriptor::Plain { .. } | KnownDescriptor::MaybeLater { .. } => true,
        KnownDescriptor::Nothing { .. } => false,
    };
    let numbers = (0..).zip(known_words()).filter(|(_, word)| may_lead_there(word));
    numbers.for_each(|(number, _)| forget(number, OWN));
}

/// Whether this process opened a descriptor, and no other has its open file description.
pub(crate) fn is_own(fd: i32) -> bool {
    has_path() && process::owns_descriptors() && known_word(fd).is_some_and(KnownDescriptor::is_own)
}

/// Other processes may have the open file description of a descriptor from now on.
pub(crate) fn shared(fd: i32) {
    if let Some(place) = place(fd)
        && place.load(Ordering::Relaxed) & OWN != 0
    {
        place.fetch_and(!OWN, Ordering::AcqRel);
    }
}

/// A child has, or will have, all open file descriptions.
pub(crate) fn all_shared() {
    if has_path() {
        (0..).zip(known_words()).for_each(|(fd, _)| shared(fd));
    }
}

/// Before a child is made that has the descriptors too: no lease of a file that it may write is
/// left.
pub(crate) fn before_fork() {
    all_shared();
    give_up_all();
}

/// No lease of this process is left.
pub(crate) fn give_up_all() {
    if !has_path() {
        return;
    }
    for (number, word) in known_words().iter().enumerate() {
        let KnownDescriptor::File(descriptor) = KnownDescriptor::of(word.load(Ordering::Acquire)) else { continue };
        let Ok(fd) = i32::try_from(number) else { continue };
        descriptor.give_up(fd);
    }
}

/// In a child: nothing is known, and nothing is leased. The memory of its parent's leases is not
/// there, so it is not given back.
fn forget_all() {
    CHOICE.reset();
    contexts::forget();
    mappings::forget_eye();
    trace::forget();
    known_words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    for slot in used_slots() {
        slot.lock.reset();
        slot.position.reset();
        slot.descriptors.store(0, Ordering::Relaxed);
        slot.with(|state| std::mem::forget(state.file.take()));
    }
}
