//! What is no request is refused, and nothing panics.

use crate::kernel::{Message, UNIQUE, every_request};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tidegate_fuse::{Features, Operation, Request, Unique};

/// The rule that a message breaks.
fn rule(message: Message) -> &'static str {
    let message = message.end();
    Request::parse(&message, Features::NONE).map(|request| format!("{request:?}")).unwrap_err().rule
}

#[test]
fn every_truncated_request_is_refused() {
    for (name, whole) in every_request() {
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            if let Some(field) = cut.get_mut(..4) {
                field.copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
            }
            let refused = Request::parse(&cut, Features::NONE).map(|request| format!("{request:?}"));
            let refused = refused.expect_err(&format!("{name} cut at {len}"));
            assert_eq!(refused.unique, (len >= 40).then_some(Unique(UNIQUE)), "{name} cut at {len}");
        }
    }
}

#[test]
fn every_request_with_a_byte_too_many_is_refused() {
    for (name, mut message) in every_request().into_iter().filter(|(name, _)| *name != "INIT") {
        message.push(b'z');
        let len = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&len.to_ne_bytes());
        assert!(Request::parse(&message, Features::NONE).is_err(), "{name}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    assert_eq!(rule(Message::new(10).name("")), "a string has a byte");
    assert_eq!(rule(Message::new(10).name("a/b")), "a name has no slash");
    assert_eq!(rule(Message::new(10).name("..")), "a name is not that of a directory itself");
    assert_eq!(rule(Message::new(1).name(".")), "a name is not that of a directory itself");
    assert_eq!(rule(Message::new(12).u64(1).name("a").name("b/")), "a name has no slash");
    assert_eq!(rule(Message::new(10).bytes(b"a")), "a string ends with a zero byte");
}

#[test]
fn lengths_that_lie_are_refused() {
    let rule_of = |message: &[u8]| Request::parse(message, Features::NONE).map(drop).unwrap_err().rule;
    let mut message = Message::new(5).end();
    message[0] += 1;
    assert_eq!(rule_of(&message), "the length in the header is the message's");
    let mut message = Message::new(5).end();
    message[36] = 1;
    assert_eq!(rule_of(&message), "extensions lie within the message");
    assert_eq!(rule(Message::new(42).u32(u32::MAX).u32(0)), "the message has all of its data");
    assert_eq!(rule(Message::new(42).u32(1).u32(0)), "the message has all of its data");
    assert_eq!(
        rule(Message::new(16).u64(7).u64(0).u32(u32::MAX).u32(0).u64(0).u64(0)),
        "the message has all of its data"
    );
}

/// A message with a good length, of any operation and any fields.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    (0_u32..60, vec(any::<u8>(), 0..200)).prop_map(|(opcode, body)| Message::new(opcode).bytes(&body).end())
}

/// A good message in which some bytes after the length are others.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let request = select(every_request()).prop_map(|(_, message)| message);
    request.prop_flat_map(|message| {
        let len = message.len();
        (Just(message), vec((4..len, any::<u8>()), 0..6)).prop_map(|(mut message, changes)| {
            changes.into_iter().for_each(|(at, byte)| message[at] = byte);
            message
        })
    })
}

/// Bytes of names and data in an operation.
fn borrowed_bytes(operation: &Operation<'_>) -> usize {
    match *operation {
        Operation::Lookup { name } | Operation::Unlink { name } => name.count_bytes(),
        Operation::Write(write) => write.data.len(),
        Operation::Ioctl(ioctl) => ioctl.input.len(),
        Operation::BatchForget(forgets) => forgets.count() * 16,
        _ => 0,
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in vec(any::<u8>(), 0..300), features in any::<u64>()) {
        let parsed = Request::parse(&bytes, Features::from_bits(features));
        prop_assert!(parsed.is_err() || bytes.len() >= 40);
    }

    #[test]
    fn what_is_read_lies_within_the_message(message in messages(), features in any::<u64>()) {
        if let Ok(request) = Request::parse(&message, Features::from_bits(features)) {
            prop_assert!(borrowed_bytes(&request.operation) <= message.len() - 40);
        }
    }

    #[test]
    fn a_damaged_request_keeps_its_number_or_is_refused(message in damaged()) {
        let number = u64::from_ne_bytes(message[8..16].try_into().unwrap());
        match Request::parse(&message, Features::NONE) {
            Ok(request) => prop_assert_eq!(request.header.unique, Unique(number)),
            Err(malformed) => prop_assert_eq!(malformed.unique, Some(Unique(number))),
        }
    }
}
