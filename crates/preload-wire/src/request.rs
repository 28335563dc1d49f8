//! Requests and answers as words.

use crate::table::FileId;

/// Ranges of the largest sync.
pub const RANGES_MAX: usize = 240;
/// Bytes of the largest packet.
pub const PACKET_BYTES_MAX: usize = (FIXED_WORDS + 2 * RANGES_MAX) * 8;

/// Bytes of the longest answer to [`Request::Status`].
pub const STATUS_BYTES_MAX: usize = 64 << 10;

const FIXED_WORDS: usize = 6;

/// Bytes of a file: where, and how many.
pub type Range = (u64, u64);

/// What a program asks of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Let me hold the file behind the descriptor that comes with the packet. What was written to
    /// it before the answer I make durable myself.
    Hold,
    /// Let me hold the name of the file behind the descriptor that comes with the packet: I make
    /// files with that name, and remove them again.
    HoldName,
    /// Let me write the file behind the descriptor that comes with the packet in common with
    /// others: it is held by another process, or common already.
    Join,
    /// Make a file durable that is common: all that was noted of it, and its size.
    Sync {
        /// The file.
        file: FileId,
        /// Its mark, as I know it.
        mark: u16,
        /// Its mode and owner too.
        whole: bool,
    },
    /// Make these ranges of a file that I hold durable, and its size.
    Keep {
        /// The number of the hold.
        hold: u64,
        /// The file's size.
        size: u64,
        /// The filling of my strip that counts no more when this is done; 0: none.
        filling: u32,
        /// What was written since the last sync, and what that filling is about.
        ranges: &'a [Range],
    },
    /// The same of a filling that I have handed over: I go on with my other strip, and read the
    /// answer before I ask for anything else.
    Absorb {
        /// The number of the hold.
        hold: u64,
        /// The file's size.
        size: u64,
        /// The filling, which counts no more when this is done.
        filling: u32,
        /// What it is about.
        ranges: &'a [Range],
    },
    /// I made all of the file durable myself: forget what was kept of it. I go on holding it.
    Forget {
        /// The number of the hold.
        hold: u64,
    },
    /// Bring the file to its disk, and let nobody hold it until it is asked for anew.
    Settle(FileId),
    /// Bring the file to its disk, and let nobody hold it any more: its writers cannot all be seen.
    Abandon {
        /// The file.
        file: FileId,
        /// When it was born, in nanoseconds since 1970, if that is known: what later has its number
        /// is another file.
        born_ns: Option<u64>,
    },
    /// Bring all files to their disks, and let nobody hold them until they are asked for anew.
    SettleAll,
    /// Tell what is held: the answer is a text of at most [`STATUS_BYTES_MAX`] bytes.
    Status,
}

/// What the supervisor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The file is held.
    Held {
        /// The number of the hold.
        hold: u64,
        /// The holder's number, as in the table.
        holder: u64,
        /// The file's slot.
        slot: u32,
        /// Where in the pool a pair of strips for it lies, and how many bytes both are; none: it
        /// gets none.
        strip: Option<Range>,
    },
    /// The file is common, and this is its mark.
    Joined {
        /// The mark.
        mark: u16,
    },
    /// What was kept is forgotten. The file has another slot from now on.
    Anew {
        /// The slot.
        slot: u32,
    },
    /// The file cannot be held.
    Refused,
    /// There is no room to keep this, or no means: sync by the kernel, then [`Request::Forget`].
    ByKernel,
    /// You do not hold the file any more: sync by the kernel.
    NotHeld,
}

/// On which core a request had better be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On this one: who asked waits there.
    On(u64),
    /// On another one: who asked goes on there.
    Off(u64),
}

/// A packet that is no request, or no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRequest;

const HOLD: u64 = 1;
const KEEP: u64 = 2;
const FORGET: u64 = 3;
const SETTLE: u64 = 4;
const ABANDON: u64 = 5;
const SETTLE_ALL: u64 = 6;
const STATUS: u64 = 7;
const ABSORB: u64 = 8;
const HOLD_NAME: u64 = 9;
const JOIN: u64 = 10;
const SYNC: u64 = 11;

