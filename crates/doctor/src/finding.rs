//! Findings: what was found, why it matters, and what changes it.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::fmt;

/// How much a finding matters. The greatest one of an examination decides its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be, or nothing that can be changed.
    Ok,
    /// Time or room is wasted, or a feature is not used.
    Advice,
    /// Less survives than users may expect, or work will fail under load.
    Warning,
    /// It does not work now, or one crash of the machine may damage data.
    Fault,
}

impl Level {
    const ALL: [Level; 4] = [Level::Ok, Level::Advice, Level::Warning, Level::Fault];

    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Advice => "advice",
            Level::Warning => "warning",
            Level::Fault => "fault",
        }
    }

    /// So many of them, in words.
    fn counted(self, count: usize) -> String {
        let plural = if count != 1 && matches!(self, Level::Warning | Level::Fault) { "s" } else { "" };
        format!("{count} {}{plural}", self.name())
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DoctorFinding {
    pub(crate) level: Level,
    /// A stable word for scripts: what it is about.
    pub(crate) subject: &'static str,
    /// What was found.
    pub(crate) found: String,
    /// Why it matters.
    pub(crate) why: String,
    /// A command or a setting that changes it. `None`: nothing has to change.
    pub(crate) fix: Option<String>,
}

impl DoctorFinding {
    /// Nothing has to change.
    pub(crate) fn ok(subject: &'static str, found: impl Into<String>, why: impl Into<String>) -> DoctorFinding {
        DoctorFinding { level: Level::Ok, subject, found: found.into(), why: why.into(), fix: None }
    }

    /// `fix` changes what was found.
    pub(crate) fn new(
        (level, subject): (Level, &'static str),
        found: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> DoctorFinding {
        DoctorFinding { level, subject, found: found.into(), why: why.into(), fix: Some(fix.into()) }
    }
}

/// All findings about a machine or a directory, the gravest first. As text it has up to three lines
/// for each; as JSON it has the keys `examined`, `level`, `counts` and `findings`.
#[derive(Debug)]
pub struct Examination {
    examined: String,
    findings: Vec<DoctorFinding>,
}

impl Examination {
    pub(crate) fn new(examined: String, mut findings: Vec<DoctorFinding>) -> Examination {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        Examination { examined, findings }
    }

    /// Returns whether a finding is a fault.
    pub fn has_fault(&self) -> bool {
        self.level() == Level::Fault
    }

    fn level(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }
}

/// How many findings of each level there are.
#[derive(Serialize)]
struct LevelCounts {
    ok: usize,
    advice: usize,
    warning: usize,
    fault: usize,
}

impl Serialize for Examination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [ok, advice, warning, fault] = Level::ALL.map(|level| self.count(level));
        let mut object = serializer.serialize_struct("Examination", 4)?;
        object.serialize_field("examined", &self.examined)?;
        object.serialize_field("level", &self.level())?;
        object.serialize_field("counts", &LevelCounts { ok, advice, warning, fault })?;
        object.serialize_field("findings", &self.findings)?;
        object.end()
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {}", "examined", self.examined)?;
        for DoctorFinding { level, subject, found, why, fix } in &self.findings {
            writeln!(f, "{:<10} {subject}: {found}", level.name())?;
            writeln!(f, "  why: {why}")?;
            if let Some(fix) = fix {
                writeln!(f, "  fix: {fix}")?;
            }
        }
        let counts: Vec<_> = Level::ALL.iter().rev().map(|level| level.counted(self.count(*level))).collect();
        write!(f, "{:<10} {}", "summary", counts.join(", "))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The level of the only finding about `subject`.
    pub(crate) fn level_of(findings: &[DoctorFinding], subject: &str) -> Level {
        let about: Vec<_> = findings.iter().filter(|finding| finding.subject == subject).collect();
        assert_eq!(about.len(), 1, "{subject}: {findings:#?}");
        about[0].level
    }

    fn examination() -> Examination {
        let findings = vec![
            DoctorFinding::ok("kernel", "Linux 6.18", "it has all"),
            DoctorFinding::new((Level::Fault, "fsync"), "fsync = off", "a crash may damage it", "fsync = on"),
            DoctorFinding::new((Level::Warning, "a"), "b", "c", "d"),
        ];
        Examination::new("/db".to_owned(), findings)
    }

    #[test]
    fn the_gravest_finding_stands_first_and_decides() {
        let text = examination().to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["examined   /db", "fault      fsync: fsync = off"]);
        assert_eq!(lines[2..4], ["  why: a crash may damage it", "  fix: fsync = on"]);
        assert_eq!(lines.last(), Some(&"summary    1 fault, 1 warning, 0 advice, 1 ok"));
        assert!(examination().has_fault() && !Examination::new(String::new(), Vec::new()).has_fault());
    }

    #[test]
    fn json_has_the_keys_of_the_reference() {
        let json = serde_json::to_value(examination()).expect("JSON");
        assert_eq!((&json["examined"], &json["level"]), (&"/db".into(), &"fault".into()));
        assert_eq!(json["counts"], serde_json::json!({"ok": 1, "advice": 0, "warning": 1, "fault": 1}));
        let first = serde_json::json!({
            "level": "fault", "subject": "fsync", "found": "fsync = off", "why": "a crash may damage it",
            "fix": "fsync = on",
        });
        assert_eq!(json["findings"][0], first);
        assert_eq!(json["findings"][2]["fix"], serde_json::Value::Null);
    }
}
