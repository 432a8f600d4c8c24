//! Record batches: headers, records, validation, inflation of every codec, search by time.

use std::task::Poll;

use bytes::Bytes;
use ringlog::batch::compression::inflate;
use ringlog::batch::header::{FRAME_BYTES, seal};
use ringlog::batch::search::TimestampSearch;
use ringlog::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, HEADER_BYTES, Marker, Record,
    RecordHeader, Records, TimestampType, ValidateRules, Validator, decompressed_records,
    peek_frame, validate,
};
use ringlog::ids::{LeaderEpoch, Offset};

use crate::allocation::within;
use crate::run;
use crate::sample::Choices;

/// Windows, blocks and tables of the greediest codec, and the buffer between it and the scanner.
const CODEC_BYTES: usize = codec_bytes(Compression::Zstd);

/// An input of kilobytes may name a zstd window of 128 MiB, and LZ4 blocks of 4 MiB, of which there
/// are a few at once; a raw snappy block is at most 22 times its size.
const fn codec_bytes(codec: Compression) -> usize {
    match codec {
        Compression::Zstd => 141 << 20,
        Compression::Lz4 => 20 << 20,
        Compression::None | Compression::Gzip | Compression::Snappy => 1 << 20,
    }
}

/// Most that inflated bytes may take where all of them are asked for.
const INFLATED_BYTES_MAX: usize = 64 * 1024;

fn codec(choices: &mut Choices<'_>) -> Compression {
    Compression::from_id(choices.byte() % 5).expect("a codec")
}

/// A batch as a client could send it.
fn batch(choices: &mut Choices<'_>, codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
    for number in 0..1 + choices.below(5) {
        let key = (!choices.chance(3)).then(|| choices.bytes(12));
        let value = (!choices.chance(5)).then(|| choices.bytes(40));
        let headers = [(choices.bytes(4), choices.bytes(4))];
        let headers: Vec<RecordHeader<'_>> = headers
            .iter()
            .filter(|_| number % 2 == 0)
            .map(|(name, value)| (name.as_slice(), Some(value.as_slice())))
            .collect();
        let timestamp = 1_000 + i64::from(choices.byte());
        builder.push(timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.finish()
}

fn rules(choices: &mut Choices<'_>) -> ValidateRules {
    let targets = [
        CompressionTarget::Producer,
        CompressionTarget::Uncompressed,
        CompressionTarget::Lz4(9),
        CompressionTarget::Snappy,
    ];
    ValidateRules {
        produce_version: [3, 7, 9, 13][choices.below(4)],
        timestamp_type: match choices.chance(3) {
            true => TimestampType::LogAppendTime,
            false => TimestampType::CreateTime,
        },
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        compression: targets[choices.below(targets.len())],
        max_message_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        keys_required: choices.chance(6),
    }
}

/// Validates in one go and in small steps: the outcome must be the same.
fn validated(bytes: &Bytes, rules: &ValidateRules) {
    let whole = validate(Some(bytes.clone()), rules, 5_000);
    let mut steps = Validator::start(Some(bytes.clone()), rules, 5_000);
    let stepped = loop {
        if let Poll::Ready(outcome) = steps.step(7) {
            break outcome;
        }
    };
    match (whole, stepped) {
        (Ok(whole), Ok(stepped)) => {
            assert_eq!(whole.header, stepped.header);
            let mut stored = vec![0; whole.bytes.len()];
            whole.copy_to(&mut stored, Offset(77), LeaderEpoch(3));
            let header = BatchHeader::read_verified(&stored).expect("what is stored is sound");
            assert_eq!(header.base_offset, Offset(77));
            let stored = Bytes::from(stored);
            let records = decompressed_records(&header, &stored, 1 << 30).expect("it inflated");
            let count = Records::new(&records, header.record_count).map_while(Result::ok).count();
            assert_eq!(count, usize::try_from(header.record_count).expect("a count"));
        }
        (Err(whole), Err(stepped)) => assert_eq!(whole.reason.code(), stepped.reason.code()),
        (whole, stepped) => panic!("{:?} in one go, {:?} in steps", whole.is_ok(), stepped.is_ok()),
    }
}

#[test]
fn batches_that_are_sound_are_valid() {
    run("sound batches", |choices| {
        let codec = codec(choices);
        let bytes = Bytes::from(batch(choices, codec));
        let mut rules = rules(choices);
        rules.produce_version = 13;
        rules.keys_required = false;
        let valid = validate(Some(bytes.clone()), &rules, 5_000).expect("it is sound");
        assert_eq!(
            valid.header.record_count,
            BatchHeader::read(&bytes).expect("sound").record_count
        );
        validated(&bytes, &rules);
    });
}

#[test]
fn damaged_batches() {
    run("damaged batches", |choices| {
        let codec = codec(choices);
        let mut bytes = batch(choices, codec);
        choices.damage(&mut bytes);
        // A right checksum lets the damage in; a right length too.
        if bytes.len() > HEADER_BYTES && !choices.chance(8) {
            let length = (bytes.len() - FRAME_BYTES) as i32;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[16] = 2;
            seal(&mut bytes);
        }
        let rules = rules(choices);
        let bytes = Bytes::from(bytes);
        within(CODEC_BYTES + 64 * bytes.len(), "a damaged batch", || {
            validated(&bytes, &rules);
            let _ = peek_frame(&bytes);
            if let Ok(header) = BatchHeader::read(&bytes) {
                let payload = bytes.get(HEADER_BYTES..header.total_bytes());
                let _ = Marker::read(&header, payload.unwrap_or(&[]));
                searched(&header, &bytes, 1_100);
            }
        });
    });
}

/// Searches in steps, and holds the answer against the records inflated whole.
fn searched(header: &BatchHeader, bytes: &Bytes, timestamp: i64) {
    let Ok(mut search) = TimestampSearch::start(header, bytes, timestamp, Offset(0)) else {
        return;
    };
    let found = loop {
        if let Poll::Ready(found) = search.step(50) {
            break found;
        }
    };
    let Ok(records) = decompressed_records(header, bytes, 1 << 24) else { return };
    let mut expected = Ok(None);
    for record in Records::new(&records, header.record_count) {
        match record {
            Err(fault) => {
                expected = Err(fault);
                break;
            }
            Ok(record) => {
                let at = header.record_timestamp(record.timestamp_delta);
                let offset = header.record_offset(record.offset_delta);
                if at >= timestamp && offset >= Offset(0) {
                    expected = Ok(Some((at, offset)));
                    break;
                }
            }
        }
    }
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected),
        // What is found before the damage is found.
        (_, Err(_)) => {}
        (found, expected) => panic!("{found:?}, but {expected:?} record by record"),
    }
}

