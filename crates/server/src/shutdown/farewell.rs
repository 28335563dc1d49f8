//! The last line about each volume when a server ends: how many clients were cut off, whether it
//! was flushed, and how many bytes its disk lacks.

use crate::cached_disk::online::{DiskEnd, OnlineDisk};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::shell::word;
use tidegate_host::units::Human;

/// How one volume ended.
#[derive(Debug, Serialize)]
pub struct Farewell {
    /// The export's name.
    pub name: String,
    /// The region.
    #[serde(with = "tidegate_host::json_path")]
    pub file: PathBuf,
    /// Clients that used it when the end began.
    pub clients_cut: u64,
    /// Whether every write that was answered is durable, as far as the memory's domain goes.
    pub flushed: bool,
    /// Whether nobody writes to it any more.
    #[serde(skip)]
    pub quiet: bool,
    /// The disk behind it.
    #[serde(flatten)]
    pub disk: Option<DiskEnd>,
}

impl Farewell {
    /// Adds how `disk` is left. If no client writes any more, it stays so from now on.
    pub fn with(self, disk: Option<&OnlineDisk>) -> Farewell {
        let disk = disk.map(|disk| if self.quiet && self.flushed { disk.rest() } else { disk.end() });
        Farewell { disk, ..self }
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
