//! The ack contract: what survives what, by the domain of the memory. The one table: `create`, `serve` and `info` print
//! it, and `docs/guarantees.md` holds the same words.

use serde::Serialize;
use std::fmt;
use tidegate_media::Domain;

/// What is promised when something happens.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Promise {
    /// What happens.
    pub(crate) event: &'static str,
    /// What becomes of a write that completed.
    pub(crate) completed: &'static str,
    /// What becomes of a write before a completed flush, or with FUA.
    pub(crate) flushed: &'static str,
}

const KEPT: &str = "kept";
const CLIENT_DIES: Promise = Promise { event: "kill -9 of a client", completed: KEPT, flushed: KEPT };
const SERVER_DIES: Promise = Promise { event: "kill -9 of the server", completed: KEPT, flushed: KEPT };
const SERVER_DIES_VOLATILE: Promise = Promise { completed: "lost", flushed: "lost", ..SERVER_DIES };
const TORN_BY_KILL: Promise =
    Promise { event: "block torn by a kill -9", completed: "never: old or new", flushed: "never: old or new" };

/// The promises in `domain`, in the order of growing trouble. `cached`: behind a write cache, whose blocks outlive the server and not
/// the power.
pub(crate) fn promises(domain: Domain, cached: bool) -> [Promise; 5] {
    let power = |completed, flushed| Promise { event: "power loss, kernel crash", completed, flushed };
    let torn = |both| Promise { event: "block torn by a power loss", completed: both, flushed: both };
    match domain {
        Domain::PowerFail { .. } => {
            let completed = if cached { "may be lost" } else { KEPT };
            [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power(completed, KEPT), torn("never: old or new")]
        }
        Domain::DiskFile => {
            let torn = Promise {
                event: "block torn by a power loss",
                completed: "possible",
                flushed: "never, until written again",
            };
            [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power("may be lost", KEPT), torn]
        }
        Domain::ProcessCrash => [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power("lost", "lost"), torn("no promise")],
        Domain::Volatile => {
            [CLIENT_DIES, SERVER_DIES_VOLATILE, TORN_BY_KILL, power("lost", "lost"), torn("no promise")]
        }
    }
}

/// What the domain is, in one sentence.
pub(crate) fn meaning(domain: Domain) -> &'static str {
    match domain {
        Domain::PowerFail { .. } => "the platform keeps what was made durable when the power fails",
        Domain::DiskFile => {
            "an ordinary file: flush and FUA end with fdatasync; the volume is checked each time before it opens"
        }
        Domain::ProcessCrash => "memory that outlives processes, not a power loss or a crash of the kernel",
        Domain::Volatile => "memory of this process alone",
    }
}

/// The promises of one domain as columns, for people.
pub(crate) struct Columns {
    /// The memory's domain.
    pub(crate) domain: Domain,
    /// Whether there is a write cache.
    pub(crate) cached: bool,
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<28} {:<20} after flush, with FUA", "", "write completed")?;
        for promise in promises(self.domain, self.cached) {
            writeln!(f, "  {:<28} {:<20} {}", promise.event, promise.completed, promise.flushed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const DOMAINS: [Domain; 4] =
        [Domain::PowerFail { caches_included: false }, Domain::DiskFile, Domain::ProcessCrash, Domain::Volatile];

    /// The promises of all domains as `docs/guarantees.md` has them.
    fn markdown() -> String {
        let mut text = String::new();
        for domain in DOMAINS {
            write!(text, "### `{domain}`: {}\n\n", meaning(domain)).expect("a string takes all");
            text += "| | write completed | after flush, with FUA |\n| --- | --- | --- |\n";
            write_rows(&mut text, domain, false);
        }
        let power_fail = DOMAINS[0];
        write!(text, "### `{power_fail}` behind a write cache\n\n").expect("a string takes all");
        text += "| | write completed | after flush, with FUA |\n| --- | --- | --- |\n";
        write_rows(&mut text, power_fail, true);
        text
    }

    fn write_rows(text: &mut String, domain: Domain, cached: bool) {
        for Promise { event, completed, flushed } in promises(domain, cached) {
            writeln!(text, "| {event} | {completed} | {flushed} |").expect("a string takes all");
        }
        text.push('\n');
    }

    #[test]
    fn a_cache_takes_nothing_from_the_lesser_domains() {
        let words = |domain, cached| format!("{:?}", promises(domain, cached));
        assert!(DOMAINS[1..].iter().all(|domain| words(*domain, false) == words(*domain, true)));
    }

    #[test]
    fn the_document_makes_the_same_promises() {
        let document = include_str!("../../../docs/guarantees.md");
        let expected = markdown();
        assert!(document.contains(expected.trim_end()), "docs/guarantees.md ought to contain:\n\n{expected}");
    }

    #[test]
    fn caches_that_the_platform_saves_change_no_promise() {
        let words = |caches_included| format!("{:?}", promises(Domain::PowerFail { caches_included }, false));
        assert_eq!(words(false), words(true));
    }
}
