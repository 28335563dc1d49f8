//! One look at everything: two answers of each source, an interval apart, as a table.

use crate::columns::table;
use crate::options::TopOptions;
use crate::order::SortOrder;
use crate::polling::PolledSource;
use crate::rows::TopRow;
use crate::sources::{Sources, ThisMachine, WatchedSource, nothing_runs};
use serde::Serialize;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Every volume, disk cache and mount, one look at each.
#[derive(Debug, Serialize)]
pub struct Overview {
    rows: Vec<TopRow>,
}

/// Looks at everything twice, an interval apart. A source that does not answer is a row that says
/// so, after 10 s.
pub fn look(options: &TopOptions) -> Overview {
    look_at(&ThisMachine, options)
}

fn look_at(sources: &impl Sources, options: &TopOptions) -> Overview {
    let found = sources.find();
    let look = |source: &WatchedSource| {
        let mut polled = PolledSource::new(source.clone());
        for pause in [Duration::ZERO, options.interval] {
            thread::sleep(pause);
            match sources.ask(source) {
                Ok(None) => return Vec::new(),
                answer => polled.hear(answer),
            }
            if polled.failure.is_some() {
                break;
            }
        }
        TopRow::of(&polled, Instant::now())
    };
    let mut rows: Vec<TopRow> = thread::scope(|threads| {
        let looking: Vec<_> = found.iter().map(|source| threads.spawn(|| look(source))).collect();
        looking.into_iter().flat_map(|rows| rows.join().unwrap_or_default()).collect()
    });
    SortOrder { key: options.sort, is_reversed: false }.sort(&mut rows);
    Overview { rows }
}

impl fmt::Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return f.write_str(&nothing_runs());
        }
        f.write_str(&table(&self.rows))?;
        let told = self.rows.iter().filter_map(|row| Some((row, row.silent.as_ref()?)));
        let mut told = told.map(|(row, why)| format!("\n{}: does not answer: {why}", row.name));
        told.try_for_each(|line| f.write_str(&line))?;
        let mut troubled = self.rows.iter().filter_map(|row| Some((row, row.trouble.as_ref()?)));
        troubled.try_for_each(|(row, trouble)| write!(f, "\n{}: {trouble}", row.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::SortKey;
    use crate::sources::tests::silent;
    use crate::sources::{AskFailure, ServerProcess, SourceAnswer};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_server::sockets::connections::ConnectionCounts;
    use tidegate_server::stats::latency::Latencies;
    use tidegate_server::stats::snapshot::{RequestCounts, Snapshot, VolumeCounts};

    /// Servers: one whose volume reads 10 blocks each second of its own time, and one that is
    /// stuck.
    struct OneStuck(AtomicU64);

    impl Sources for OneStuck {
        fn find(&self) -> Vec<WatchedSource> {
            let server = |pid| WatchedSource::Server(ServerProcess { pid, user: 0, locked: vec!["/pm/stuck".into()] });
            vec![server(1), server(2)]
        }

        fn ask(&self, source: &WatchedSource) -> Result<Option<SourceAnswer>, AskFailure> {
            if matches!(source, WatchedSource::Server(server) if server.pid == 2) {
                return Err(silent());
            }
            let asked = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            let times = Latencies { sum_ns: 0, buckets: vec![(8_000, 10 * asked)] };
            let requests = vec![RequestCounts { kind: "read".to_owned(), errors: 0, bytes: 40_960 * asked, times }];
            let volume = VolumeCounts {
                name: "live".to_owned(),
                pmem: "/pm/live".into(),
                format: String::new(),
                domain: String::new(),
                requests,
                readings: Vec::new(),
                disk: None,
                read_only: false,
                uris: Vec::new(),
            };
            let connections = ConnectionCounts::default();
            let volumes = vec![volume];
            let snapshot = Snapshot { pid: 1, up_ns: asked * 1_000_000_000, connections, volumes };
            Ok(Some(SourceAnswer::Server(Box::new(snapshot))))
        }
    }

    struct Nothing;

    impl Sources for Nothing {
        fn find(&self) -> Vec<WatchedSource> {
            Vec::new()
        }

        fn ask(&self, _: &WatchedSource) -> Result<Option<SourceAnswer>, AskFailure> {
            unreachable!("there is none")
        }
    }

    fn options() -> TopOptions {
        TopOptions { interval: Duration::ZERO, sort: SortKey::default() }
    }

    #[test]
    fn two_answers_give_rates_and_a_stuck_source_is_a_row_that_says_so() {
        let overview = look_at(&OneStuck(AtomicU64::new(0)), &options());
        let json = serde_json::to_value(&overview).expect("numbers and strings");
        let [stuck, live] = [&json["rows"][0], &json["rows"][1]];
        assert_eq!((&stuck["state"], &stuck["silent"]), (&"no answer".into(), &"no answer within 10 s".into()));
        assert_eq!((&stuck["file"], &stuck["reads_per_second"]), (&"/pm/stuck".into(), &serde_json::Value::Null));
        assert_eq!((&live["reads_per_second"], &live["totals"]["reads"]), (&10.0.into(), &20.into()));
        assert_eq!((&live["interval_seconds"], &live["p99_us"]), (&1.0.into(), &8.0.into()));
        let text = overview.to_string();
        assert!(text.ends_with("\n/pm/stuck: does not answer: no answer within 10 s"), "{text}");
    }

    #[test]
    fn where_nothing_runs_the_table_says_how_to_start_something() {
        let overview = look_at(&Nothing, &options());
        assert!(overview.to_string().contains("runs; start one: tidegate serve"), "{overview}");
        assert_eq!(serde_json::to_string(&overview).expect("JSON"), r#"{"rows":[]}"#);
    }
}