#[test]
fn records_of_random_bytes() {
    run("random records", |choices| {
        let count = choices.edge() as i32;
        let bytes = choices.rest();
        within(1_024, "random records", || {
            let mut used = 0;
            for record in Records::new(bytes, count).map_while(Result::ok) {
                used += 1;
                let _ = record.headers.count();
            }
            assert!(used <= bytes.len());
            let _ = Record::read(bytes);
        });
    });
}

#[test]
fn compressed_bodies() {
    run("compressed bodies", |choices| {
        let codec = codec(choices);
        let plain = choices.bytes(200).repeat(1 + choices.below(8));
        let target = CompressionTarget::of(codec);
        let mut compressed = ringlog::batch::compression::compress(target, &plain).expect("memory");
        let whole = inflate(codec, &Bytes::from(compressed.clone()), INFLATED_BYTES_MAX);
        assert_eq!(whole.expect("it was compressed here"), plain);
        choices.damage(&mut compressed);
        let compressed = Bytes::from(compressed);
        let most = codec_bytes(codec) + 2 * INFLATED_BYTES_MAX + 23 * compressed.len();
        within(most, "a compressed body", || {
            if let Ok(inflated) = inflate(codec, &compressed, INFLATED_BYTES_MAX) {
                assert!(inflated.len() <= INFLATED_BYTES_MAX);
            }
        });
    });
}

#[test]
fn compressed_bodies_of_random_bytes() {
    run("random bodies", |choices| {
        let codec = codec(choices);
        let bytes = Bytes::copy_from_slice(choices.rest());
        let most = codec_bytes(codec) + 2 * INFLATED_BYTES_MAX + 23 * bytes.len();
        within(most, "a random body", || {
            let _ = inflate(codec, &bytes, INFLATED_BYTES_MAX);
        });
    });
}
