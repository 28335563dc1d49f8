//! The screen: sources that are asked again and again, on the [`terminal`]. [`keys`] choose the
//! [`view`] of them, which [`draw`] draws.

pub(crate) mod draw;
pub(crate) mod keys;
pub(crate) mod terminal;
pub(crate) mod view;

use crate::options::TopOptions;
use crate::order::SortOrder;
use crate::polling::Polling;
use crate::rows::TopRow;
use crate::screen::draw::{Palette, draw};
use crate::screen::terminal::{ShownTerminal, TopFailure};
use crate::screen::view::{AfterKey, TopView};
use crate::sources::ThisMachine;
use std::time::{Duration, Instant};

/// Between two drawings, unless a key is pressed or a signal comes.
const TICK: Duration = Duration::from_millis(200);

/// Shows everything on the terminal until a key or a signal ends it. The terminal is then as it was
/// before.
///
/// # Errors
/// Standard output is no terminal, or the terminal refuses.
pub fn watch(options: &TopOptions) -> Result<(), TopFailure> {
    let mut shown = ShownTerminal::take()?;
    let polling = Polling::begin(ThisMachine, options.interval).map_err(TopFailure::Terminal)?;
    let palette = Palette::of(std::env::var_os("NO_COLOR").as_deref());
    let mut view = TopView::sorted_by(SortOrder { key: options.sort, is_reversed: false });
    loop {
        let round = show(&mut shown, &polling, (&mut view, &palette));
        if shown.is_broken() {
            return Err(TopFailure::Broken);
        }
        match round {
            _ if shown.is_ended() => return Ok(()),
            Ok(AfterKey::Ends) => return Ok(()),
            Ok(AfterKey::GoesOn) => {}
            Err(error) => return Err(TopFailure::Terminal(error)),
        }
    }
}

/// Draws the screen, and does what the keys say that are pressed until the next time.
fn show(
    shown: &mut ShownTerminal,
    polling: &Polling,
    (view, palette): (&mut TopView, &Palette),
) -> std::io::Result<AfterKey> {
    let now = Instant::now();
    let rows = polling.now().map(|polled| {
        let mut rows: Vec<TopRow> = polled.iter().flat_map(|polled| TopRow::of(polled, now)).collect();
        view.order.sort(&mut rows);
        rows
    });
    shown.terminal.draw(|frame| draw(frame, view, rows.as_deref(), palette))?;
    let keys = shown.keyboard.pressed(TICK)?;
    let mut after = keys.into_iter().map(|key| view.press(key, rows.as_deref().unwrap_or_default()));
    Ok(after.find(|after| *after == AfterKey::Ends).unwrap_or(AfterKey::GoesOn))
}
