//! The exceptions to measured rules: a list that may only shrink.
//!
//! A rule measures *breaches*, each under a key: a place (a crate, a page, a file, or `all`), and
//! sometimes an item there. The list stores for each key the exact present sum. Anything larger is
//! an error, and so is anything smaller until the entry is lowered: no exception leaves room to
//! grow into.
//!
//! [`Exceptions::shrunk`] lowers the list to the present figures. A file that moves takes its
//! breaches along to another crate. Entries may follow, because the sum of one rule and item over
//! all places is what may never grow: places that had no entry get one if that sum has not grown,
//! and only then.

use crate::source::Finding;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;

/// Where the list stands.
pub(crate) const LIST: &str = "crates/xtask/exceptions.toml";

/// What the list begins with.
const HEAD: &str = "\
# Sizes beyond the limits of `cargo xtask tidy`. This list may only shrink: an entry stores the exact present size
# of a rule at a place, and has to be lowered or removed with the code it excuses. `cargo xtask tidy --shrink` does
# both. `cargo xtask tidy --report RULE` shows the places behind an entry.
#
# After a merge in which this file conflicts, take either side of it whole and let `--shrink` do the rest:
# `git checkout --theirs crates/xtask/exceptions.toml && cargo xtask tidy --shrink`.
#
# [rule]
# why = \"…\"
# \"place item\" = 61
# \"place\" = { size = 3, why = \"another reason\" }
";

/// A place where a measured rule is broken, and by how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Path from the root of the repository.
    pub(crate) file: String,
    /// Line in the file, from 1.
    pub(crate) line: usize,
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// Place under which an exception may stand, without blanks.
    pub(crate) place: String,
    /// What was measured at the place; empty for the place itself.
    pub(crate) item: String,
    /// Its size now; sizes of one key add up.
    pub(crate) size: usize,
    /// What to do where there is no exception.
    pub(crate) advice: String,
}

/// A place and an item there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    item: String,
    place: String,
}

/// What is excused at a key; a reason of its own goes before the rule's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    size: usize,
    why: Option<String>,
}

/// The entries of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Section {
    why: String,
    entries: BTreeMap<Key, Entry>,
}

/// The list as it stands in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions {
    sections: BTreeMap<String, Section>,
}

impl Measured {
    pub(crate) fn finding(&self) -> Finding {
        Finding { file: self.file.clone(), line: self.line, rule: self.rule, advice: self.advice.clone() }
    }

    fn key(&self) -> Key {
        Key { item: self.item.clone(), place: self.place.clone() }
    }
}

impl Key {
    fn parse(written: &str) -> Key {
        let (place, item) = written.split_once(' ').unwrap_or((written, ""));
        Key { item: item.to_owned(), place: place.to_owned() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place)?;
        if self.item.is_empty() { Ok(()) } else { write!(f, " {}", self.item) }
    }
}

impl Exceptions {
    /// Reads the list from its file's text; no file is an empty list.
    pub(crate) fn parse(text: Option<&str>) -> Result<Exceptions> {
        let table: toml::Table = text.unwrap_or_default().parse().context(LIST)?;
        let mut sections = BTreeMap::new();
        for (rule, section) in table {
            let section = section.as_table().with_context(|| format!("{LIST}: `{rule}` is no table"))?;
            sections.insert(rule.clone(), Section::parse(section).with_context(|| format!("{LIST}: [{rule}]"))?);
        }
        Ok(Exceptions { sections })
    }

    /// What of `measured` no entry excuses, and the entries that no longer fit.
    pub(crate) fn judge(&self, measured: &[Measured]) -> Vec<Finding> {
        let sizes = sizes(measured);
        let unexcused = measured.iter().filter(|m| self.entry(m.rule, &m.key()).is_none()).map(Measured::finding);
        let mut findings: Vec<_> = unexcused.collect();
        for (rule, section) in &self.sections {
            for (key, entry) in &section.entries {
                let size = sizes.get(rule.as_str()).and_then(|sizes| sizes.get(key)).copied();
                if let Some(advice) = section.judge(rule, entry, size) {
                    let advice = format!("{rule} `{key}`: {advice}");
                    findings.push(Finding { file: LIST.to_owned(), line: 1, rule: "exceptions", advice });
                }
            }
        }
        findings
    }

