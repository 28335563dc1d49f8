//! The service of a mount killed while programs write and sync: what was synced is there after the
//! next mount.
//!
//! | protocol | after the kill |
//! | --- | --- |
//! | lines appended to a log, each synced | every synced line, and at most the one after |
//! | pages overwritten, each synced | the synced version or the next one, whole |
//! | a fresh file synced and renamed over the last one | the last one or the next, whole |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use tidegate_trials::acts::{Done, acts, filled, number_of};
use tidegate_trials::mounted::MountTestbed;

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 16;

/// Acts before each kill: in few of them nothing is written back, in many files are.
const ACTS: [usize; 3] = [20, 200, 1000];

#[test]
fn what_was_synced_is_there_after_the_service_was_killed() {
    let mut testbed = MountTestbed::new();
    for (round, acts) in ACTS.into_iter().enumerate() {
        let folder = testbed.mountpoint().join(round.to_string());
        fs::create_dir(&folder).unwrap();
        for name in ["log", "pages"] {
            fs::write(folder.join(name), []).unwrap();
        }
        let [appended, overwritten, replaced] = killed_amid(&mut testbed, &folder, acts);
        testbed.mount_again();
        check_log(&folder, appended);
        check_pages(&folder, overwritten);
        check_replaced(&folder, replaced);
    }
}

/// Runs the protocols in `folder` until the service is killed, after so many of their acts.
fn killed_amid(testbed: &mut MountTestbed, folder: &Path, acts: usize) -> [Done; 3] {
    let (tell, heard) = channel();
    std::thread::scope(|scope| {
        let protocols = [append, overwrite, replace].map(|protocol| {
            let tell = tell.clone();
            scope.spawn(move || protocol(folder, &tell))
        });
        drop(tell);
        heard.iter().take(acts).for_each(drop);
        testbed.kill();
        protocols.map(|protocol| protocol.join().unwrap())
    })
}

fn line(number: u64) -> String {
    format!("{number:08}\n")
}

fn append(folder: &Path, tell: &Sender<()>) -> Done {
    // On a busy machine the service may be gone before this thread begins.
    let Ok(mut log) = OpenOptions::new().append(true).open(folder.join("log")) else { return 0 };
    acts(tell, |act| {
        log.write_all(line(act).as_bytes())?;
        log.sync_data()
    })
}

fn check_log(folder: &Path, done: Done) {
    let log = fs::read_to_string(folder.join("log")).unwrap();
    let lines: Vec<_> = log.split_inclusive('\n').collect();
    let expected: Vec<_> = (1..=lines.len() as u64).map(line).collect();
    assert_eq!(lines, expected);
    assert!((done..=done + 1).contains(&(lines.len() as u64)), "{done} lines were synced, {} are there", lines.len());
}

fn overwrite(folder: &Path, tell: &Sender<()>) -> Done {
    let Ok(pages) = OpenOptions::new().write(true).open(folder.join("pages")) else { return 0 };
    acts(tell, |act| {
        pages.write_all_at(&filled(act, PAGE_BYTES), act % PAGES * PAGE_BYTES as u64)?;
        pages.sync_all()
    })
}

fn check_pages(folder: &Path, done: Done) {
    let pages = fs::read(folder.join("pages")).unwrap();
    // The last act that wrote each page, and the one that was under way.
    for act in done.saturating_sub(PAGES - 1).max(1)..=done {
        let at = usize::try_from(act % PAGES).unwrap() * PAGE_BYTES;
        let found = number_of(&pages[at..at + PAGE_BYTES]).expect("a page is whole");
        let is_next = act + PAGES == done + 1 && found == done + 1;
        assert!(found == act || is_next, "act {act} of {done} was synced, {found} is there");
    }
}

fn replace(folder: &Path, tell: &Sender<()>) -> Done {
    let (fresh, path) = (folder.join("fresh"), folder.join("replaced"));
    acts(tell, |act| {
        let mut file = File::create(&fresh)?;
        file.write_all(&filled(act, PAGE_BYTES * 3))?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    })
}

fn check_replaced(folder: &Path, done: Done) {
    let Ok(found) = fs::read(folder.join("replaced")) else {
        return assert_eq!(done, 0, "a file that was put in place is missing");
    };
    assert_eq!(found.len(), PAGE_BYTES * 3);
    let number = number_of(&found).expect("it is whole");
    assert!((done..=done + 1).contains(&number), "{done} files were put in place, that of {number} is there");
}
