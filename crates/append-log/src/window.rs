//! The heads of the window as recovery finds them: which chunks lie there, which of their bytes
//! count, and what is damaged.

use crate::error::{Damage, DamageFound};
use crate::superblock::corrupt;
use tidegate_layout::Broken;
use tidegate_layout::append_log::{ChunkSum, Committed, LogHead, LogPlan, LogSlot};
use tidegate_media::{AlignedBytes, Poison, Region};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes that are read at a time to check a chunk.
const READ_BYTES: usize = 64 << 10;

/// The window after its heads were read.
pub(crate) struct Window {
    /// Chunks below this number have a head, or are below.
    pub(crate) prepared: u64,
    /// Chunks below this number are in the file below, or were dropped.
    pub(crate) below: u64,
    /// Where the log ends: the sum of the bytes that count in its last chunk.
    pub(crate) sum: ChunkSum,
    /// Where its durable bytes end.
    pub(crate) end: u64,
    /// Chunks whose words count nothing, as the sync that stored them never ended.
    pub(crate) unended: Vec<u64>,
    /// What is damaged, the lowest first.
    pub(crate) damage: Vec<Damage>,
}

/// A slot as it was read.
type Found = Result<LogSlot, DamageFound>;

impl Window {
    /// Reads all heads, and every chunk that counts and that only the window has. `begin_chunk` is
    /// the chunk where the log begins.
    pub(crate) fn read<R: Region + ?Sized>(region: &R, plan: &LogPlan, begin_chunk: u64) -> Window {
        let chunks = u64::from(plan.chunks);
        let found: Vec<Found> = (0..chunks).map(|slot| read_head(region, plan, slot)).collect();
        let held = found.iter().filter_map(|found| match found {
            Ok(LogSlot::Held { number, is_below, .. }) => Some((*number, *is_below)),
            _ => None,
        });
        let prepared = held.clone().map(|(number, _)| number + 1).max().unwrap_or(0);
        let marked = held.filter(|(_, is_below)| *is_below).map(|(number, _)| number + 1).max();
        // A slot is made ready for another chunk only after its former one was marked.
        let reused = prepared.checked_sub(chunks).map(|former| match of(former, &found) {
            Ok(LogSlot::Blank) => former + 1,
            _ => former,
        });
        let below = marked.max(reused).unwrap_or(0).max(begin_chunk);
        let (prepared, end) = (prepared.max(below), below * plan.chunk_bytes);
        let sum = ChunkSum::new(below);
        let mut window = Window { prepared, below, sum, end, unended: Vec::new(), damage: Vec::new() };
        window.find_end(region, plan, &found);
        window
    }

    /// Walks over the chunks that only the window has, up to the first that is not full.
    fn find_end<R: Region + ?Sized>(&mut self, region: &R, plan: &LogPlan, found: &[Found]) {
        let mut is_over = false;
        for (number, found) in (self.below..=self.prepared).map(|number| (number, of(number, found))) {
            let committed = match found {
                Ok(LogSlot::Held { number: held, committed, .. }) if *held == number => *committed,
                // The slot of the chunk that comes next has its former chunk, or none.
                Ok(_) if number == self.prepared => break,
                found => {
                    let what = found.clone().err().unwrap_or_else(|| lost_number(plan, number));
                    self.is_damaged(plan, number, plan.chunk_bytes, what);
                    break;
                }
            };
            if is_over {
                self.unended.extend((committed.len > 0).then_some(number));
                continue;
            }
            let at = plan.byte_at(number * plan.chunk_bytes);
            let sum = sum_of(region, number, at, committed.len).map_err(DamageFound::Unreadable);
            self.sum = match sum.and_then(|sum| verified(at, sum, committed)) {
                Ok(sum) => sum,
                Err(what) => {
                    self.is_damaged(plan, number, u64::from(committed.len), what);
                    ChunkSum::new(number)
                }
            };
            let len = u64::from(committed.len);
            self.end = number * plan.chunk_bytes + len;
            is_over = len < plan.chunk_bytes;
            if !is_over {
                self.sum = ChunkSum::new(number + 1);
            }
        }
    }

    fn is_damaged(&mut self, plan: &LogPlan, number: u64, len: u64, found: DamageFound) {
        let from = number * plan.chunk_bytes;
        self.damage.push(Damage { from, to: from + len, found });
    }
}

fn of(number: u64, found: &[Found]) -> &Found {
    let slot = number % found.len() as u64;
    &found[usize::try_from(slot).unwrap_or(0)]
}

fn lost_number(plan: &LogPlan, number: u64) -> DamageFound {
    let broken = Broken {
        rule: "the slot of a chunk that was made ready has its number",
        offset: LogHead::NUMBER_AT,
        found: "another one".to_owned(),
    };
    DamageFound::Broken(corrupt(plan.head_at(number), broken))
}

fn read_head<R: Region + ?Sized>(region: &R, plan: &LogPlan, slot: u64) -> Found {
    let mut head = LogHead::new_zeroed();
    let at = plan.head_at(slot);
    region.read(at, head.as_mut_bytes()).map_err(DamageFound::Unreadable)?;
    head.check(slot, plan).map_err(|broken| DamageFound::Broken(corrupt(at, broken)))
}

/// The bytes that count in chunk `number`, of which `durable` are known to, followed by zeroes up
/// to a multiple of `block` bytes. The chunk may grow meanwhile.
pub(crate) fn read_chunk<R: Region + ?Sized>(
    region: &R,
    plan: &LogPlan,
    (number, durable): (u64, u64),
    block: u32,
) -> Result<AlignedBytes, DamageFound> {
    let word_at = plan.head_at(number) + LogHead::COMMITTED_AT;
    let committed = Committed::of_word(region.load_u64(word_at)?);
    if !(durable..=plan.chunk_bytes).contains(&u64::from(committed.len)) {
        let broken = Broken {
            rule: "as many bytes of a chunk count as were synced",
            offset: 0,
            found: committed.len.to_string(),
        };
        return Err(DamageFound::Broken(corrupt(word_at, broken)));
    }
    let (at, len) = (plan.byte_at(number * plan.chunk_bytes), committed.len as usize);
    let mut bytes = AlignedBytes::zeroed(len.next_multiple_of(block as usize));
    region.read(at, &mut bytes[..len])?;
    let mut sum = ChunkSum::new(number);
    sum.add(&bytes[..len]);
    verified(at, sum, committed).map(|_| bytes)
}

/// The sum of a chunk's bytes at `at`, if it is the one that the chunk's head says.
fn verified(at: u64, sum: ChunkSum, committed: Committed) -> Result<ChunkSum, DamageFound> {
    if committed.len > 0 && sum.committed() != committed {
        let broken = Broken {
            rule: "the bytes of a chunk have the checksum of its head",
            offset: 0,
            found: format!("{:#x} instead of {:#x}", sum.committed().sum, committed.sum),
        };
        return Err(DamageFound::Broken(corrupt(at, broken)));
    }
    Ok(sum)
}

fn sum_of<R: Region + ?Sized>(region: &R, number: u64, at: u64, len: u32) -> Result<ChunkSum, Poison> {
    let mut sum = ChunkSum::new(number);
    let mut buffer = vec![0; READ_BYTES.min(len as usize)];
    let mut done = 0;
    while done < len as usize {
        let part = READ_BYTES.min(len as usize - done);
        region.read(at + done as u64, &mut buffer[..part])?;
        sum.add(&buffer[..part]);
        done += part;
    }
    Ok(sum)
}
