//! The power fails while programs work on a mount: SOURCE loses every operation that its journal
//! did not have, and the pool has it. SOURCE is a real ext4 or XFS that is told to forget. The same
//! holds after the service alone was killed.
//!
//! | protocol | afterwards |
//! | --- | --- |
//! | make: files made, written, synced | every synced file, whole |
//! | replace: a fresh file synced, renamed over the last one | the last one or the next, whole |
//! | deliver: mails made, synced, linked into place, their first name removed | one name each |
//! | journal: a journal made, synced, removed | no journal but the next one |
//! | directories: made, renamed, the last one removed | the last one or the next |
//!
//! All but the first one sync the directory at the end of each act.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use tidegate_trials::acts::{Done, acts, filled, number_of};
use tidegate_trials::mounted::{Journaled, MountTestbed};

const FILE_BYTES: usize = 12 << 10;

/// Acts before each power loss: in few of them SOURCE has nothing durably, in many it has most.
const ACTS: [usize; 3] = [40, 300, 1500];

type Protocol = (fn(&Path, &Sender<()>) -> Done, fn(&Path, Done));

const PROTOCOLS: [Protocol; 5] = [
    (make, check_made),
    (replace, check_replaced),
    (deliver, check_delivered),
    (journal, check_journal),
    (directories, check_directories),
];

#[test]
fn what_was_synced_is_there_after_a_power_loss_whatever_source_lost() {
    rounds(Journaled::Ext4, MountTestbed::lose_power);
}

#[test]
fn what_was_synced_is_there_after_a_power_loss_whatever_xfs_lost() {
    rounds(Journaled::Xfs, MountTestbed::lose_power);
}

#[test]
fn what_was_synced_is_there_after_the_service_was_killed_and_nothing_is_missed() {
    rounds(Journaled::Ext4, MountTestbed::kill);
}

#[test]
fn what_was_synced_is_there_after_the_service_over_xfs_was_killed() {
    rounds(Journaled::Xfs, MountTestbed::kill);
}

fn rounds(journaled: Journaled, end: fn(&mut MountTestbed)) {
    let mut testbed = MountTestbed::on(journaled);
    for (round, acts) in ACTS.into_iter().enumerate() {
        let folder = testbed.mountpoint().join(round.to_string());
        fs::create_dir(&folder).unwrap();
        let done = ended_amid(&mut testbed, &folder, acts, end);
        testbed.mount_again();
        for ((_, check), done) in PROTOCOLS.iter().zip(done) {
            check(&folder, done);
        }
        let status = String::from_utf8(testbed.on_pool("status").stdout).unwrap();
        assert!(!status.contains("retained"), "{status}");
    }
}

