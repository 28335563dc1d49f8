//! Configuration files and control requests with mistakes in them: the texts in `tests/corpus`, and
//! mutations of them. Each is answered with one of the documented codes or with one line of JSON,
//! and a server that was asked so goes on.
//!
//! A mutation with an answer of a new kind is mutated further. `TIDEGATE_TEXTS` says how many there
//! are. With `TIDEGATE_KEEP_TEXTS` set, those of new kinds become files of the corpus.

use crate::program::{Folder, PATIENCE, Server, json, run};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_sim::Rng;

/// Mutations of each corpus, unless `TIDEGATE_TEXTS` says another number.
const TEXTS: u64 = 60;
/// Bytes of a text at most: less than a control socket reads.
const TEXT_BYTES_MAX: usize = 7 << 10;
/// Letters of an answer, outside of quoted texts, that make its kind.
const KIND_LETTERS: usize = 60;
/// Kinds of answers that are told apart at most.
const KINDS_MAX: usize = 400;
/// Exit codes that `docs/reference/exit-codes.md` has.
const CODES: std::ops::RangeInclusive<i32> = 0..=6;
/// What is put into texts.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "18446744073709551616",
    "1e400",
    "\"\"",
    "[]",
    "{}",
    "[[volume]]",
    "\u{0}",
    "\u{feff}",
    "\"\\u0000\"",
    "null",
    "\n",
    "true",
    "'",
    "\"unix:\"",
];

/// The texts to mutate, and the kinds of answers that there were.
struct Texts {
    folder: PathBuf,
    texts: Vec<Vec<u8>>,
    kinds: BTreeSet<String>,
    rng: Rng,
}

impl Texts {
    /// Those of `tests/corpus` under `name`.
    fn kept(name: &str) -> Texts {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
        let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let texts: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(texts.len() > 3, "the corpus is there");
        Texts { folder, texts, kinds: BTreeSet::new(), rng: Rng::new(1) }
    }

    /// One of the texts, with one to four changes.
    fn mutation(&mut self) -> Vec<u8> {
        let mut text = self.any();
        for _ in 0..=self.rng.below(4) {
            let (from, len) = (self.rng.index(text.len() + 1), self.rng.index(40));
            let to = (from + len).min(text.len());
            match self.rng.below(5) {
                0 => drop(text.drain(from..to)),
                1 => text.insert(from, u8::try_from(self.rng.below(256)).unwrap()),
                2 => {
                    let word = WORDS[self.rng.index(WORDS.len())];
                    drop(text.splice(from..to, word.bytes()));
                }
                3 => {
                    let again = text[from..to].to_vec();
                    drop(text.splice(from..from, again));
                }
                _ => {
                    let other = self.any();
                    let cut = self.rng.index(other.len() + 1);
                    text.truncate(from);
                    text.extend_from_slice(&other[cut..]);
                }
            }
        }
        text.truncate(TEXT_BYTES_MAX);
        text
    }

    fn any(&mut self) -> Vec<u8> {
        let nth = self.rng.index(self.texts.len());
        self.texts[nth].clone()
    }

    /// Learns how `text` was answered.
    fn learn(&mut self, text: Vec<u8>, answer: &str) {
        // Answers quote texts, by three marks. If a text has the first one too, or an escape that
        // may stand for it, the end of a quotation is not seen.
        if text.iter().any(|byte| b"`\\".contains(byte)) {
            return;
        }
        let said = ["`", "\"", "'"].iter().fold(answer.to_owned(), |said, mark| said.split(mark).step_by(2).collect());
        let kind: String = said.chars().filter(char::is_ascii_alphabetic).take(KIND_LETTERS).collect();
        if self.kinds.len() < KINDS_MAX && self.kinds.insert(kind) && !self.texts.contains(&text) {
            if std::env::var_os("TIDEGATE_KEEP_TEXTS").is_some() {
                let mut names = (1..).map(|number| self.folder.join(format!("found-{number}")));
                fs::write(names.find(|path| !path.exists()).unwrap(), &text).unwrap();
            }
            self.texts.push(text);
        }
    }

    /// Has all texts answered, and then mutations.
    fn try_all(&mut self, mut answer: impl FnMut(&[u8]) -> String) {
        for text in self.texts.clone() {
            let answered = answer(&text);
            self.learn(text, &answered);
        }
        let count = std::env::var("TIDEGATE_TEXTS").map_or(TEXTS, |text| text.parse().expect("a number of texts"));
        for _ in 0..count {
            let text = self.mutation();
            let answered = answer(&text);
            self.learn(text, &answered);
        }
        println!("{} kinds of answers, {} texts", self.kinds.len(), self.texts.len());
    }
}

/// The text as a failure shows it.
fn shown(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}

#[test]
fn a_configuration_of_any_text_is_judged() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    let mut texts = Texts::kept("configuration");
    texts.try_all(|text| {
        fs::write(&config, text).unwrap();
        let judged = run(&["config", "check", &config]);
        let is_silent = judged.stdout.is_empty() && judged.stderr.is_empty();
        assert!(CODES.contains(&judged.code) && !is_silent, "{}: {}: {}", judged.code, judged.stderr, shown(text));
        assert!(!judged.stderr.contains("panicked"), "{}: {}", judged.stderr, shown(text));
        (judged.stdout + &judged.stderr).replace(&config, "")
    });
    assert!(texts.kinds.len() > 5, "{:?}", texts.kinds);
}

/// The keys of an answer, and why the server understood nothing: the values quote the request.
fn keys(answer: &serde_json::Value) -> String {
    let of = |(key, value): (&String, &serde_json::Value)| match value.as_str() {
        Some(why) if key == "why" => format!("{key} {why} "),
        _ => format!("{key} {}", keys(value)),
    };
    answer.as_object().map_or_else(String::new, |object| object.iter().map(of).collect())
}

#[test]
fn a_control_socket_answers_any_request_and_its_server_goes_on() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &format!("unix:{}", folder.text("s"))]);
    let control = folder.path("v.control");
    let mut texts = Texts::kept("control");
    texts.try_all(|text| {
        let mut client = UnixStream::connect(&control).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(text).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        let answer: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}: {}", shown(text)));
        assert!(answer.is_object(), "{line}: {}", shown(text));
        keys(&answer)
    });
    assert!(texts.kinds.len() > 3, "{:?}", texts.kinds);
    assert_eq!(json(&["stat", "--pmem", &volume])["pid"], server.pid());
    assert_eq!(server.stop().code(), Some(0));
}
