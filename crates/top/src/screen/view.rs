//! What the screen shows, as keys choose it.

use crate::order::SortOrder;
use crate::rows::{RowId, TopRow};
use crate::screen::keys::PressedKey;

/// Lines that a page key moves by.
const PAGE_LINES: usize = 10;

/// What the screen shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopView {
    /// The order of the table.
    pub(crate) order: SortOrder,
    /// The line that is chosen; the first, if there is none of it.
    pub(crate) chosen: Option<RowId>,
    /// Which page is shown.
    pub(crate) page: TopPage,
    /// Lines above those that a page shows.
    pub(crate) scrolled: usize,
}

/// A page of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopPage {
    /// Every line.
    #[default]
    Table,
    /// All numbers of the chosen line.
    Details,
    /// What keys do.
    Help,
}

/// Whether the screen goes on after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterKey {
    /// It goes on.
    GoesOn,
    /// It ends.
    Ends,
}

impl TopView {
    /// The table in this order.
    pub(crate) fn sorted_by(order: SortOrder) -> TopView {
        TopView { order, ..TopView::default() }
    }

    /// Which of `rows` is chosen.
    pub(crate) fn selected(&self, rows: &[TopRow]) -> Option<usize> {
        let known = self.chosen.as_ref().and_then(|id| rows.iter().position(|row| row.id() == *id));
        known.or(if rows.is_empty() { None } else { Some(0) })
    }

    /// Does what a key says while `rows` are shown.
    pub(crate) fn press(&mut self, key: PressedKey, rows: &[TopRow]) -> AfterKey {
        match key {
            PressedKey::Interrupt | PressedKey::Sign('q') => return AfterKey::Ends,
            PressedKey::Sign('s') => self.order.key = self.order.key.next(),
            PressedKey::Sign('r') => self.order.is_reversed = !self.order.is_reversed,
            PressedKey::Sign('?') => self.show(if self.page == TopPage::Help { TopPage::Table } else { TopPage::Help }),
            PressedKey::Enter if self.page == TopPage::Table && !rows.is_empty() => {
                self.choose(self.selected(rows).unwrap_or(0), rows);
                self.show(TopPage::Details);
            }
            PressedKey::Escape => self.show(TopPage::Table),
            PressedKey::Up | PressedKey::Sign('k') => self.go(rows, |at| at.saturating_sub(1)),
            PressedKey::Down | PressedKey::Sign('j') => self.go(rows, |at| at + 1),
            PressedKey::PageUp => self.go(rows, |at| at.saturating_sub(PAGE_LINES)),
            PressedKey::PageDown => self.go(rows, |at| at + PAGE_LINES),
            PressedKey::Home | PressedKey::Sign('g') => self.go(rows, |_| 0),
            PressedKey::End | PressedKey::Sign('G') => self.go(rows, |_| usize::MAX),
            _ => {}
        }
        AfterKey::GoesOn
    }

    fn show(&mut self, page: TopPage) {
        (self.page, self.scrolled) = (page, 0);
    }

    /// Moves within the page. How far it reaches is known when it is drawn.
    fn go(&mut self, rows: &[TopRow], to: impl Fn(usize) -> usize) {
        match self.page {
            TopPage::Table => self.choose(to(self.selected(rows).unwrap_or(0)), rows),
            TopPage::Details | TopPage::Help => self.scrolled = to(self.scrolled),
        }
    }

    fn choose(&mut self, at: usize, rows: &[TopRow]) {
        self.chosen = rows.get(at).or(rows.last()).map(TopRow::id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::SortKey;
    use crate::rows::tests::{mount, volume};

    fn press(view: &mut TopView, keys: &[PressedKey], rows: &[TopRow]) {
        for key in keys {
            assert_eq!(view.press(*key, rows), AfterKey::GoesOn, "{key:?}");
        }
    }

    fn rows() -> Vec<TopRow> {
        vec![volume("a", 0), volume("b", 0), mount("/c", 0)]
    }

    #[test]
    fn q_and_control_c_end_the_screen_on_every_page() {
        for page in [TopPage::Table, TopPage::Details, TopPage::Help] {
            for key in [PressedKey::Sign('q'), PressedKey::Interrupt] {
                let mut view = TopView { page, ..TopView::default() };
                assert_eq!(view.press(key, &rows()), AfterKey::Ends, "{page:?}");
            }
        }
        press(&mut TopView::default(), &[PressedKey::Sign('c'), PressedKey::Unassigned], &rows());
    }

    #[test]
    fn the_chosen_line_stays_chosen_when_the_order_changes() {
        let (mut view, mut rows) = (TopView::default(), rows());
        press(&mut view, &[PressedKey::Down], &rows);
        assert_eq!(view.selected(&rows), Some(1));
        rows.reverse();
        press(&mut view, &[PressedKey::Sign('r'), PressedKey::Sign('s')], &rows);
        assert_eq!((view.selected(&rows), view.order.key, view.order.is_reversed), (Some(1), SortKey::Kind, true));
        press(&mut view, &[PressedKey::End, PressedKey::Down, PressedKey::PageDown], &rows);
        assert_eq!(rows[view.selected(&rows).expect("one")].name, "a");
        press(&mut view, &[PressedKey::Home, PressedKey::Up, PressedKey::PageUp], &rows);
        assert_eq!(rows[view.selected(&rows).expect("one")].name, "/c");
        assert_eq!(view.selected(&rows[1..]), Some(0), "it is gone");
        assert_eq!(view.selected(&[]), None);
    }

    #[test]
    fn enter_goes_down_and_escape_back() {
        let (mut view, rows) = (TopView::default(), rows());
        press(&mut view, &[PressedKey::Enter], &[]);
        assert_eq!(view.page, TopPage::Table, "there is nothing to look at");
        press(&mut view, &[PressedKey::Down, PressedKey::Enter, PressedKey::Down], &rows);
        assert_eq!((view.page, view.scrolled, view.selected(&rows)), (TopPage::Details, 1, Some(1)));
        press(&mut view, &[PressedKey::Escape], &rows);
        assert_eq!((view.page, view.scrolled, view.selected(&rows)), (TopPage::Table, 0, Some(1)));
        press(&mut view, &[PressedKey::Sign('?')], &rows);
        assert_eq!(view.page, TopPage::Help);
        press(&mut view, &[PressedKey::Sign('?')], &rows);
        assert_eq!(view.page, TopPage::Table);
    }
}
