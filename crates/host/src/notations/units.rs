//! Sizes as people write them: `1G`, `512M`, `1GiB`, `4096`. Units are powers of 1024.

use std::fmt;

/// Text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size: {why}")]
pub struct NoSize {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The units a size may end in, each 1024 of the one before, from bytes on.
const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];

/// Reads a size in bytes: digits, then one of K, M, G, T, P (in either case, `iB` or `B` may
/// follow), or nothing.
pub fn parse(text: &str) -> Result<u64, NoSize> {
    let bad = |why| NoSize { text: text.to_owned(), why };
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    if digits.is_empty() {
        return Err(bad("it does not begin with a digit"));
    }
    let power = power_of(unit).ok_or_else(|| bad("what follows the digits is no unit"))?;
    let number: u64 = digits.parse().map_err(|_| bad("it is more than 64 bits hold"))?;
    number.checked_mul(1 << (10 * power)).ok_or_else(|| bad("it is more than 64 bits hold"))
}

/// How many times 1024 a unit stands for.
fn power_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    let letter = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let bare_ib = letter.is_empty() && unit == "IB";
    let power = UNITS.iter().position(|known| *known == letter)?;
    (!bare_ib).then(|| u32::try_from(power).expect("six units"))
}

/// Bytes, shown in the largest unit that keeps three digits true: `1 GiB`, `31.9 MiB`, `512 B`.
pub struct Human(
    /// The bytes.
    pub u64,
);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = (1..UNITS.len()).rev().find(|power| self.0 >> (10 * power) > 0).unwrap_or(0);
        if power == 0 {
            return write!(f, "{} B", self.0);
        }
        let (whole, unit) = (self.0 >> (10 * power), UNITS[power]);
        let parts = (self.0 >> (10 * (power - 1))) & 1023;
        let digits = match whole {
            0..10 => format!("{:02}", parts * 100 / 1024),
            _ => (parts * 10 / 1024).to_string(),
        };
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole} {unit}iB"),
            digits => write!(f, "{whole}.{digits} {unit}iB"),
        }
    }
}

/// Bytes to the last one, where a little more or less matters: `16 MiB and 4 KiB`.
pub struct Exact(
    /// The bytes.
    pub u64,
);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |power: usize| match (self.0 >> (10 * power), power + 1 == UNITS.len()) {
            (rest, true) => Human(rest << (10 * power)),
            (rest, false) => Human((rest & 1023) << (10 * power)),
        };
        let parts = (0..UNITS.len()).rev().map(part).filter(|part| part.0 > 0);
        let parts: Vec<String> = parts.map(|part| part.to_string()).collect();
        if parts.is_empty() { write!(f, "{}", Human(0)) } else { f.write_str(&parts.join(" and ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_in_every_spelling() {
        for text in ["1G", "1g", "1GiB", "1gib", "1GB", "1024M", "1048576K", "1073741824", "1073741824B"] {
            assert_eq!(parse(text).expect(text), 1 << 30, "{text}");
        }
        assert_eq!(parse("0").expect("zero"), 0);
        assert_eq!(parse("2T").expect("tebibytes"), 2 << 40);
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_reason() {
        for (text, phrase) in [
            ("", "digit"),
            ("G", "digit"),
            ("-1", "digit"),
            ("1.5G", "no unit"),
            ("1X", "no unit"),
            ("1iB", "no unit"),
            ("1 G", "no unit"),
            ("1Gé", "no unit"),
            ("99999999999999999999", "64 bits"),
            ("99999999P", "64 bits"),
        ] {
            let NoSize { why, .. } = parse(text).expect_err(text);
            assert!(why.contains(phrase), "{text}: {why}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, shown) in [
            (0, "0 B"),
            (4096, "4 KiB"),
            (1 << 30, "1 GiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            ((10 << 40) - (20 << 30), "9.98 TiB"),
            ((1 << 20) + (51 << 10), "1.04 MiB"),
            (3 << 29, "1.5 GiB"),
        ] {
            assert_eq!(Human(bytes).to_string(), shown);
        }
    }

    #[test]
    fn sizes_that_differ_are_told_apart_to_the_last_byte() {
        for (bytes, shown) in [
            (0, "0 B"),
            (16 << 20, "16 MiB"),
            ((16 << 20) + 4096, "16 MiB and 4 KiB"),
            ((1 << 60) + 1, "1024 PiB and 1 B"),
        ] {
            assert_eq!(Exact(bytes).to_string(), shown);
        }
    }
}
