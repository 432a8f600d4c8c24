//! Bytes of `__transaction_state`, as Apache Kafka's schema lays them out.

use super::*;

const ONGOING_V0: &str = "0000 0000000000000007 0003 0000ea60 01 \
    00000002 0006 6f7264657273 00000002 00000000 00000001 0005 73746f636b 00000001 00000004 \
    00000000000f4240 00000000000f3e58";

const ONGOING_V1: &str = "0001 0000000000000007 0003 0000ea60 01 \
    03 07 6f7264657273 03 00000000 00000001 00 06 73746f636b 02 00000004 00 \
    00000000000f4240 00000000000f3e58 \
    02 00 08 0000000000000007 02 02 0002";

/// A commit at the last epoch: every tag that is ever written.
const PREPARE_V1: &str = "0001 0000000000000007 7fff 0000ea60 02 \
    02 06 73746f636b 02 00000004 00 \
    00000000000f4240 00000000000f3e58 \
    04 00 08 0000000000000007 01 08 0000000000000009 02 02 0002 04 02 7ffe";

/// An id initialized for the first time: no partitions, no start, one tag.
const EMPTY_V1: &str = "0001 0000000000000007 0000 0000ea60 00 00 \
    00000000000f4240 ffffffffffffffff 01 00 08 0000000000000007";

const EMPTY_V0: &str = "0000 0000000000000007 0000 0000ea60 00 ffffffff \
    00000000000f4240 ffffffffffffffff";

/// A completed transaction has an empty list, not null.
const COMPLETE_V1: &str = "0001 0000000000000007 0004 0000ea60 04 01 \
    00000000000f4240 00000000000f3e58 03 00 08 0000000000000007 02 02 0002 04 02 0003";

#[test]
fn keys_are_kafkas() {
    let key = hex("0000 0008 7061796d656e7473");
    assert_eq!(key_bytes("payments"), key);
    assert_eq!(read_key(&key), Ok("payments"));
    assert_eq!(key_bytes("zahlung-\u{fc}"), hex("0000 000a 7a61686c756e672dc3bc"));
}

#[test]
fn values_are_kafkas() {
    check(&ongoing(), 1, ONGOING_V1);
    check(&prepared(), 1, PREPARE_V1);
    check(&empty(), 1, EMPTY_V1);
    check(&completed(), 1, COMPLETE_V1);
}

#[test]
fn values_of_version_0_have_no_tags() {
    let bare = |metadata: Metadata| Metadata {
        previous_producer_id: ProducerId(-1),
        next_producer_id: ProducerId(-1),
        last_epoch: ProducerEpoch(-1),
        client_version: 0,
        ..metadata
    };
    check(&bare(ongoing()), 0, ONGOING_V0);
    check(&bare(empty()), 0, EMPTY_V0);
    assert_eq!(value_bytes(&ongoing(), 0), hex(ONGOING_V0));
    let read = read_value(&value_bytes(&prepared(), 0));
    assert_eq!(read, Ok(bare(prepared())));
    assert_eq!((value_version(0), value_version(1), value_version(2)), (0, 1, 1));
}

#[test]
fn tags_of_a_later_kafka_are_passed_over() {
    // The next producer epoch of KIP-939, and one that nobody knows.
    let later = EMPTY_V1.replace(
        "01 00 08 0000000000000007",
        "03 00 08 0000000000000007 03 02 0005 e807 03 aabbcc",
    );
    assert_eq!(read_value(&hex(&later)), Ok(empty()));
}

#[test]
fn unknown_versions_are_told_apart() {
    let unknown = RecordFault::UnknownKeyVersion;
    assert_eq!(read_key(&hex("0001 0001 61")), Err(unknown(1)));
    assert_eq!(read_key(&hex("ffff")), Err(unknown(-1)));
    let unknown = RecordFault::UnknownValueVersion;
    assert_eq!(read_value(&hex("0002 00")), Err(unknown(2)));
    assert_eq!(read_value(&hex("ffff")), Err(unknown(-1)));
}

