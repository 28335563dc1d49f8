//! A program that answers metrics, asked as Prometheus asks.

use crate::served::program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running program with a port of metrics; it is killed when dropped.
pub struct MetricsProgram {
    child: Child,
    url: String,
    _said: BufReader<ChildStdout>,
}

impl MetricsProgram {
    /// Runs `tidegate` with these words, which have it answer at a port, and waits until it does.
    pub fn begin(words: &[&str]) -> MetricsProgram {
        let mut command = Command::new(program());
        command.args(words).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut said = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says where it answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let url = answer["metrics"].as_str().unwrap_or_else(|| panic!("no place: {answer}")).to_owned();
        MetricsProgram { child, url, _said: said }
    }

    /// The page for browsers beside the metrics.
    pub fn page(&self) -> String {
        self.url.replace("/metrics", "/")
    }

    /// The whole answer to a request for a path.
    pub fn asked(&self, path: &str) -> String {
        let place = self.url.trim_start_matches("http://").trim_end_matches("/metrics");
        let mut stream = TcpStream::connect(place).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// The metrics now.
    pub fn metrics(&self) -> String {
        let answer = self.asked("/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        body.to_owned()
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends it by SIGTERM, in good order.
    pub fn end(mut self) {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for MetricsProgram {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The samples of a text of metrics, by their names with labels as they are written.
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    lines.map(|line| sample(line).unwrap_or_else(|| panic!("no sample: {line}"))).collect()
}
