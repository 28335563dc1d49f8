//! The dull model of the stepper: the contents of its files after so many steps, as whole vectors
//! of bytes.

/// Bytes of a line.
const LINE: u32 = 100;
const SPAN: u32 = 120_000;
const PIECE_MAX: u32 = 6000;

/// The files of a stepper after a number of steps.
#[derive(Clone, Debug)]
pub struct Steps {
    seed: u64,
    /// Steps that were done.
    pub done: u64,
    /// The files, as in [`Steps::NAMES`].
    files: [Vec<u8>; 2],
}

/// One write of a step.
struct Piece {
    file: usize,
    /// None: at the end.
    at: Option<usize>,
    bytes: Vec<u8>,
}

impl Steps {
    /// The files' names.
    pub const NAMES: [&str; 2] = ["pieces", "lines"];

    /// Empty files.
    pub fn new(seed: u64) -> Steps {
        Steps { seed, done: 0, files: [Vec::new(), Vec::new()] }
    }

    /// The stepper's arguments for going on from here.
    pub fn arguments(&self) -> [String; 3] {
        let lines = self.files[1].len() / LINE as usize;
        [self.seed.to_string(), self.done.to_string(), lines.to_string()]
    }

    /// All steps before `done` were done.
    pub fn advance(&mut self, done: u64) {
        while self.done < done {
            self.step().into_iter().for_each(|piece| self.write(&piece));
            self.done += 1;
        }
    }

    /// Whether file `number` may hold `found` when every step so far was synced and the next one
    /// was under way: any of its writes may be there.
    pub fn allows(&self, number: usize, found: &[u8]) -> Result<(), String> {
        let mut next = self.clone();
        let mut states = vec![self.files[number].clone()];
        for piece in self.step() {
            next.write(&piece);
            states.push(next.files[number].clone());
        }
        // The death of a program may interrupt its write: the kernel makes it page by page.
        let (least, most) = (states[0].len(), states[states.len() - 1].len());
        if !(least..=most).contains(&found.len()) {
            return Err(format!("{} has {} bytes, not {least} to {most}", Steps::NAMES[number], found.len()));
        }
        // Of writes that overlap each may be there for itself.
        let may = |at: usize| states.iter().map(move |state| state.get(at).copied().unwrap_or(0));
        let wrong = found.iter().enumerate().find(|(at, byte)| may(*at).all(|state| state != **byte));
        wrong.map_or(Ok(()), |(at, byte)| {
            let may: Vec<_> = may(at).collect();
            Err(format!(
                "byte {at} of {} is {byte}, not one of {may:?}, after {} steps",
                Steps::NAMES[number],
                self.done
            ))
        })
    }

    /// The writes of the next step.
    fn step(&self) -> Vec<Piece> {
        let mut state = self.seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(self.done);
        let mut any = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(state >> 33).expect("31 bits") % below
        };
        let appends = any(3) == 0;
        let writes = if appends { 1 } else { 1 + any(4) };
        let piece = |number| {
            let at = any(SPAN) as usize;
            let len = if appends { LINE } else { 1 + any(PIECE_MAX) };
            let first = self.done.wrapping_mul(131).wrapping_add(u64::from(number) * 17);
            let bytes = (0..len).map(|place| first.wrapping_add(u64::from(place >> 4)).to_le_bytes()[0]).collect();
            Piece { file: usize::from(appends), at: (!appends).then_some(at), bytes }
        };
        (0..writes).map(piece).collect()
    }

    fn write(&mut self, piece: &Piece) {
        let file = &mut self.files[piece.file];
        let at = piece.at.unwrap_or(file.len());
        file.resize(file.len().max(at + piece.bytes.len()), 0);
        file[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
    }
}
