//! Traces: the requests of a program, as lines of text.
//!
//! | line | has |
//! | --- | --- |
//! | first | `tidegate-trace 1` |
//! | each other | milliseconds, program context (hexadecimal), file, offset, bytes, kind |
//!
//! Kinds are `r` (read), `w` (write) and `s` (synchronous write). Times never go back. Empty lines
//! and those that begin with `#` say nothing.

use anyhow::{Context, bail, ensure};
use std::fmt::Write;
use tidegate_policy::placement::{IoKind, IoRequest};

/// The first line of a trace.
const HEADER: &str = "tidegate-trace 1";

/// Requests in the order in which a program made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The requests.
    pub requests: Vec<IoRequest>,
}

impl Trace {
    /// Reads a trace.
    pub fn parse(text: &str) -> anyhow::Result<Trace> {
        let mut lines = text.lines().zip(1_u32..);
        let header = lines.next().map(|(line, _)| line);
        ensure!(header == Some(HEADER), "a trace begins with the line {HEADER:?}");
        let mut trace = Trace::default();
        for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
            let request = request(line).with_context(|| format!("line {number}: {line:?}"))?;
            let before_ms = trace.requests.last().map_or(0, |before| before.now_ms);
            ensure!(request.now_ms >= before_ms, "line {number}: time goes back from {before_ms} ms");
            trace.requests.push(request);
        }
        Ok(trace)
    }

    /// Returns the trace as text.
    pub fn text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for IoRequest { now_ms, context, file, offset, bytes, kind } in &self.requests {
            let kind = match kind {
                IoKind::Read => 'r',
                IoKind::Write => 'w',
                IoKind::SyncWrite => 's',
            };
            let _ = writeln!(text, "{now_ms} {context:x} {file} {offset} {bytes} {kind}");
        }
        text
    }
}

fn request(line: &str) -> anyhow::Result<IoRequest> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[now_ms, context, file, offset, bytes, kind] = words.as_slice() else {
        bail!("{} words, and six are needed: milliseconds, context, file, offset, bytes, kind", words.len());
    };
    let kind = match kind {
        "r" => IoKind::Read,
        "w" => IoKind::Write,
        "s" => IoKind::SyncWrite,
        other => bail!("the kind is {other:?}; choose r, w or s"),
    };
    let request = IoRequest {
        now_ms: now_ms.parse().context("milliseconds")?,
        context: u64::from_str_radix(context, 16).context("the program context")?,
        file: file.parse().context("the file")?,
        offset: offset.parse().context("the offset")?,
        bytes: bytes.parse().context("the bytes")?,
        kind,
    };
    ensure!(request.bytes > 0, "a request has at least one byte");
    ensure!(request.offset.checked_add(request.bytes.into()).is_some(), "the end of the request is too far");
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_comes_back_from_its_text() {
        let one = IoRequest { now_ms: 3, context: 0xbeef, file: 2, offset: 4096, bytes: 100, kind: IoKind::SyncWrite };
        let trace = Trace { requests: vec![one, IoRequest { kind: IoKind::Read, now_ms: 4, ..one }] };
        assert_eq!(trace.text(), "tidegate-trace 1\n3 beef 2 4096 100 s\n4 beef 2 4096 100 r\n");
        assert_eq!(Trace::parse(&trace.text()).expect("it is a trace"), trace);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let error = |text: &str| format!("{:#}", Trace::parse(text).expect_err("it is no trace"));
        assert!(error("").contains("begins with"));
        assert!(error("tidegate-trace 1\n\n1 a 1 0 4096 x\n").contains("line 3"));
        assert!(error("tidegate-trace 1\n1 a 1 0 0 r\n").contains("at least one byte"));
        assert!(error("tidegate-trace 1\n1 a 1 0 r\n").contains("5 words"));
        assert!(error("tidegate-trace 1\n2 a 1 0 1 r\n1 a 1 0 1 r\n").contains("goes back"));
        assert!(error(&format!("tidegate-trace 1\n0 a 1 {} 9 r\n", u64::MAX)).contains("too far"));
    }
}