impl Request<'_> {
    /// Writes the packet to the beginning of `packet`, and returns its bytes. It is sent from core
    /// `core`. More than [`RANGES_MAX`] ranges are the caller's mistake: those behind are cut off.
    pub fn write<'p>(&self, core: u64, packet: &'p mut [u8; PACKET_BYTES_MAX]) -> &'p [u8] {
        let fixed = match *self {
            Request::Hold => [HOLD, 0, 0, 0, 0],
            Request::HoldName => [HOLD_NAME, 0, 0, 0, 0],
            Request::Join => [JOIN, 0, 0, 0, 0],
            Request::Sync { file, mark, whole } => [SYNC, file.device, file.inode, whole.into(), mark.into()],
            Request::Keep { hold, size, filling, ranges } => {
                [KEEP, hold, size, ranges.len().min(RANGES_MAX) as u64, filling.into()]
            }
            Request::Absorb { hold, size, filling, ranges } => {
                [ABSORB, hold, size, ranges.len().min(RANGES_MAX) as u64, filling.into()]
            }
            Request::Forget { hold } => [FORGET, hold, 0, 0, 0],
            Request::Settle(file) => [SETTLE, file.device, file.inode, 0, 0],
            Request::Abandon { file, born_ns } => [ABANDON, file.device, file.inode, born_ns.unwrap_or(0), 0],
            Request::SettleAll => [SETTLE_ALL, 0, 0, 0, 0],
            Request::Status => [STATUS, 0, 0, 0, 0],
        };
        let ranges = match self {
            Request::Keep { ranges, .. } | Request::Absorb { ranges, .. } => ranges,
            _ => &[][..],
        };
        let words =
            fixed.into_iter().chain([core]).chain(ranges.iter().take(RANGES_MAX).flat_map(|(at, len)| [*at, *len]));
        let mut bytes = 0;
        for (place, word) in packet.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
            bytes += 8;
        }
        &packet[..bytes]
    }

    /// Where the request in a packet had better be answered: it says from which core it was sent.
    pub fn place_of(packet: &[u8]) -> Option<Where> {
        let core = words(packet).nth(FIXED_WORDS - 1)?;
        Some(if words(packet).next() == Some(ABSORB) { Where::Off(core) } else { Where::On(core) })
    }

    /// Reads a packet; `ranges` takes what it has of them.
    pub fn read<'r>(packet: &[u8], ranges: &'r mut Vec<Range>) -> Result<Request<'r>, NoRequest> {
        let mut words = words(packet);
        let mut fixed = [0; FIXED_WORDS];
        for word in &mut fixed {
            *word = words.next().ok_or(NoRequest)?;
        }
        let [kind, first, second, count, filling, _] = fixed;
        let file = FileId { device: first, inode: second };
        Ok(match kind {
            HOLD => Request::Hold,
            HOLD_NAME => Request::HoldName,
            JOIN => Request::Join,
            SYNC => {
                let mark = u16::try_from(filling).map_err(|_| NoRequest)?;
                Request::Sync { file, mark, whole: count != 0 }
            }
            KEEP | ABSORB => {
                ranges.clear();
                while let (Some(at), Some(len)) = (words.next(), words.next()) {
                    at.checked_add(len).ok_or(NoRequest)?;
                    ranges.push((at, len));
                }
                if ranges.len() as u64 != count {
                    return Err(NoRequest);
                }
                let filling = u32::try_from(filling).map_err(|_| NoRequest)?;
                let (hold, size) = (first, second);
                match kind {
                    KEEP => Request::Keep { hold, size, filling, ranges },
                    _ => Request::Absorb { hold, size, filling, ranges },
                }
            }
            FORGET => Request::Forget { hold: first },
            SETTLE => Request::Settle(file),
            ABANDON => Request::Abandon { file, born_ns: (count != 0).then_some(count) },
            SETTLE_ALL => Request::SettleAll,
            STATUS => Request::Status,
            _ => return Err(NoRequest),
        })
    }
}

impl Answer {
    /// Bytes of an answer.
    pub const BYTES: usize = 48;

