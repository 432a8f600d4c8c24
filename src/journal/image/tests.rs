//! Golden bytes of format 1, round trips, and damage.

use proptest::prelude::*;

use super::*;
use crate::ids::{PartitionIndex, TopicId};

fn tp(n: u8) -> TopicPartition {
    TopicPartition { topic: TopicId([n; 16]), partition: PartitionIndex(i32::from(n)) }
}

fn example() -> Image {
    Image {
        boot: BootNumber(3),
        shard: ShardId(1),
        start: Start {
            point: JournalPoint { position: 0x1_2345_6000, sequence: JournalSequence(500) },
            durable_through: JournalSequence(510),
        },
        clean: true,
        rows: vec![
            PartitionRow {
                tp: tp(1),
                log_start: Offset(10),
                synced_end: Offset(300),
                segment_base: Offset(200),
                segment_bytes: 0x55_6677,
                index_bytes: 8,
                time_index_bytes: 12,
                transaction_index_bytes: 34,
                epochs: vec![(LeaderEpoch(1), Offset(0)), (LeaderEpoch(3), Offset(250))],
                producers: vec![ProducerRow {
                    id: ProducerId(4000),
                    epoch: ProducerEpoch(2),
                    coordinator_epoch: -1,
                    last_append_ms: 1000,
                    last_timestamp_ms: -1,
                    open_transaction_first_offset: Some(Offset(280)),
                    batches: vec![ProducerBatchRow {
                        last_sequence: 99,
                        last_offset: Offset(299),
                        offset_delta: 19,
                        max_timestamp_ms: 998,
                        append_ms: 999,
                    }],
                }],
                offline: None,
            },
            PartitionRow {
                tp: tp(2),
                log_start: Offset(0),
                synced_end: Offset(0),
                segment_base: Offset(0),
                segment_bytes: 0,
                index_bytes: 0,
                time_index_bytes: 0,
                transaction_index_bytes: 0,
                epochs: vec![],
                producers: vec![],
                offline: Some(OfflineRow { reason: "gap at 7".to_owned(), stranded_bytes: 4711 }),
            },
        ],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

/// Format 1 as it was first written; must be readable for ever. Written down from the tables in
/// the code, but for the checksum.
const VERSION_1: &[&str] = &[
    "524c696d",
    "0100",
    "0100",
    "03000000",
    "02000000",
    "0060452301000000",
    "f401000000000000",
    "fe01000000000000",
    "01000000",
    // Row 1.
    "ab000000",
    "01010101010101010101010101010101",
    "01000000",
    "0a00000000000000",
    "2c01000000000000",
    "c800000000000000",
    "7766550000000000",
    "08000000",
    "0c000000",
    "22000000",
    "02000000",
    "01000000",
    "0000000000000000",
    "03000000",
    "fa00000000000000",
    "01000000",
    "a00f000000000000",
    "0200",
    "ffffffff",
    "e803000000000000",
    "ffffffffffffffff",
    "1801000000000000",
    "01000000",
    "63000000",
    "2b01000000000000",
    "13000000",
    "e603000000000000",
    "e703000000000000",
    "00",
    // Row 2.
    "5d000000",
    "02020202020202020202020202020202",
    "02000000",
    "0000000000000000",
    "0000000000000000",
    "0000000000000000",
    "0000000000000000",
    "00000000",
    "00000000",
    "00000000",
    "00000000",
    "00000000",
    "01",
    "6712000000000000",
    "08000000",
    "6761702061742037",
    "f7e97e3cc31b41a4",
];

#[test]
fn version_1_is_read_and_written() {
    let bytes = unhex(&VERSION_1.concat());
    assert_eq!(hex(&example().encode()), hex(&bytes));
    assert_eq!(Image::decode(&bytes), Ok(example()));
}

#[test]
fn rows_can_be_kept_encoded() {
    let image = example();
    let mut writer = ImageWriter::new(image.boot, image.shard);
    for row in &image.rows {
        writer.push_encoded(&encode_row(row));
    }
    assert_eq!(writer.finish(image.start, image.clean), image.encode());
}

#[test]
fn damage_and_cuts_are_refused() {
    let whole = example().encode();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        let fault = Image::decode(&damaged).expect_err("damaged");
        match at {
            0..4 => assert_eq!(fault, ImageFault::Magic),
            4 => assert_eq!(fault, ImageFault::Format(0x21)),
            5 => assert_eq!(fault, ImageFault::Format(0x2001)),
            _ => assert_eq!(fault, ImageFault::Checksum, "byte {at}"),
        }
        assert!(Image::decode(&whole[..at]).is_err(), "cut at {at}");
    }
    let mut longer = whole;
    longer.push(0);
    assert_eq!(Image::decode(&longer), Err(ImageFault::Checksum));
    assert_eq!(Image::decode(&[]), Err(ImageFault::Magic));
}

/// Edits one byte range and makes the checksum fit again.
fn edited(at: usize, bytes: &[u8]) -> Result<Image, ImageFault> {
    let mut image = example().encode();
    let body = image.len() - 8;
    image[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = xxh3_64(&image[..body]);
    image[body..].copy_from_slice(&sum.to_le_bytes());
    Image::decode(&image)
}

#[test]
fn nonsense_with_a_good_checksum_is_refused() {
    let huge = u32::MAX.to_le_bytes();
    let row = |row| Err(ImageFault::Row { row });
    assert_eq!(edited(12, &huge), row(2), "more rows than there are");
    assert_eq!(edited(12, &[1, 0, 0, 0]), row(1), "fewer");
    assert_eq!(edited(40, &[2, 0, 0, 0]), row(0), "clean is 0 or 1");
    assert_eq!(edited(44, &huge), row(0), "length of row 1");
    assert_eq!(edited(44, &[0, 0, 0, 0]), row(0));
    assert_eq!(edited(48, &[0; 16]), row(0), "no topic");
    assert_eq!(edited(64, &[0xff; 4]), row(0), "no partition");
    assert_eq!(edited(68, &[0xff; 8]), row(0), "negative log start");
    assert_eq!(edited(112, &huge), row(0), "epochs");
    assert_eq!(edited(140, &huge), row(0), "producers");
    assert_eq!(edited(182, &huge), row(0), "batches");
    assert_eq!(edited(218, &[2]), row(0), "offline is 0 or 1");
    let twice =
        Image { rows: vec![example().rows[0].clone(), example().rows[0].clone()], ..example() };
    assert_eq!(Image::decode(&twice.encode()), row(1));
    assert_eq!(edited(12, &[2, 0, 0, 0]), Ok(example()));
}

fn any_producer() -> impl Strategy<Value = ProducerRow> {
    let offset = || (0i64..i64::MAX).prop_map(Offset);
    let batch = (any::<i32>(), offset(), any::<i32>(), any::<i64>(), any::<i64>()).prop_map(
        |(last_sequence, last_offset, offset_delta, max_timestamp_ms, append_ms)| {
            ProducerBatchRow {
                last_sequence,
                last_offset,
                offset_delta,
                max_timestamp_ms,
                append_ms,
            }
        },
    );
    (
        (any::<i64>(), any::<i16>(), any::<i32>(), any::<i64>(), any::<i64>()),
        prop::option::of(offset()),
        prop::collection::vec(batch, 0..6),
    )
        .prop_map(|(head, open_transaction_first_offset, batches)| ProducerRow {
            id: ProducerId(head.0),
            epoch: ProducerEpoch(head.1),
            coordinator_epoch: head.2,
            last_append_ms: head.3,
            last_timestamp_ms: head.4,
            open_transaction_first_offset,
            batches,
        })
}

fn any_row(n: u8) -> impl Strategy<Value = PartitionRow> {
    let offset = || (0i64..i64::MAX).prop_map(Offset);
    let offline = (".{0,40}", any::<u64>())
        .prop_map(|(reason, stranded_bytes)| OfflineRow { reason, stranded_bytes });
    (
        (offset(), offset(), offset(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()),
        prop::collection::vec((any::<i32>().prop_map(LeaderEpoch), offset()), 0..4),
        prop::collection::vec(any_producer(), 0..4),
        prop::option::of(offline),
    )
        .prop_map(move |(head, epochs, producers, offline)| PartitionRow {
            tp: tp(n),
            log_start: head.0,
            synced_end: head.1,
            segment_base: head.2,
            segment_bytes: head.3,
            index_bytes: head.4,
            time_index_bytes: head.5,
            transaction_index_bytes: head.6,
            epochs,
            producers,
            offline,
        })
}

proptest! {
    #[test]
    fn any_image_comes_back(
        rows in (any_row(1), any_row(2), any_row(3)),
        count in 0usize..4,
        point in any::<(u64, u64, u64)>(),
    ) {
        let image = Image {
            boot: BootNumber(9),
            shard: ShardId(0),
            start: Start {
                point: JournalPoint { position: point.0, sequence: JournalSequence(point.1) },
                durable_through: JournalSequence(point.2),
            },
            clean: count == 0,
            rows: [rows.0, rows.1, rows.2].into_iter().take(count).collect(),
        };
        prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
    }

    #[test]
    fn edits_under_a_good_checksum_never_panic(
        at in 0usize..320,
        bytes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let _ = edited(at.min(example().encode().len() - 16), &bytes);
    }

    #[test]
    fn garbage_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Image::decode(&bytes).is_err());
        if bytes.len() >= 16 {
            bytes[..6].copy_from_slice(b"RLim\x01\x00");
            let body = bytes.len() - 8;
            let sum = xxh3_64(&bytes[..body]);
            bytes[body..].copy_from_slice(&sum.to_le_bytes());
            let _ = Image::decode(&bytes);
        }
    }
}