    fn entry(&self, rule: &str, key: &Key) -> Option<&Entry> {
        self.sections.get(rule).and_then(|section| section.entries.get(key))
    }

    /// The list lowered to what is `measured`. An entry follows what moved to another place.
    pub(crate) fn shrunk(&self, measured: &[Measured]) -> Exceptions {
        let sizes = sizes(measured);
        let shrink = |(rule, section): (&String, &Section)| {
            let section = section.shrunk(sizes.get(rule.as_str()).unwrap_or(&BTreeMap::new()));
            (!section.entries.is_empty()).then(|| (rule.clone(), section))
        };
        Exceptions { sections: self.sections.iter().filter_map(shrink).collect() }
    }

    /// The list as the text of its file.
    pub(crate) fn written(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut out = HEAD.to_owned();
        for (rule, section) in &self.sections {
            out.push_str(&format!("\n[{rule}]\nwhy = {}\n", quoted(&section.why)));
            for (key, entry) in &section.entries {
                let value = match &entry.why {
                    None => entry.size.to_string(),
                    Some(why) => format!("{{ size = {}, why = {} }}", entry.size, quoted(why)),
                };
                out.push_str(&format!("{} = {value}\n", quoted(&key.to_string())));
            }
        }
        out
    }
}

impl Section {
    fn parse(table: &toml::Table) -> Result<Section> {
        let mut section = Section::default();
        for (key, value) in table {
            if key == "why" {
                section.why = value.as_str().context("`why` is no text")?.to_owned();
                continue;
            }
            section.entries.insert(Key::parse(key), Entry::parse(value).with_context(|| format!("`{key}`"))?);
        }
        Ok(section)
    }

    fn judge(&self, rule: &str, entry: &Entry, size: Option<usize>) -> Option<String> {
        let why = entry.why.as_ref().unwrap_or(&self.why);
        let shrink = "`cargo xtask tidy --shrink` does it";
        match size {
            _ if why.trim().is_empty() => Some("say why".to_owned()),
            None => Some(format!("not needed any more, remove it: {shrink}")),
            Some(size) if size < entry.size => Some(format!("lower it from {} to {size}: {shrink}", entry.size)),
            Some(size) if size > entry.size => Some(format!(
                "has grown from {} to {size}, shrink it: `cargo xtask tidy --report {rule}` shows the places",
                entry.size
            )),
            Some(_) => None,
        }
    }

    /// Every item apart: its places as they are now if their sum has not grown, its lowered entries
    /// otherwise.
    fn shrunk(&self, sizes: &BTreeMap<Key, usize>) -> Section {
        let sum_before =
            |item: &str| self.entries.iter().filter(|(key, _)| key.item == item).map(|(_, e)| e.size).sum::<usize>();
        let sum_now =
            |item: &str| sizes.iter().filter(|(key, _)| key.item == item).map(|(_, size)| size).sum::<usize>();
        let mut entries = BTreeMap::new();
        for (key, size) in sizes {
            let entry = self.entries.get(key);
            let may_move = sum_now(&key.item) <= sum_before(&key.item);
            let size = match entry {
                _ if may_move => *size,
                Some(entry) => entry.size.min(*size),
                None => continue,
            };
            entries.insert(key.clone(), Entry { size, why: entry.and_then(|entry| entry.why.clone()) });
        }
        Section { why: self.why.clone(), entries }
    }
}

impl Entry {
    fn parse(value: &toml::Value) -> Result<Entry> {
        let size = |value: &toml::Value| {
            let size = value.as_integer().and_then(|size| usize::try_from(size).ok());
            size.context("the size is no number")
        };
        let Some(table) = value.as_table() else { return Ok(Entry { size: size(value)?, why: None }) };
        if let Some(unknown) = table.keys().find(|key| !["size", "why"].contains(&key.as_str())) {
            bail!("`{unknown}` is neither `size` nor `why`");
        }
        let why = table.get("why").and_then(toml::Value::as_str).map(str::to_owned);
        Ok(Entry { size: size(table.get("size").context("no size")?)?, why })
    }
}

