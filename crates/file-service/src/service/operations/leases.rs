//! The `ioctl`s of programs that write files by leases: see `tidegate-file-wire`.

use crate::service::lending::Lending;
use crate::service::nodes::open_files::leases::{Grace, StalePages};
use crate::service::nodes::open_files::placement::Requested;
use crate::service::nodes::open_files::{Caching, OpenFile};
use crate::service::{FileService, Privileges};
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::sync::Arc;
use tidegate_file_wire::{
    Answer, CLAIM, Claim, DESCRIBE, EXTEND, JOINS, LEAVE, LeaseRequest, MAP, Map, PoolDescription,
};
use tidegate_file_wire::{READ, Read, SOON, UPGRADE, Upgrade, VERSION};
use tidegate_fuse::{Handle, Header, Ioctl, NodeId, Reply};
use tidegate_layout::file_cache::LeaseGrant;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// So often a file is tried to be lent while programs use it.
const LEND_TRIES: u32 = 8;

impl FileService {
    /// Whether this is an `ioctl` about leases.
    pub(crate) fn is_about_leases(command: u32) -> bool {
        [DESCRIBE, CLAIM, EXTEND, LEAVE, READ, MAP, UPGRADE].contains(&command)
    }

    /// Carries out an `ioctl` about leases.
    pub(crate) fn control_lease<'b>(
        &self,
        header: &Header,
        ioctl: &Ioctl<'_>,
        buffer: &'b mut [u8],
    ) -> Result<Reply<'b>> {
        let lending = self.lending.get().filter(|lending| lending.serves(header.uid));
        match ioctl.command {
            DESCRIBE => {
                // Whoever may not have leases need not know where the pool is.
                let description = lending.ok_or(Errno::NOTTY)?.description();
                put::<PoolDescription>(ioctl, description, buffer)
            }
            CLAIM => {
                let mut claim: Claim = taken(ioctl)?;
                let answer = match lending {
                    Some(lending) => self.claim((header.node, ioctl.handle), &mut claim, lending),
                    None => Answer::Never,
                };
                claim.answer = answer.word().into();
                put(ioctl, &claim, buffer)
            }
            MAP => {
                let mut map: Map = taken(ioctl)?;
                let lending = lending.ok_or(Errno::OPNOTSUPP)?;
                map.answer = Answer::Never.word().into();
                self.map_pages((header.node, ioctl.handle), &mut map, lending)?;
                put(ioctl, &map, buffer)
            }
            UPGRADE => {
                let mut upgrade: Upgrade = taken(ioctl)?;
                let answer = match lending {
                    Some(lending) => self.upgrade((header.node, ioctl.handle), &upgrade, lending)?,
                    None => Answer::Never,
                };
                upgrade.answer = answer.word().into();
                put(ioctl, &upgrade, buffer)
            }
            READ => {
                let mut read: Read = taken(ioctl)?;
                let answer = match lending {
                    Some(_) => self.read_by_lease(header, ioctl.handle, &mut read)?,
                    None => Answer::Never,
                };
                read.answer = answer.word().into();
                put(ioctl, &read, buffer)
            }
            _ => {
                let mut request: LeaseRequest = taken(ioctl)?;
                let answer = match lending {
                    Some(lending) => self.change_lease(ioctl, request.lease.get(), lending)?,
                    None => Answer::Never,
                };
                request.answer = answer.word().into();
                put(ioctl, &request, buffer)
            }
        }
    }

    fn claim(&self, of: (NodeId, Handle), claim: &mut Claim, lending: &Lending) -> Answer {
        let asked = claim.asked();
        let (is_known, how, own) = (claim.version.get() == VERSION, claim.how, claim.lease.get());
        *claim = Claim { version: VERSION.into(), at: claim.at, len: claim.len, how, ..Claim::new_zeroed() };
        let Some(asked) = asked.filter(|_| is_known) else { return Answer::Never };
        let Ok(file) = self.handles.lent_file(of.1) else { return Answer::Never };
        let may_begin = how.get() & JOINS == 0;
        let lent = self.open_files.join(&file, (of.1, own), &asked).and_then(|shared| match shared {
            Some(grant) => Ok(Ok(grant)),
            None if may_begin => self.lend((of, &file), asked, lending),
            None => Ok(Err(Answer::Later)),
        });
        match lent {
            Ok(Ok(grant)) => {
                tell(claim, &grant);
                Answer::Granted
            }
            Ok(Err(answer)) => {
                claim.how = if self.open_files.is_being_lent(&file) { SOON } else { 0 }.into();
                answer
            }
            Err(errno) => {
                tracing::debug!("a claim is refused: {errno}");
                Answer::Never
            }
        }
    }

    /// Lends a file, or says why not.
    fn lend(
        &self,
        (of, file): ((NodeId, Handle), &Arc<OpenFile>),
        asked: Range<u64>,
        lending: &Lending,
    ) -> Result<std::result::Result<LeaseGrant, Answer>> {
        if file.groups.is_used() || file.lease.is_mapped() {
            return Ok(Err(Answer::Never));
        }
        if file.lease.is_direct() {
            return Ok(Err(Answer::Later));
        }
        // One at a time: the kernel may have to wait for other requests meanwhile, which the other
        // threads answer.
        let Ok(turn) = lending.turn.try_lock() else { return Ok(Err(Answer::Later)) };
        // Who may keep set-user-ID and set-group-ID writes by way of the kernel, which asks for
        // them to be taken away from files that others write to.
        self.take_privileges(file, Privileges::Keep);
        if file.privileges.need_look(Privileges::Clear) {
            return Ok(Err(Answer::Never));
        }
        if !self.open_files.is_made_pooled(file)? {
            return Ok(Err(Answer::Never));
        }
        // Programs ask for a share from now on, and make no requests that would be in the way.
        self.open_files.say_lending(Some(file));
        let tried = |_| self.lend_unless_used(of, file, &asked, lending).transpose();
        let lent = (0..LEND_TRIES).find_map(tried).transpose();
        self.open_files.say_lending(None);
        drop(turn);
        Ok(lent?.ok_or(Answer::Later).flatten())
    }

    /// Lends a file, or says why not. None: programs used it meanwhile.
    fn lend_unless_used(
        &self,
        (node, handle): (NodeId, Handle),
        file: &Arc<OpenFile>,
        asked: &Range<u64>,
        lending: &Lending,
    ) -> Result<Option<std::result::Result<LeaseGrant, Answer>>> {
        let requests = file.lease.requests();
        let had_pages = file.lease.take_pages();
        let size = self.open_files.size(file)?.unwrap_or(0);
        let dropped = if had_pages { lending.drop_caches(node, size) } else { lending.drop_attributes(node) };
        if had_pages && !dropped {
            file.lease.may_have_pages();
        }
        let lent = if dropped { self.open_files.lend((file, handle), requests, asked.clone())? } else { None };
        Ok((lent.is_some() || !dropped || file.lease.requests() == requests).then(|| lent.ok_or(Answer::Later)))
    }

    fn read_by_lease(&self, header: &Header, handle: Handle, read: &mut Read) -> Result<Answer> {
        let file = self.handles.lent_file(handle)?;
        let is_read = self.open_files.read_leased(&file, Requested::by(header, Caching::Usual), read)?;
        Ok(if is_read { Answer::Granted } else { Answer::Later })
    }

    fn change_lease(&self, ioctl: &Ioctl<'_>, lease: u64, lending: &Lending) -> Result<Answer> {
        let file = self.handles.lent_file(ioctl.handle)?;
        if ioctl.command == EXTEND {
            let extended = self.open_files.extend(&file, lease)?;
            return Ok(if extended { Answer::Granted } else { Answer::Later });
        }
        self.open_files.leave(&file, lease, lending.pool())?;
        // This request waits for no page, so what the kernel is told may wait for those that do.
        self.tell_kernel();
        Ok(Answer::Granted)
    }

    /// Takes back leases that were granted by a handle which is closed.
    pub(crate) fn end_leases_of(&self, handle: Handle) {
        let Some(lending) = self.lending.get() else { return };
        for lease in self.open_files.leases.without_handle(handle) {
            if let Err(errno) = self.open_files.reap(lease, Grace::None, lending.pool()) {
                tracing::warn!("the lease of a closed file is not taken back: {errno}");
            }
        }
    }

    /// Takes back leases whose programs are gone, and tells the kernel what it does not know.
    pub(crate) fn look_at_leases(&self) {
        if let Some(lending) = self.lending.get() {
            self.open_files.reap_all(lending.pool());
            self.open_files.end_mappings(lending.pool());
            self.tell_kernel();
        }
    }

    /// Tells the kernel what changed behind its back, unless another thread does: that one goes on
    /// until there is nothing left. No request of this thread may wait for a page.
    pub(crate) fn tell_kernel(&self) {
        let Some(lending) = self.lending.get() else { return };
        while self.open_files.leases.has_stale() {
            let Ok(turn) = lending.turn.try_lock() else { return };
            for StalePages(node, pages) in self.open_files.leases.take_stale() {
                lending.drop_pages(node, pages);
            }
            drop(turn);
        }
    }

    /// Lends files from now on.
    pub(crate) fn begin_lending(&self, lending: Lending) {
        let _ = self.lending.set(lending);
    }
}

