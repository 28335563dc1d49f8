//! The last line about each volume when a server ends, and the report to clients that wait for it.

use crate::errors::{Exit, Failure, Report};
use crate::output;
use serde::Serialize;
use tidegate_server::control::last_words::EndReport;
use tidegate_server::shutdown::Farewell;

/// Tells it on stderr.
pub(super) fn tell(farewell: &Farewell, json: bool) {
    #[derive(Serialize)]
    struct Line<'a> {
        ended: &'a Farewell,
    }
    let line = match json {
        true => serde_json::to_string(&Line { ended: farewell }).expect("strings and numbers have a JSON form"),
        false => format!("tidegate: ended: {farewell}"),
    };
    output::on_stderr(&line);
}

/// What whoever waits for the end is told: every volume's farewell, and how the server ends.
pub(super) fn end_report(farewells: &[Farewell], exit: &Result<Exit, Failure>) -> EndReport {
    let trouble = exit.as_ref().err().and_then(Option::<Report>::from);
    let failed = trouble.as_ref().map_or(Exit::Done, |report| report.exit);
    EndReport {
        ended: farewells.iter().filter_map(|farewell| serde_json::to_value(farewell).ok()).collect(),
        lines: farewells.iter().map(ToString::to_string).collect(),
        exit: *exit.as_ref().unwrap_or(&failed) as u8,
        trouble: trouble.map(|report| format!("{}: {}", report.what, report.why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farewell() -> Farewell {
        let (name, file) = ("v".to_owned(), "/v w".into());
        Farewell { name, file, clients_cut: 2, flushed: true, quiet: false, disk: None }
    }

    #[test]
    fn whoever_waits_for_the_end_hears_how_the_server_ends() {
        let told = |exit| end_report(&[farewell()], &exit);
        let cut = told(Ok(Exit::Interrupted));
        assert_eq!((cut.exit, cut.trouble, cut.lines.len()), (6, None, 1));
        assert_eq!(cut.ended[0]["clients_cut"], 2);
        let unflushed = told(Err(Failure::system("flushing")(std::io::ErrorKind::Other.into())));
        assert!(unflushed.exit == 1 && unflushed.trouble.is_some_and(|trouble| trouble.contains("flushing")));
    }
}
