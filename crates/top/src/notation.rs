//! Numbers as the table shows them, in few characters.

use crate::figure::Figure;
use tidegate_host::units::Human;

/// Shown where a number needs a second answer.
const AWAITED: &str = "…";

/// Shown where there is no such number.
const ABSENT: &str = "–";

/// Shows a figure by `known`, or why there is none.
pub(crate) fn figure(figure: Figure, known: impl FnOnce(f64) -> String) -> String {
    match figure {
        Figure::Known(number) => known(number),
        Figure::Awaited => AWAITED.to_owned(),
        Figure::Absent => ABSENT.to_owned(),
    }
}

/// Things in a second: `0`, `7.5`, `812`, `12.3k`.
pub(crate) fn count(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{number:.1}"),
        ..10_000.0 => format!("{number:.0}"),
        ..10_000_000.0 => format!("{:.1}k", number / 1e3),
        _ => format!("{:.1}M", number / 1e6),
    }
}

/// Bytes: `31.9 MiB`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are no negative number")]
pub(crate) fn bytes(number: f64) -> String {
    Human(number as u64).to_string()
}

/// Microseconds: `7.2 µs`, `1.5 ms`, `2.1 s`.
pub(crate) fn microseconds(number: f64) -> String {
    match number {
        ..1e3 => format!("{number:.1} µs"),
        ..1e6 => format!("{:.1} ms", number / 1e3),
        _ => format!("{:.1} s", number / 1e6),
    }
}

/// Seconds to go, or gone: `12 s`, `3 min`, `2.1 h`.
pub(crate) fn seconds(number: f64) -> String {
    match number {
        ..120.0 => format!("{number:.0} s"),
        ..7_200.0 => format!("{:.0} min", number / 60.0),
        ..172_800.0 => format!("{:.1} h", number / 3_600.0),
        _ => format!("{:.0} d", number / 86_400.0),
    }
}

/// A share of everything: `93 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_characters_whatever_their_size() {
        assert_eq!([0.0, 0.04, 7.46, 812.4, 12_345.0, 5e7].map(count), ["0", "0.0", "7.5", "812", "12.3k", "50.0M"]);
        assert_eq!([0.0, 4096.7, 3e9].map(bytes), ["0 B", "4 KiB", "2.79 GiB"]);
        assert_eq!([7.24, 1_500.0, 2.1e6].map(microseconds), ["7.2 µs", "1.5 ms", "2.1 s"]);
        assert_eq!([0.4, 119.0, 180.0, 7_560.0, 864_000.0].map(seconds), ["0 s", "119 s", "3 min", "2.1 h", "10 d"]);
        assert_eq!(percent(0.934), "93 %");
        let longest = [u64::MAX as f64, (1u64 << 30) as f64 - 1.0].map(bytes);
        assert!(longest.iter().all(|text| text.chars().count() <= 11), "{longest:?}");
    }

    #[test]
    fn a_number_that_is_not_there_says_why() {
        assert_eq!(
            [Figure::Known(1.0), Figure::Awaited, Figure::Absent].map(|of| figure(of, count)),
            ["1.0", "…", "–"]
        );
    }
}
