//! The counters of an export: each number predicted from the requests sent.

use crate::connections::{attach, detach};
use crate::devices::Failing;
use crate::script::{disk_and_frozen, exports_of, play};
use std::sync::Arc;
use std::time::Instant;
use tidegate_block_export::{ExportCounters, RequestKind};
use tidegate_media::Durability;
use tidegate_nbd::Service;
use tidegate_nbd_client::client::{Client, Dialect, Operation, Zeroes};
use tidegate_nbd_client::ram::Ram;

fn counters(service: &Service) -> ExportCounters {
    service.exports.iter().next().unwrap().counters()
}

/// Requests, errors and bytes of each kind that has any.
fn table(counters: &ExportCounters) -> Vec<(RequestKind, u64, u64, u64)> {
    let rows = counters.requests.iter().map(|row| (row.kind, row.requests, row.errors, row.bytes));
    rows.filter(|row| row.1 > 0).collect()
}

fn ask(client: &mut Client<std::os::unix::net::UnixStream>, operation: Operation<'_>) {
    client.submit(operation).unwrap();
    let _ = client.complete().unwrap().outcome;
}

#[test]
fn every_request_counts_once_with_its_bytes() {
    let began = Instant::now();
    let service = Arc::new(exports_of(Ram::new(4096, 1024)));
    assert_eq!((counters(&service).connections_open, counters(&service).connections_total), (0, 0));
    let (mut client, server) = attach(&service, Dialect::Extended);
    assert_eq!((counters(&service).connections_open, counters(&service).connections_total), (1, 1));
    let long = vec![1; 700_000];
    for data in [&long[..4096], &long[..100], &long[..0], &long] {
        ask(&mut client, Operation::Write { offset: 5, data, durability: Durability::Fua });
    }
    ask(
        &mut client,
        Operation::Write { offset: 4096 * 1024 - 10, data: &long[..11], durability: Durability::Volatile },
    );
    ask(&mut client, Operation::Read { offset: 0, len: 1000 });
    ask(&mut client, Operation::Read { offset: 7, len: 24 });
    ask(&mut client, Operation::Read { offset: u64::MAX, len: 24 });
    ask(&mut client, Operation::Flush);
    ask(&mut client, Operation::Trim { offset: 0, len: 2 << 20 });
    ask(&mut client, Operation::Cache { offset: 0, len: 3 << 20 });
    ask(&mut client, Operation::Zero { offset: 0, len: 9000, zeroes: Zeroes::AsData });
    ask(&mut client, Operation::Zero { offset: 1, len: 9000, zeroes: Zeroes::Fast });
    ask(&mut client, Operation::Status { offset: 0, len: 12_345, one: true });
    let (client2, server2) = attach(&service, Dialect::Simple);
    let seen = counters(&service);
    assert_eq!((seen.connections_open, seen.connections_total), (2, 2));
    let expected = [
        (RequestKind::Read, 3, 1, 1024),
        (RequestKind::Write, 5, 1, 4096 + 100 + 700_000),
        (RequestKind::Flush, 1, 0, 0),
        (RequestKind::Trim, 1, 0, 2 << 20),
        (RequestKind::Cache, 1, 0, 3 << 20),
        (RequestKind::WriteZeroes, 2, 1, 9000),
        (RequestKind::BlockStatus, 1, 0, 12_345),
    ];
    assert_eq!(table(&seen), expected);
    detach((client, server));
    detach((client2, server2));
    assert_eq!((counters(&service).connections_open, counters(&service).connections_total), (0, 2));
    let elapsed = began.elapsed();
    for row in &counters(&service).requests {
        let in_buckets: u64 = row.latency.buckets().map(|(_, count)| count).sum();
        assert_eq!(in_buckets, row.requests, "{:?}", row.kind);
        assert!(u128::from(row.latency.total_nanoseconds) < elapsed.as_nanos());
        assert_eq!(row.latency.quantile(0.5).is_some(), row.requests > 0);
    }
}

#[test]
fn what_is_refused_or_unknown_counts_as_an_error() {
    let service = disk_and_frozen();
    let request =
        |command: u8, len: u8| [b"\x25\x60\x95\x13\x00\x00\x00", &[command][..], &[0; 16], &[0, 0, 0, len]].concat();
    let sent = [
        &b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00"[..],
        &request(99, 0),
        &request(7, 9),
        &request(3, 1),
        &request(0, 200),
        &request(2, 0),
    ];
    play(&service, &sent.concat()).1.unwrap();
    let expected = [
        (RequestKind::Read, 1, 0, 200),
        (RequestKind::Flush, 1, 1, 0),
        (RequestKind::BlockStatus, 1, 1, 0),
        (RequestKind::Unknown, 1, 1, 0),
    ];
    assert_eq!(table(&counters(&service)), expected);
    // The other export was not used; neither does asking for information use one.
    assert_eq!(service.exports.iter().nth(1).unwrap().counters().connections_total, 0);
    play(&service, b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00").1.unwrap();
    assert_eq!(counters(&service).connections_total, 1);
}

#[test]
fn failures_of_the_device_count_as_errors_on_all_connections_together() {
    let service = Arc::new(exports_of(Failing));
    for _ in 0..9 {
        let (mut client, server) = attach(&service, Dialect::Structured);
        ask(&mut client, Operation::Flush);
        ask(&mut client, Operation::Read { offset: 512, len: 512 });
        ask(&mut client, Operation::Read { offset: 0, len: 512 });
        ask(&mut client, Operation::Write { offset: 1024, data: &[0; 512], durability: Durability::Volatile });
        detach((client, server));
    }
    let expected = [(RequestKind::Read, 18, 9, 9 * 512), (RequestKind::Write, 9, 9, 0), (RequestKind::Flush, 9, 9, 0)];
    assert_eq!(table(&counters(&service)), expected);
}
