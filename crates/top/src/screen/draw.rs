//! The drawing of the screen: a title, a page, and a line that says what keys do.

use crate::columns::{COLUMNS, NAME_WIDTH, TextSide, TopColumn, fitting};
use crate::figure::Figure;
use crate::notation::{bytes, count, figure};
use crate::order::SortKey;
use crate::rows::TopRow;
use crate::samples::Detail;
use crate::screen::view::{TopPage, TopView};
use crate::sources::nothing_runs;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};
use std::ffi::OsStr;

/// Characters of a name among details, unless it is longer.
const DETAIL_NAME_WIDTH: usize = 32;

/// What keys do.
const HELP: [(&str, &str); 10] = [
    ("↑ ↓ j k", "choose a line, or scroll"),
    ("PgUp PgDn Home End", "the same, further"),
    ("Enter", "all numbers of the chosen line"),
    ("Esc", "back to the table"),
    ("s", "sort by the next column"),
    ("r", "sort the other way"),
    ("?", "this help, and back"),
    ("q, Ctrl-C", "quit"),
    ("…", "a rate that needs a second answer"),
    ("–", "no such number, or nothing happened"),
];

/// The styles of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Palette {
    title: Style,
    head: Style,
    chosen: Style,
    bad: Style,
    faint: Style,
}

impl Palette {
    /// Colours, unless the variable `NO_COLOR` has a value.
    pub(crate) fn of(no_color: Option<&OsStr>) -> Palette {
        let plain = Style::new();
        let colour = |colour| if no_color.is_some_and(|value| !value.is_empty()) { plain } else { plain.fg(colour) };
        Palette {
            title: colour(Color::Cyan).add_modifier(Modifier::BOLD),
            head: plain.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            chosen: plain.add_modifier(Modifier::REVERSED),
            bad: colour(Color::Red).add_modifier(Modifier::BOLD),
            faint: colour(Color::DarkGray),
        }
    }
}

/// Draws the screen. `rows`: every line in its order; None: none was looked for yet.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &mut TopView, rows: Option<&[TopRow]>, palette: &Palette) {
    let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
    let [above, middle, below] = areas.areas(frame.area());
    let shown = rows.unwrap_or_default();
    frame.render_widget(Paragraph::new(title(shown, palette)), above);
    match (view.page, view.selected(shown)) {
        (TopPage::Help, _) => lines(frame, middle, help(), &mut view.scrolled),
        (TopPage::Details, Some(at)) => lines(frame, middle, details(&shown[at], palette), &mut view.scrolled),
        (_, Some(at)) => table(frame, middle, (view, shown, at), palette),
        (_, None) => {
            let text = rows.map_or_else(|| "looking for servers and mounts…".to_owned(), |_| nothing_runs());
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), middle);
        }
    }
    frame.render_widget(Paragraph::new(keys(view, below.width, palette)), below);
}

fn title<'a>(rows: &[TopRow], palette: &Palette) -> Line<'a> {
    let silent = rows.iter().filter(|row| row.silent.is_some()).count();
    let mut line =
        Line::from(vec![Span::styled("tidegate top", palette.title), format!("  {} lines", rows.len()).into()]);
    if silent > 0 {
        line.push_span(Span::styled(format!(", {silent} without an answer"), palette.bad));
    }
    line
}

/// What keys do now, and what the screen has no room for.
fn keys<'a>(view: &TopView, width: u16, palette: &Palette) -> Line<'a> {
    let text = match view.page {
        TopPage::Table => {
            let hidden = COLUMNS.len() - fitting(width).0.len();
            let way = if view.order.is_reversed { ", reversed" } else { "" };
            let sorted = format!("q quit  ? help  Enter details  s sort: {}{way}  r reverse", view.order.key);
            if hidden > 0 { format!("{sorted}  ({hidden} columns hidden)") } else { sorted }
        }
        TopPage::Details => "q quit  ? help  Esc back  ↑ ↓ scroll".to_owned(),
        TopPage::Help => "q quit  Esc back".to_owned(),
    };
    Line::styled(text, palette.faint)
}

/// A page of lines, scrolled no further than to its last one.
fn lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>, scrolled: &mut usize) {
    *scrolled = (*scrolled).min(lines.len().saturating_sub(usize::from(area.height)));
    let shown: Vec<_> = lines.into_iter().skip(*scrolled).take(usize::from(area.height)).collect();
    frame.render_widget(Paragraph::new(Text::from(shown)), area);
}