fn tell(claim: &mut Claim, grant: &LeaseGrant) {
    let LeaseGrant { lease, log, blocks_at, size, room: [from, until] } = *grant;
    claim.lease = lease.into();
    claim.log_at = log.at.into();
    claim.log_elements = u64::from(log.elements).into();
    claim.blocks_at = blocks_at.into();
    claim.size = size.into();
    (claim.room_from, claim.room_until) = (from.into(), until.into());
}

/// The message that a program passes.
fn taken<T: FromBytes + KnownLayout + Immutable>(ioctl: &Ioctl<'_>) -> Result<T> {
    if ioctl.directory {
        return Err(Errno::NOTTY);
    }
    T::read_from_bytes(ioctl.input).map_err(|_| Errno::INVAL)
}

/// The message as answered.
fn put<'b, T: IntoBytes + Immutable>(ioctl: &Ioctl<'_>, message: &T, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
    let bytes = message.as_bytes();
    if ioctl.directory || usize::try_from(ioctl.output_bytes).is_ok_and(|room| room < bytes.len()) {
        return Err(Errno::INVAL);
    }
    let output = buffer.get_mut(..bytes.len()).ok_or(Errno::INVAL)?;
    output.copy_from_slice(bytes);
    Ok(Reply::ioctl(0, output))
}