/// The sums of `measured` as lines of the list, rule by rule.
pub(crate) fn sums(measured: &[Measured]) -> String {
    let mut out = String::new();
    for (rule, sizes) in sizes(measured) {
        out.push_str(&format!("\n[{rule}]\n"));
        sizes
            .iter()
            .for_each(|(key, size)| out.push_str(&format!("{} = {size}\n", toml::Value::from(key.to_string()))));
    }
    out
}

/// The sum of each key, rule by rule.
fn sizes(measured: &[Measured]) -> BTreeMap<&'static str, BTreeMap<Key, usize>> {
    let mut sizes: BTreeMap<_, BTreeMap<_, usize>> = BTreeMap::new();
    for breach in measured {
        *sizes.entry(breach.rule).or_default().entry(breach.key()).or_default() += breach.size;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(place: &str, size: usize) -> Measured {
        let advice = "shorten".to_owned();
        let (file, item) = (place.to_owned(), "f".to_owned());
        Measured { file, line: 7, rule: "function-length", place: place.into(), item, size, advice }
    }

    fn list(entries: &str) -> Exceptions {
        let text = format!("[function-length]\nwhy = \"a table\"\n{entries}");
        Exceptions::parse(Some(&text)).expect("the sample is a list")
    }

    fn advice(measured: &[Measured]) -> Vec<String> {
        list("\"f.rs f\" = 70").judge(measured).into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn only_the_exact_size_is_excused() {
        assert_eq!(advice(&[measured("f.rs", 70)]), Vec::<String>::new());
        assert_eq!(advice(&[measured("f.rs", 69), measured("f.rs", 1)]), Vec::<String>::new());
        assert!(advice(&[measured("f.rs", 71)])[0].contains("grown"));
        assert!(advice(&[measured("f.rs", 69)])[0].contains("lower"));
        assert!(advice(&[])[0].contains("remove"));
    }

    #[test]
    fn what_no_entry_covers_is_a_finding() {
        let none = Exceptions::parse(None).expect("no list is an empty list");
        assert_eq!(none.judge(&[measured("f.rs", 61)]), [measured("f.rs", 61).finding()]);
        assert!(Exceptions::parse(Some("[rule]\n\"a\" = { unknown = 1 }")).is_err());
        assert!(Exceptions::parse(Some("[rule]\n\"a\" = -1")).is_err());
    }

    #[test]
    fn an_exception_says_why() {
        let silent = Exceptions::parse(Some("[function-length]\n\"f.rs f\" = 70")).expect("the sample is a list");
        assert!(silent.judge(&[measured("f.rs", 70)])[0].advice.contains("say why"));
        let own = list("\"f.rs f\" = { size = 70, why = \"\" }");
        assert!(own.judge(&[measured("f.rs", 70)])[0].advice.contains("say why"));
    }

    #[test]
    fn the_list_shrinks_and_never_grows() {
        let shrunk = |measured: &[Measured]| list("\"f.rs f\" = 70\n\"g.rs f\" = 80").shrunk(measured);
        assert_eq!(shrunk(&[measured("f.rs", 65)]), list("\"f.rs f\" = 65"));
        assert_eq!(shrunk(&[]), Exceptions::default());
        let grown = shrunk(&[measured("f.rs", 90), measured("g.rs", 79)]);
        assert_eq!(grown, list("\"f.rs f\" = 70\n\"g.rs f\" = 79"));
    }

    #[test]
    fn an_entry_follows_what_moved_and_only_that() {
        let list = |entries| list(entries);
        let before = list("\"f.rs f\" = 70");
        assert_eq!(before.shrunk(&[measured("g.rs", 70)]), list("\"g.rs f\" = 70"));
        assert_eq!(before.shrunk(&[measured("g.rs", 71)]), Exceptions::default());
        assert_eq!(before.shrunk(&[measured("f.rs", 61), measured("g.rs", 61)]), list("\"f.rs f\" = 61"));
        let other = Measured { item: "g".into(), ..measured("f.rs", 61) };
        assert_eq!(before.shrunk(&[other]), Exceptions::default());
    }

    #[test]
    fn a_written_list_reads_as_it_was() {
        let before = list("\"f.rs f\" = { size = 3, why = \"a \\\"quoted\\\" reason\" }\n\"g.rs\" = 80");
        assert_eq!(Exceptions::parse(Some(&before.written())).expect("what was written is a list"), before);
    }
}