fn help() -> Vec<Line<'static>> {
    HELP.iter().map(|(key, does)| Line::from(format!("{key:<20} {does}"))).collect()
}

fn details<'a>(row: &TopRow, palette: &Palette) -> Vec<Line<'a>> {
    let named = |name: &str, value: &str| Line::from(format!("{name:<DETAIL_NAME_WIDTH$} {value}"));
    let mut lines = vec![Line::styled(format!("{}, {}, {}", row.name, row.kind, row.state), palette.title)];
    for (name, bad) in [("no answer", &row.silent), ("trouble", &row.trouble)] {
        lines.extend(bad.iter().map(|bad| named(name, bad).style(palette.bad)));
    }
    lines.push(named("process", &format!("{} of {}", row.pid, row.user)));
    let numbers = COLUMNS.iter().skip(3).map(|column| (column.head, (column.text)(row)));
    lines.extend(numbers.map(|(head, text)| named(&head.to_lowercase(), &text)));
    lines.extend(row.details.iter().map(|(detail, rate)| named(&detail.name, &with_rate(detail, *rate))));
    lines
}

/// A value, and by how much it grew in a second.
fn with_rate(detail: &Detail, rate: Figure) -> String {
    let value = &detail.value;
    match rate {
        Figure::Absent => value.clone(),
        _ if detail.name.ends_with("_bytes") => format!("{value} ({} per s)", figure(rate, bytes)),
        _ => format!("{value} ({} per s)", figure(rate, count)),
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, (view, rows, at): (&TopView, &[TopRow], usize), palette: &Palette) {
    let (columns, room) = fitting(area.width);
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let name_width = room.min(NAME_WIDTH.max(u16::try_from(longest).unwrap_or(u16::MAX)));
    let widths = columns.iter().enumerate().map(|(index, column)| match index {
        0 => Constraint::Length(name_width),
        _ => Constraint::Length(column.width),
    });
    let heads = columns.iter().map(|column| cell(column, head(column, view)));
    let body = rows.iter().map(|row| {
        let is_bad = row.silent.is_some() || row.trouble.is_some();
        let name = std::iter::once(Cell::from(end_of(&row.name, name_width.into())));
        let numbers = columns.iter().skip(1).map(|column| cell(column, (column.text)(row)));
        Row::new(name.chain(numbers)).style(if is_bad { palette.bad } else { Style::new() })
    });
    let table = Table::new(body, widths).header(Row::new(heads).style(palette.head));
    let table = table.column_spacing(1).row_highlight_style(palette.chosen);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(at));
}

fn cell(column: &TopColumn, text: String) -> Cell<'static> {
    let alignment = match column.side {
        TextSide::Left => Alignment::Left,
        TextSide::Right => Alignment::Right,
    };
    Cell::from(Text::from(text).alignment(alignment))
}

/// A name of which the end tells more than the beginning, as of a path, in so many characters.
fn end_of(name: &str, width: usize) -> String {
    let beyond = name.chars().count().saturating_sub(width);
    if beyond == 0 { name.to_owned() } else { std::iter::once('…').chain(name.chars().skip(beyond + 1)).collect() }
}

/// The head of a column, with a mark if lines are sorted by it.
fn head(column: &TopColumn, view: &TopView) -> String {
    let is_sorted = column.head == column_of(view.order.key);
    let mark = if !is_sorted {
        ""
    } else if view.order.is_reversed {
        "↑"
    } else {
        "↓"
    };
    format!("{}{mark}", column.head)
}

