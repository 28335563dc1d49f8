//! The exceptions to measured rules: a list that may only shrink.
//!
//! Each entry stores the exact present size. Anything larger is an error, and so is anything smaller until the
//! entry is lowered: no exception leaves room to grow into.

use crate::source::Finding;
use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Where the list stands.
const LIST: &str = "crates/xtask/exceptions.toml";

/// Something a rule measured and found too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Path from the root of the repository.
    pub(crate) file: String,
    /// Line in the file, from 1.
    pub(crate) line: usize,
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// What was measured in the file; empty for the file itself.
    pub(crate) item: String,
    /// Its size now.
    pub(crate) size: usize,
    /// What to do where there is no exception.
    pub(crate) advice: String,
}

/// The list as it stands in its file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: String,
    file: String,
    #[serde(default)]
    item: String,
    size: usize,
    why: String,
}

impl Exceptions {
    /// Reads the list from its file's text; no file is an empty list.
    pub(crate) fn parse(text: Option<&str>) -> Result<Exceptions> {
        text.map_or_else(|| Ok(Exceptions::default()), |text| toml::from_str(text).context(LIST))
    }

    /// What of `measured` no entry excuses, and the entries that no longer fit.
    pub(crate) fn judge(&self, measured: &[Measured]) -> Vec<Finding> {
        let unexcused = measured.iter().filter(|m| !self.exception.iter().any(|e| e.covers(m)));
        let entries = self.exception.iter().filter_map(|entry| entry.judge(measured));
        unexcused.map(Measured::finding).chain(entries).collect()
    }
}

impl Measured {
    fn finding(&self) -> Finding {
        Finding { file: self.file.clone(), line: self.line, rule: self.rule, advice: self.advice.clone() }
    }
}

impl Exception {
    fn covers(&self, measured: &Measured) -> bool {
        self.rule == measured.rule && self.file == measured.file && self.item == measured.item
    }

    fn judge(&self, measured: &[Measured]) -> Option<Finding> {
        let size = measured.iter().filter(|m| self.covers(m)).map(|m| m.size).max();
        let advice = match size {
            _ if self.why.trim().is_empty() => "say why".to_owned(),
            None => "remove the entry: it is not needed any more".to_owned(),
            Some(size) if size < self.size => format!("lower `size` from {} to {size}", self.size),
            Some(size) if size > self.size => format!("has grown from {} to {size}: shrink it", self.size),
            Some(_) => return None,
        };
        let advice = format!("{} `{}` in {}: {advice}", self.rule, self.item, self.file);
        Some(Finding { file: LIST.to_owned(), line: 1, rule: "exceptions", advice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(size: usize) -> Measured {
        let advice = "shorten".to_owned();
        Measured { file: "f.rs".into(), line: 7, rule: "function-length", item: "f".into(), size, advice }
    }

    fn advice(measured: &[Measured]) -> Vec<String> {
        let list =
            "[[exception]]\nrule = \"function-length\"\nfile = \"f.rs\"\nitem = \"f\"\nsize = 70\nwhy = \"a table\"";
        let exceptions = Exceptions::parse(Some(list)).expect("the sample is a list");
        exceptions.judge(measured).into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn only_the_exact_size_is_excused() {
        assert_eq!(advice(&[measured(70)]), Vec::<String>::new());
        assert!(advice(&[measured(71)])[0].contains("grown"));
        assert!(advice(&[measured(69)])[0].contains("lower"));
        assert!(advice(&[])[0].contains("remove"));
    }

    #[test]
    fn what_no_entry_covers_is_a_finding() {
        let none = Exceptions::parse(None).expect("no list is an empty list");
        assert_eq!(none.judge(&[measured(61)]), [measured(61).finding()]);
        assert!(Exceptions::parse(Some("[[exception]]\nunknown = 1")).is_err());
    }
}