#[test]
fn recovery_without_a_mount_brings_names_and_contents_to_source_and_shows_it() {
    let mut testbed = MountTestbed::on_own_disk();
    let folder = testbed.mountpoint();
    let done = ended_amid(&mut testbed, &folder, 200, MountTestbed::lose_power);
    let recovered = testbed.on_pool("recover");
    assert!(recovered.status.success(), "{recovered:?}");
    for ((_, check), done) in PROTOCOLS.iter().zip(done) {
        check(&testbed.source(), done);
    }
    let mode = fs::metadata(testbed.source()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    testbed.mount_again();
}

#[test]
fn attributes_and_links_that_a_sync_covered_are_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let folder = testbed.mountpoint();
    let file = File::create(folder.join("file")).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("file", folder.join("symbolic")).unwrap();
    std::os::unix::fs::chown(folder.join("file"), Some(1000), Some(2000)).unwrap();
    rustix::fs::setxattr(folder.join("file"), "user.note", b"noted", rustix::fs::XattrFlags::empty()).unwrap();
    fs::create_dir(folder.join("d")).unwrap();
    fs::hard_link(folder.join("file"), folder.join("d/link")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    testbed.lose_power();
    testbed.mount_again();
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(folder.join("d/link")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.uid(), about.gid(), about.nlink()), (0o640, 1000, 2000, 2));
    assert_eq!(fs::read_link(folder.join("symbolic")).unwrap(), Path::new("file"));
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(folder.join("file"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"noted");
}

#[test]
fn a_file_that_was_removed_while_its_synced_data_waited_is_not_missed() {
    let mut testbed = MountTestbed::on_own_disk();
    let path = testbed.mountpoint().join("file");
    fs::write(&path, filled(1, FILE_BYTES)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    testbed.kill();
    let recovered = testbed.on_pool("recover");
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(!testbed.source().join("file").exists());
    testbed.mount_again();
}

/// Runs the protocols in `folder` until `end`, after so many of their acts.
fn ended_amid(testbed: &mut MountTestbed, folder: &Path, acts: usize, end: fn(&mut MountTestbed)) -> Vec<Done> {
    let (tell, heard) = channel();
    std::thread::scope(|scope| {
        let begun = PROTOCOLS.map(|(protocol, _)| {
            let tell = tell.clone();
            scope.spawn(move || protocol(folder, &tell))
        });
        drop(tell);
        heard.iter().take(acts).for_each(drop);
        end(testbed);
        begun.into_iter().map(|protocol| protocol.join().unwrap()).collect()
    })
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn write_synced(path: &Path, number: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&filled(number, FILE_BYTES))?;
    file.sync_all()
}

/// The number that a whole file is filled with.
fn number_in(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let number = number_of(&bytes).filter(|_| bytes.len() == FILE_BYTES);
    number.unwrap_or_else(|| panic!("{} has {} bytes, or is torn", path.display(), bytes.len()))
}

fn make(folder: &Path, tell: &Sender<()>) -> Done {
    acts(tell, |act| write_synced(&folder.join(format!("made-{act}")), act))
}

fn check_made(folder: &Path, done: Done) {
    for act in 1..=done {
        assert_eq!(number_in(&folder.join(format!("made-{act}"))), act);
    }
}

fn replace(folder: &Path, tell: &Sender<()>) -> Done {
    acts(tell, |act| {
        write_synced(&folder.join("fresh"), act)?;
        fs::rename(folder.join("fresh"), folder.join("replaced"))?;
        sync_directory(folder)
    })
}

fn check_replaced(folder: &Path, done: Done) {
    if done == 0 {
        return;
    }
    let number = number_in(&folder.join("replaced"));
    assert!((done..=done + 1).contains(&number), "{done} files were put in place, that of {number} is there");
}

fn deliver(folder: &Path, tell: &Sender<()>) -> Done {
    let (fresh, new) = (folder.join("fresh-mail"), folder.join("new"));
    if fs::create_dir(&fresh).and_then(|()| fs::create_dir(&new)).is_err() {
        return 0;
    }
    acts(tell, |act| {
        let mail = fresh.join(act.to_string());
        write_synced(&mail, act)?;
        fs::hard_link(&mail, new.join(act.to_string()))?;
        fs::remove_file(&mail)?;
        sync_directory(&new)
    })
}

fn check_delivered(folder: &Path, done: Done) {
    for act in 1..=done {
        assert_eq!(number_in(&folder.join("new").join(act.to_string())), act);
        assert!(!folder.join("fresh-mail").join(act.to_string()).exists(), "the first name of mail {act} is back");
    }
}

fn journal(folder: &Path, tell: &Sender<()>) -> Done {
    acts(tell, |act| {
        let journal = folder.join(format!("journal-{act}"));
        write_synced(&journal, act)?;
        fs::remove_file(&journal)?;
        sync_directory(folder)
    })
}

fn check_journal(folder: &Path, done: Done) {
    for act in 1..=done {
        assert!(!folder.join(format!("journal-{act}")).exists(), "journal {act} of {done} is back");
    }
}

fn directories(folder: &Path, tell: &Sender<()>) -> Done {
    acts(tell, |act| {
        let (made, named) = (folder.join("directory"), folder.join(format!("directory-{act}")));
        fs::create_dir(&made)?;
        write_synced(&made.join("file"), act)?;
        fs::rename(&made, &named)?;
        if act > 1 {
            let last = folder.join(format!("directory-{}", act - 1));
            fs::remove_file(last.join("file"))?;
            fs::remove_dir(&last)?;
        }
        sync_directory(folder)
    })
}

fn check_directories(folder: &Path, done: Done) {
    for act in 1..done {
        assert!(!folder.join(format!("directory-{act}")).exists(), "directory {act} of {done} is back");
    }
    let (last, next) = (folder.join(format!("directory-{done}")), folder.join(format!("directory-{}", done + 1)));
    if done > 0 {
        let is_replaced = next.join("file").exists() && !last.join("file").exists();
        let (named, act) = if is_replaced { (next, done + 1) } else { (last, done) };
        assert_eq!(number_in(&named.join("file")), act);
    }
}
