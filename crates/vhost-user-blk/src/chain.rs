//! A request as the guest lays it out: a chain of descriptors, of which the disk reads some and
//! writes the others.
//!
//! The guest may change its memory at any time. So each descriptor is read once, and bytes are
//! copied out of the memory before they are looked at.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The pieces of memory of one request. One value serves many requests, one after the other.
#[derive(Default)]
pub(crate) struct RequestChain {
    /// What the disk reads: the header, then data.
    pub(crate) asked: Pieces,
    /// What the disk writes: data, then the status.
    pub(crate) answer: Pieces,
}

/// Pieces of the guest's memory that belong together, in their order.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: Vec<(GuestAddress, usize)>,
    bytes: usize,
}

/// Some bytes are at no address that the guest has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSuchMemory;

impl RequestChain {
    /// Takes the pieces that `descriptors` name. False: the chain has no end, or no beginning.
    pub(crate) fn collect(&mut self, descriptors: impl Iterator<Item = Descriptor>) -> bool {
        self.asked.clear();
        self.answer.clear();
        let mut ended = false;
        for descriptor in descriptors {
            let pieces = if descriptor.is_write_only() { &mut self.answer } else { &mut self.asked };
            pieces.push(descriptor.addr(), descriptor.len() as usize);
            ended = !descriptor.has_next();
        }
        ended
    }
}

impl Pieces {
    /// Bytes in all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies what is `skip` bytes from the start on into `out`.
    pub(crate) fn copy_to(&self, memory: &GuestMemoryMmap, skip: usize, out: &mut [u8]) -> Result<(), NoSuchMemory> {
        let mut rest = out;
        self.walk(skip, rest.len(), |at, len| {
            let (piece, later) = std::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            memory.read_slice(piece, at)
        })
    }

    /// Copies `data` to where it is `skip` bytes from the start on.
    pub(crate) fn copy_from(&self, memory: &GuestMemoryMmap, skip: usize, data: &[u8]) -> Result<(), NoSuchMemory> {
        let mut rest = data;
        self.walk(skip, rest.len(), |at, len| {
            let (piece, later) = rest.split_at(len);
            rest = later;
            memory.write_slice(piece, at)
        })
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    fn push(&mut self, at: GuestAddress, bytes: usize) {
        self.pieces.push((at, bytes));
        self.bytes += bytes;
    }

    /// Shows `copy` each part of `len` bytes that come after `skip`.
    fn walk<E>(
        &self,
        mut skip: usize,
        mut len: usize,
        mut copy: impl FnMut(GuestAddress, usize) -> Result<(), E>,
    ) -> Result<(), NoSuchMemory> {
        for &(at, bytes) in &self.pieces {
            if len == 0 {
                break;
            }
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let part = len.min(bytes - skip);
            let from = at.0.checked_add(skip as u64).ok_or(NoSuchMemory)?;
            copy(GuestAddress(from), part).map_err(|_| NoSuchMemory)?;
            (skip, len) = (0, len - part);
        }
        if len == 0 { Ok(()) } else { Err(NoSuchMemory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4096), (GuestAddress(4096), 4096)]).expect("memory")
    }

    fn collected(descriptors: &[Descriptor]) -> (RequestChain, bool) {
        let mut chain = RequestChain::default();
        let ended = chain.collect(descriptors.iter().copied());
        (chain, ended)
    }

    #[test]
    fn pieces_are_read_and_written_as_one_row_of_bytes() {
        let memory = memory();
        let (chain, ended) = collected(&[
            Descriptor::new(100, 3, NEXT, 1),
            Descriptor::new(4090, 12, NEXT, 2),
            Descriptor::new(200, 5, WRITE | NEXT, 3),
            Descriptor::new(300, 1, WRITE, 0),
        ]);
        assert!(ended);
        assert_eq!((chain.asked.bytes(), chain.answer.bytes()), (15, 6));
        memory.write_slice(b"abc", GuestAddress(100)).expect("the first piece");
        memory.write_slice(b"defghijklmno", GuestAddress(4090)).expect("over the border of two regions");
        let mut out = [0; 8];
        chain.asked.copy_to(&memory, 2, &mut out).expect("all of it is there");
        assert_eq!(&out, b"cdefghij");
        chain.answer.copy_from(&memory, 4, b"xy").expect("both pieces");
        assert_eq!(memory.read_obj::<u8>(GuestAddress(204)).expect("the end of the first"), b'x');
        assert_eq!(memory.read_obj::<u8>(GuestAddress(300)).expect("the second"), b'y');
        assert_eq!(chain.asked.copy_to(&memory, 14, &mut [0; 2]), Err(NoSuchMemory), "more than there is");
        assert_eq!(chain.answer.copy_from(&memory, 7, b"z"), Err(NoSuchMemory));
    }

    #[test]
    fn addresses_outside_the_memory_are_found_before_anything_is_done_with_them() {
        let memory = memory();
        let (chain, _) = collected(&[
            Descriptor::new(8190, 4, NEXT, 1),
            Descriptor::new(u64::MAX - 1, 4, WRITE | NEXT, 2),
            Descriptor::new(u64::MAX, u32::MAX, WRITE, 3),
        ]);
        assert_eq!(chain.asked.copy_to(&memory, 0, &mut [0; 4]), Err(NoSuchMemory));
        assert_eq!(chain.answer.copy_from(&memory, 0, &[0; 4]), Err(NoSuchMemory));
        assert_eq!(chain.answer.copy_from(&memory, 5, &[0; 4]), Err(NoSuchMemory));
    }

    #[test]
    fn a_chain_without_an_end_is_noticed_and_the_next_one_starts_anew() {
        assert!(!collected(&[]).1);
        let (mut chain, ended) = collected(&[Descriptor::new(0, 16, NEXT, 9)]);
        assert!(!ended);
        assert!(chain.collect([Descriptor::new(0, 1, WRITE, 0)].into_iter()));
        assert_eq!((chain.asked.bytes(), chain.answer.bytes()), (0, 1));
    }
}
