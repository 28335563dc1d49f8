//! INIT with kernels of several versions.

use tidegate_fuse::{Agreement, Features, Init, Operation, Request, Session, Unique};

use crate::kernel::Message;

/// All features of Linux 6.18.
const ALL: Features = Features::from_bits(u64::MAX);

fn agree(major: u32, minor: u32, offered: Features, wanted: Features) -> (Session, Vec<u8>) {
    let init = Init { major, minor, readahead_bytes_max: 131_072, offered };
    match Session::agree(&init, wanted).unwrap() {
        Agreement::Reached(session, mut reply) => (session, reply.frame(Unique(1)).unwrap().concat()),
        Agreement::AskAgain(_) => panic!("{major}.{minor} is asked again"),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn the_reply_to_init_has_the_kernels_bytes() {
    let (session, sent) = agree(7, 45, ALL, Features::ASYNC_READ.with(Features::RESEND));
    assert_eq!((sent.len(), session.minor), (80, 45));
    let words: Vec<u32> = (16..80).step_by(4).map(|at| u32_at(&sent, at)).collect();
    let features = 1 | 1 << 5 | 1 << 22 | 1 << 30;
    // max_background 64 and congestion_threshold 48, max_write, time_gran, max_pages 256.
    let limits = [48 << 16 | 64, 1 << 20, 1, 256];
    assert_eq!(words[..4], [7, 45, 131_072, features]);
    assert_eq!(words[4..8], limits);
    assert_eq!(words[8..], [1 << (39 - 32), 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_lower_version_counts() {
    assert_eq!(agree(7, 31, ALL, ALL).0.minor, 31);
    assert_eq!(agree(7, 99, ALL, ALL).0.minor, 45);
}

#[test]
fn a_feature_is_used_if_both_have_it() {
    let wanted = Features::POSIX_ACL.with(Features::RESEND);
    let session = agree(7, 37, Features::POSIX_ACL.with(Features::ASYNC_DIO), wanted).0;
    assert_eq!(session.features, Features::POSIX_ACL);
    assert_eq!(wanted.without(session.features), Features::RESEND);
}

#[test]
fn kernels_before_linux_5_4_are_refused() {
    for (major, minor) in [(7, 30), (6, 99), (0, 0)] {
        let init = Init { major, minor, readahead_bytes_max: 0, offered: ALL };
        let told = Session::agree(&init, ALL).map(drop).unwrap_err().to_string();
        assert!(told.contains(&format!("{major}.{minor}")) && told.contains("Linux 5.4"), "{told}");
    }
}

#[test]
fn a_later_major_version_is_asked_again() {
    let init = Init { major: 8, minor: 0, readahead_bytes_max: 0, offered: ALL };
    let Ok(Agreement::AskAgain(mut reply)) = Session::agree(&init, ALL) else { panic!("agreed on 8.0") };
    assert_eq!(u32_at(&reply.frame(Unique(1)).unwrap().concat(), 16), 7);
}

#[test]
fn the_second_word_of_features_counts_where_it_is_announced() {
    let offered = |flags: u32| {
        let message = Message::new(26).u32(7).u32(45).u32(0).u32(flags).u32(1 << 7).bytes(&[0; 44]).end();
        match Request::parse(&message, Features::NONE).unwrap().operation {
            Operation::Init(init) => init.offered,
            other => panic!("{other:?}"),
        }
    };
    assert!(offered(1 << 30).contains(Features::RESEND));
    assert!(!offered(0).contains(Features::RESEND));
}

#[test]
fn a_session_comes_back_from_its_words() {
    let session = agree(7, 41, ALL, Features::RESEND).0;
    assert_eq!(Session::from_words(session.to_words()), Some(session));
    assert_eq!(Session::from_words([30, 0]), None);
    assert_eq!(Session::from_words([u64::MAX, 0]), None);
}
