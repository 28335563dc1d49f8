//! Slots in a circle, and a hand that passes over those asked for since its last round.

use super::Evict;

/// Gives up the next slot in the circle that was not asked for since the hand passed it.
pub struct Clock {
    states: Box<[State]>,
    hand: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Unknown,
    Passed,
    Asked,
}

impl Clock {
    /// The policy over `slots` slots.
    pub fn new(slots: u32) -> Clock {
        Clock { states: vec![State::Unknown; slots as usize].into(), hand: 0 }
    }
}

impl Evict for Clock {
    fn slots(&self) -> u32 {
        u32::try_from(self.states.len()).expect("made from a u32")
    }

    fn insert(&mut self, slot: u32, _: u64) {
        self.states[slot as usize] = State::Passed;
    }

    fn touch(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        if *state == State::Passed {
            *state = State::Asked;
        }
    }

    fn remove(&mut self, slot: u32) {
        self.states[slot as usize] = State::Unknown;
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let slots = self.slots();
        // In the second round nothing is asked for any more.
        for _ in 0..2 * u64::from(slots) {
            let slot = self.hand;
            self.hand = if slot + 1 == slots { 0 } else { slot + 1 };
            let state = &mut self.states[slot as usize];
            match *state {
                State::Unknown => {}
                State::Asked => *state = State::Passed,
                State::Passed if may_go(slot) => {
                    *state = State::Unknown;
                    return Some(slot);
                }
                State::Passed => {}
            }
        }
        None
    }
}