#[test]
fn what_is_cut_short_or_too_long_is_malformed() {
    for value in [ONGOING_V0, ONGOING_V1, PREPARE_V1, EMPTY_V0, EMPTY_V1, COMPLETE_V1] {
        let value = hex(value);
        for length in 0..value.len() {
            let read = read_value(&value[..length]);
            assert!(matches!(read, Err(RecordFault::Malformed(_))), "{length}: {read:?}");
        }
        let longer = [&value[..], &[0]].concat();
        assert_eq!(read_value(&longer), Err(RecordFault::Malformed("bytes left over")));
    }
    for key in ["", "00", "0000", "0000 0003 6161", "0000 ffff", "0000 0001 61 00", "0000 0001 ff"]
    {
        assert!(matches!(read_key(&hex(key)), Err(RecordFault::Malformed(_))), "{key}");
    }
}

#[test]
fn counts_are_compared_with_the_bytes_that_are_there() {
    for (good, bad) in [
        ("00000002 0006", "7fffffff 0006"),
        ("00000002 0006", "80000000 0006"),
        ("00000002 00000000", "7fffffff 00000000"),
        ("00000002 00000000", "ffffffff 00000000"),
    ] {
        let value = hex(&ONGOING_V0.replacen(good, bad, 1));
        assert!(matches!(read_value(&value), Err(RecordFault::Malformed(_))), "{bad}");
    }
    for (good, bad) in [("03 07 6f", "ffffffff0f 07 6f"), ("02 00 08", "ffffffff0f 00 08")] {
        let value = hex(&ONGOING_V1.replacen(good, bad, 1));
        assert!(matches!(read_value(&value), Err(RecordFault::Malformed(_))), "{bad}");
    }
}

#[test]
fn values_that_no_coordinator_writes_are_malformed() {
    for (good, bad) in [
        ("0000000000000007 0003", "ffffffffffffffff 0003"),
        ("0000000000000007 0003", "0000000000000007 ffff"),
        ("0000ea60 01", "0000ea60 06"),
        ("0000ea60 01", "0000ea60 ff"),
        // A tag of a length that is not its type's.
        ("02 02 0002", "02 03 000200"),
        ("02 02 0002", "02 01 02"),
    ] {
        let value = hex(&ONGOING_V1.replacen(good, bad, 1));
        assert!(matches!(read_value(&value), Err(RecordFault::Malformed(_))), "{bad}");
    }
}

#[test]
fn partitions_are_read_sorted_and_once() {
    let shuffled =
        ONGOING_V0.replace("00000002 00000000 00000001", "00000003 00000001 00000000 00000001");
    let read = read_value(&hex(&shuffled)).expect("good");
    assert_eq!(read.partitions, ongoing().partitions);
}

#[test]
fn anything_can_be_read() {
    // Every single byte of every value, changed in every way, is read or refused.
    for value in [ONGOING_V0, ONGOING_V1, PREPARE_V1, EMPTY_V1] {
        let value = hex(value);
        for place in 0..value.len() {
            for change in 1..=255 {
                let mut changed = value.clone();
                changed[place] ^= change;
                if let Ok(metadata) = read_value(&changed) {
                    assert!(metadata.partitions.len() <= value.len());
                }
            }
        }
    }
}

fn check(metadata: &Metadata, version: i16, text: &str) {
    assert_eq!(value_bytes(metadata, version), hex(text));
    assert_eq!(read_value(&hex(text)).as_ref(), Ok(metadata));
}

fn producer(epoch: i16) -> Identity {
    Identity { id: ProducerId(7), epoch: ProducerEpoch(epoch) }
}

fn empty() -> Metadata {
    Metadata {
        producer: producer(0),
        previous_producer_id: ProducerId(7),
        ..Metadata::new(ProducerId(7), 60_000, 1_000_000)
    }
}

fn ongoing() -> Metadata {
    Metadata {
        producer: producer(3),
        state: State::Ongoing,
        client_version: 2,
        start_ms: 999_000,
        partitions: vec![("orders".into(), 0), ("orders".into(), 1), ("stock".into(), 4)],
        ..empty()
    }
}

fn prepared() -> Metadata {
    Metadata {
        producer: producer(i16::MAX),
        next_producer_id: ProducerId(9),
        last_epoch: ProducerEpoch(i16::MAX - 1),
        state: State::PrepareCommit,
        partitions: vec![("stock".into(), 4)],
        ..ongoing()
    }
}

fn completed() -> Metadata {
    Metadata {
        producer: producer(4),
        last_epoch: ProducerEpoch(3),
        state: State::CompleteCommit,
        partitions: Vec::new(),
        ..ongoing()
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(byte).collect()
}