/// The head of the column that a key sorts by.
fn column_of(key: SortKey) -> &'static str {
    match key {
        SortKey::Name => "NAME",
        SortKey::Kind => "KIND",
        SortKey::State => "STATE",
        SortKey::Requests => "REQ/S",
        SortKey::Reads => "READS/S",
        SortKey::Writes => "WRITES/S",
        SortKey::Syncs => "SYNCS/S",
        SortKey::ReadBytes => "READ B/S",
        SortKey::WrittenBytes => "WRITTEN B/S",
        SortKey::P50 => "P50",
        SortKey::P99 => "P99",
        SortKey::Dirty => "DIRTY",
        SortKey::WriteBack => "BACK B/S",
        SortKey::Eta => "ETA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::SortOrder;
    use crate::rows::tests::{mount, volume};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn palette() -> Palette {
        Palette::of(None)
    }

    /// The lines of a screen of this size.
    fn drawn((width, height): (u16, u16), view: &mut TopView, rows: Option<&[TopRow]>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, view, rows, &palette())).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn rows() -> Vec<TopRow> {
        let silent = Some("no answer for 9 s".to_owned());
        vec![volume("db", 5), mount("/srv/app", 5 << 20), TopRow { silent, age_seconds: Some(9.0), ..volume("old", 5) }]
    }

    #[test]
    fn a_usual_screen_has_a_line_for_each_and_says_what_it_hides() {
        let lines = drawn((80, 24), &mut TopView::default(), Some(&rows()));
        assert_eq!(lines[0], "tidegate top  3 lines, 1 without an answer");
        assert!(lines[1].starts_with("NAME↓") && lines[1].contains("STATE"), "{lines:#?}");
        assert!(lines[2].starts_with("db") && lines[2].contains("read-write") && lines[2].contains('…'), "{lines:#?}");
        assert!(lines[3].starts_with("/srv/app") && lines[3].ends_with("5 MiB"), "{lines:#?}");
        assert!(lines[4].starts_with("old") && lines[4].contains("no answer 9 s"), "{lines:#?}");
        assert!(lines[23].starts_with("q quit") && lines[23].contains("s sort: name"), "{lines:#?}");
    }

    #[test]
    fn a_long_name_shows_its_end() {
        assert_eq!(["/srv/app", "/srv/data/app"].map(|name| end_of(name, 8)), ["/srv/app", "…ata/app"]);
        assert_eq!([0, 1].map(|width| end_of("ab", width)), ["…", "…"]);
    }

    #[test]
    fn a_wide_screen_has_every_column() {
        let lines = drawn((200, 10), &mut TopView::default(), Some(&rows()));
        assert!(COLUMNS.iter().all(|column| lines[1].contains(column.head)), "{lines:#?}");
        assert!(!lines[9].contains("hidden"), "{lines:#?}");
    }

    #[test]
    fn a_small_screen_has_the_names_and_states() {
        let lines = drawn((40, 10), &mut TopView::default(), Some(&rows()));
        assert!(lines[2].starts_with("db") && lines[2].contains("read-write"), "{lines:#?}");
        assert!(lines[4].contains("no answer 9 s"), "{lines:#?}");
    }

    #[test]
    fn no_size_and_no_page_is_too_small() {
        for page in [TopPage::Table, TopPage::Details, TopPage::Help] {
            for size in [(1, 1), (1, 3), (2, 2), (3, 1), (9, 4), (10, 200), (300, 2)] {
                for rows in [None, Some(Vec::new()), Some(rows())] {
                    let mut view = TopView { page, scrolled: usize::MAX, ..TopView::default() };
                    drawn(size, &mut view, rows.as_deref());
                }
            }
        }
    }

    #[test]
    fn details_have_every_number_and_scroll_to_the_last_and_no_further() {
        let (row, mut view) =
            (vec![mount("/srv/app", 5 << 20)], TopView { page: TopPage::Details, ..TopView::default() });
        let all = drawn((90, 200), &mut view, Some(&row));
        for expected in ["/srv/app, mount, mounted", "process", "dirty", "written_back_bytes", "policy"] {
            assert!(all.iter().any(|line| line.starts_with(expected)), "{expected}: {all:#?}");
        }
        let last = all[..199].iter().rfind(|line| !line.is_empty()).expect("a line").clone();
        view.scrolled = usize::MAX;
        let end = drawn((90, 10), &mut view, Some(&row));
        assert_eq!(end[8], last);
        assert!(view.scrolled < 200);
    }

    #[test]
    fn where_nothing_runs_the_screen_says_how_to_start_something() {
        let lines = drawn((80, 5), &mut TopView::default(), Some(&[]));
        assert!(lines[1].starts_with("no server or mount of"), "{lines:#?}");
        assert!(drawn((80, 5), &mut TopView::default(), None)[1].starts_with("looking for"));
    }

    #[test]
    fn the_column_that_lines_are_sorted_by_is_marked() {
        for key in SortKey::ALL {
            let mut view = TopView::sorted_by(SortOrder { key, is_reversed: true });
            let lines = drawn((220, 5), &mut view, Some(&rows()));
            assert!(lines[1].contains(&format!("{}↑", column_of(key))), "{key}: {lines:#?}");
        }
    }

    #[test]
    fn no_color_leaves_no_colour() {
        let palette = Palette::of(Some(OsStr::new("1")));
        let styles = [palette.title, palette.head, palette.chosen, palette.bad, palette.faint];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()), "{palette:?}");
        assert_eq!(Palette::of(Some(OsStr::new(""))), Palette::of(None));
        assert!(Palette::of(None).bad.fg.is_some());
    }
}