    /// The answer's packet.
    pub fn bytes(&self) -> [u8; Answer::BYTES] {
        let words = match *self {
            Answer::Done => [1, 0, 0, 0, 0, 0],
            Answer::Held { hold, holder, slot, strip } => {
                let (at, len) = strip.unwrap_or_default();
                [2, hold, holder, slot.into(), at, len]
            }
            Answer::Refused => [3, 0, 0, 0, 0, 0],
            Answer::ByKernel => [4, 0, 0, 0, 0, 0],
            Answer::NotHeld => [5, 0, 0, 0, 0, 0],
            Answer::Anew { slot } => [6, slot.into(), 0, 0, 0, 0],
            Answer::Joined { mark } => [7, mark.into(), 0, 0, 0, 0],
        };
        let mut bytes = [0; Answer::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_le_bytes(word));
        }
        bytes
    }

    /// Reads an answer's packet.
    pub fn read(packet: &[u8]) -> Result<Answer, NoRequest> {
        let mut fixed = [0; Answer::BYTES / 8];
        let mut words = words(packet);
        for word in &mut fixed {
            *word = words.next().ok_or(NoRequest)?;
        }
        let slot = |word| u32::try_from(word).map_err(|_| NoRequest);
        match fixed {
            [1, ..] => Ok(Answer::Done),
            [2, hold, holder, number, at, len] => {
                let strip = (len > 0).then_some((at, len));
                Ok(Answer::Held { hold, holder, slot: slot(number)?, strip })
            }
            [3, ..] => Ok(Answer::Refused),
            [4, ..] => Ok(Answer::ByKernel),
            [5, ..] => Ok(Answer::NotHeld),
            [6, number, ..] => Ok(Answer::Anew { slot: slot(number)? }),
            [7, mark, ..] => Ok(Answer::Joined { mark: u16::try_from(mark).map_err(|_| NoRequest)? }),
            _ => Err(NoRequest),
        }
    }
}

fn words(packet: &[u8]) -> impl Iterator<Item = u64> + '_ {
    packet.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let file = FileId { device: 3, inode: 4 };
        let ranges = [(0, 100), (4096, 1)];
        let keep = Request::Keep { hold: 7, size: 9, filling: 3, ranges: &ranges };
        let absorb = Request::Absorb { hold: 7, size: 9, filling: 3, ranges: &ranges };
        let abandon = |born_ns| Request::Abandon { file, born_ns };
        let others = [Request::Forget { hold: 1 }, Request::Settle(file), abandon(None), abandon(Some(7))];
        let common = [
            Request::Join,
            Request::Sync { file, mark: 9, whole: true },
            Request::Sync { file, mark: 9, whole: false },
        ];
        let others = others.into_iter().chain(common).chain([Request::Hold, Request::HoldName]);
        for request in others.chain([keep, absorb, Request::SettleAll, Request::Status]) {
            let mut packet = [0; PACKET_BYTES_MAX];
            let packet = request.write(3, &mut packet);
            assert_eq!(Request::read(packet, &mut Vec::new()), Ok(request));
            let place = if request == absorb { Where::Off(3) } else { Where::On(3) };
            assert_eq!(Request::place_of(packet), Some(place));
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let held = |strip| Answer::Held { hold: 1, holder: 2, slot: 64, strip };
        let held = [held(None), held(Some((4096, 8192)))];
        let others = [Answer::Done, Answer::Refused, Answer::ByKernel, Answer::NotHeld, Answer::Anew { slot: 65 }];
        let others = others.into_iter().chain([Answer::Joined { mark: 0x8001 }]);
        for answer in held.into_iter().chain(others) {
            assert_eq!(Answer::read(&answer.bytes()), Ok(answer));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let read = |packet: &[u8]| Request::read(packet, &mut Vec::new()).is_err();
        assert!(read(&[]) && read(&[9; 32]) && read(&[1; 8]));
        let overflowing = Request::Keep { hold: 1, size: 1, filling: 0, ranges: &[(u64::MAX, 2)] };
        assert!(read(overflowing.write(0, &mut [0; PACKET_BYTES_MAX])));
        assert_eq!(Answer::read(&[0; Answer::BYTES]), Err(NoRequest));
    }
}
