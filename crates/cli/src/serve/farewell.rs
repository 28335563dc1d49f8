//! The last line about each volume when a server ends: what became of its clients, whether it was
//! flushed, and what its disk lacks.

use crate::failure::{Exit, Failure};
use crate::flush;
use crate::last_words::Told;
use crate::live_disk::{DiskEnd, LiveDisk};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::shell::word;
use tidegate_host::units::Human;

/// How one volume ended.
#[derive(Debug, Serialize)]
pub(super) struct Farewell {
    /// The export's name.
    pub(super) name: String,
    /// The region.
    #[serde(with = "tidegate_host::json_path")]
    pub(super) file: PathBuf,
    /// Clients that used it when the end began.
    pub(super) clients_cut: u64,
    /// Whether every write that was answered is durable, as far as the memory's domain goes.
    pub(super) flushed: bool,
    /// Whether nobody writes to it any more.
    #[serde(skip)]
    pub(super) quiet: bool,
    /// The disk behind it.
    #[serde(flatten)]
    pub(super) disk: Option<DiskEnd>,
}

impl Farewell {
    /// The same with what `disk` lacks, which is left as it is from now on if nobody writes any
    /// more.
    pub(super) fn with(self, disk: Option<&LiveDisk>) -> Farewell {
        let disk = disk.map(|disk| if self.quiet && self.flushed { disk.rest() } else { disk.end() });
        Farewell { disk, ..self }
    }

    /// Tells it on stderr.
    pub(super) fn tell(&self, json: bool) {
        #[derive(Serialize)]
        struct Line<'a> {
            ended: &'a Farewell,
        }
        let line = match json {
            true => serde_json::to_string(&Line { ended: self }).expect("strings and numbers have a JSON form"),
            false => format!("tidegate: ended: {self}"),
        };
        flush::on_stderr(&line);
    }
}

/// What whoever waits for the end is told: every volume's farewell, and how the server ends.
pub(super) fn last_words(farewells: &[Farewell], exit: &Result<Exit, Failure>) -> Told {
    let trouble = exit.as_ref().err().and_then(Failure::told);
    let exit = exit.as_ref().map_or_else(|failure| failure.told().map_or(Exit::Done, |told| told.exit), |exit| *exit);
    Told {
        ended: farewells.iter().filter_map(|farewell| serde_json::to_value(farewell).ok()).collect(),
        lines: farewells.iter().map(ToString::to_string).collect(),
        exit: exit as u8,
        trouble: trouble.map(|told| format!("{}: {}", told.what, told.why)),
    }
}

impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}: ", self.name, self.file.display())?;
        match self.clients_cut {
            0 => f.write_str("no client was connected")?,
            1 => f.write_str("1 client was cut off")?,
            many => write!(f, "{many} clients were cut off")?,
        }
        f.write_str(if self.flushed { "; flushed" } else { "; not flushed, so the last writes may not be durable" })?;
        let Some(DiskEnd { disk, dirty_bytes, .. }) = &self.disk else { return Ok(()) };
        let disk = disk.display();
        match dirty_bytes {
            0 if self.quiet => write!(f, "; nothing is dirty, the disk {disk} alone is current"),
            0 => write!(f, "; nothing is dirty so far, the disk {disk} alone may lack what is under way"),
            bytes => write!(
                f,
                "; {} ({bytes} bytes) are dirty, the disk {disk} alone is out of date until `tidegate flush --pmem {}`",
                Human(*bytes),
                word(&self.file)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farewell(clients_cut: u64, flushed: bool, quiet: bool, dirty_bytes: Option<u64>) -> Farewell {
        let disk = dirty_bytes.map(|bytes| DiskEnd::new("/disk".into(), bytes));
        Farewell { name: "v".to_owned(), file: "/v w".into(), clients_cut, flushed, quiet, disk }
    }

    #[test]
    fn whoever_waits_for_the_end_hears_how_the_server_ends() {
        let told = |exit| last_words(&[farewell(2, true, false, None)], &exit);
        let cut = told(Ok(Exit::Interrupted));
        assert_eq!((cut.exit, cut.trouble, cut.lines.len()), (6, None, 1));
        assert_eq!(cut.ended[0]["clients_cut"], 2);
        let unflushed = told(Err(Failure::system("flushing")(std::io::ErrorKind::Other.into())));
        assert!(unflushed.exit == 1 && unflushed.trouble.is_some_and(|trouble| trouble.contains("flushing")));
    }

    #[test]
    fn each_end_has_its_words_and_scripts_get_numbers() {
        for (ended, words) in [
            (farewell(0, true, true, None), "v in /v w: no client was connected; flushed"),
            (
                farewell(1, true, true, Some(0)),
                "v in /v w: 1 client was cut off; flushed; nothing is dirty, the disk /disk alone is current",
            ),
            (
                farewell(2, false, false, Some(8192)),
                "v in /v w: 2 clients were cut off; not flushed, so the last writes may not be durable; 8 KiB (8192 bytes) are dirty, the disk /disk alone is out of date until `tidegate flush --pmem '/v w'`",
            ),
            (
                farewell(0, true, false, Some(0)),
                "v in /v w: no client was connected; flushed; nothing is dirty so far, the disk /disk alone may lack what is under way",
            ),
        ] {
            assert_eq!(ended.to_string(), words);
        }
        let json = serde_json::to_value(farewell(2, true, true, Some(8192))).expect("JSON");
        assert_eq!(
            (&json["clients_cut"], &json["dirty_bytes"], &json["disk_current"]),
            (&2.into(), &8192.into(), &false.into())
        );
    }
}
