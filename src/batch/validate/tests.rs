//! Tests of validation: golden batches, every refusal with its code, headers corrected, batches
//! compressed anew, slices, hostile bytes.

use std::task::Poll;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as peer;
use proptest::prelude::*;

use super::*;
use crate::batch::build::BatchBuilder;
use crate::batch::crc::{batch_crc, crc_matches};
use crate::batch::header::{seal, set_max_timestamp};
use crate::batch::records::{Records, decompressed_records};
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};

const NOW_MS: i64 = 1_700_000_000_000;

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

const RULES: ValidateRules = ValidateRules::DEFAULT;

const APPEND_TIME: ValidateRules =
    ValidateRules { timestamp_type: TimestampType::LogAppendTime, ..RULES };

/// Five records with keys, values and repeated headers, one millisecond apart.
fn sample(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
    for n in 0..5_u8 {
        let value = vec![n; 100];
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1")), (b"h", None)];
        builder.push(NOW_MS + i64::from(n), Some(&[b'k', n]), Some(&value), headers);
    }
    builder.finish()
}

fn run(batch: &[u8], rules: &ValidateRules) -> Result<ValidBatch, Refusal> {
    validate(Some(Bytes::copy_from_slice(batch)), rules, NOW_MS)
}

fn refused(batch: &[u8], rules: &ValidateRules) -> Refusal {
    run(batch, rules).expect_err("a refusal")
}

/// The batch with changed bytes and a CRC that fits them.
fn changed(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut batch);
    batch
}

fn placed(valid: &ValidBatch) -> Vec<u8> {
    let mut stored = vec![0; valid.bytes.len()];
    let copied = valid.copy_to(&mut stored, Offset(1000), LeaderEpoch(4));
    assert_eq!(copied, stored.len());
    assert!(crc_matches(&stored));
    let header = BatchHeader::read_verified(&stored).expect("a good batch");
    assert_eq!((header.base_offset, header.leader_epoch), (Offset(1000), LeaderEpoch(4)));
    stored
}

/// Timestamp, key, value and headers of a record, owned.
type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn owned_records(batch: &[u8]) -> Vec<Owned> {
    let bytes = Bytes::copy_from_slice(batch);
    let header = BatchHeader::read_verified(batch).expect("a good batch");
    let records = decompressed_records(&header, &bytes, 1 << 24).expect("inflates");
    Records::new(&records, header.record_count)
        .map(|record| {
            let record = record.expect("a good record");
            let headers = record.headers.map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec)));
            (
                header.record_timestamp(record.timestamp_delta),
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                headers.collect(),
            )
        })
        .collect()
}

fn golden(codec: Compression) -> Vec<u8> {
    let text = include_str!("../testdata/kafka_python_batches.txt");
    let after = text.lines().skip_while(|line| *line != codec.name()).skip(1);
    let hex: String = after.take_while(|line| line.len() > 6).collect();
    (0..hex.len() / 2)
        .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("hex"))
        .collect()
}

#[test]
fn batches_of_another_client_are_kept_as_sent() {
    let plain = golden(Compression::None);
    let expected = owned_records(&plain);
    assert_eq!(expected.len(), 20);
    let pair = |value: &[u8]| (b"h".to_vec(), Some(value.to_vec()));
    assert_eq!(expected[0].3, [pair(b"1"), pair(b"2")]);
    assert_eq!(expected[19].0, NOW_MS + 19);
    assert_eq!(expected[19].1, Some(b"key-1".to_vec()));
    for codec in CODECS {
        let batch = golden(codec);
        let valid = run(&batch, &RULES).expect("a good batch");
        assert_eq!(valid.bytes, batch);
        assert_eq!(valid.header_bytes, batch[..HEADER_BYTES]);
        assert_eq!(valid.header.compression(), Some(codec));
        assert!(!valid.is_header_changed && !valid.is_recompressed);
        assert_eq!(valid.max_timestamp, NOW_MS + 19);
        assert_eq!(valid.log_append_time, None);
        assert_eq!(valid.records_bytes, plain.len() - HEADER_BYTES);
        assert_eq!(owned_records(&placed(&valid)), expected, "{codec:?}");
    }
}

#[test]
fn another_encoder_writes_what_ours_writes() {
    let record = |offset: i64, value: &'static [u8]| peer::Record {
        transactional: true,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: 7,
        producer_epoch: 1,
        timestamp_type: peer::TimestampType::Creation,
        offset,
        sequence: 40 + offset as i32,
        timestamp: NOW_MS + offset,
        key: None,
        value: Some(Bytes::from_static(value)),
        headers: [(StrBytes::from_static_str("name"), None)].into_iter().collect(),
    };
    let options = peer::RecordEncodeOptions { version: 2, compression: peer::Compression::None };
    let mut encoded = BytesMut::new();
    let records = [record(0, b"one"), record(1, b""), record(2, b"three")];
    peer::RecordBatchEncoder::encode(&mut encoded, &records, &options).expect("encodes");
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed)
        .producer(ProducerId(7), ProducerEpoch(1), 40)
        .transactional();
    for (n, value) in [&b"one"[..], b"", b"three"].into_iter().enumerate() {
        builder.push(NOW_MS + n as i64, None, Some(value), &[(b"name", None)]);
    }
    assert_eq!(builder.finish(), encoded);
    let valid = run(&encoded, &RULES).expect("a good batch");
    assert!(valid.header.is_transactional());
    assert_eq!(valid.header.last_sequence(), 42);
}

#[test]
fn framing_is_refused_as_kafka_does() {
    let good = sample(Compression::None);
    let check = |batch: &[u8], code: ErrorCode, reason: Reason| {
        let message = match &reason {
            Reason::MagicUnknown(magic) => Some(format!("Invalid magic found in record: {magic}")),
            Reason::LengthTooSmall(size) => {
                Some(format!("Record size {size} is less than the minimum record overhead (14)"))
            }
            _ => None,
        };
        let refusal = refused(batch, &RULES);
        assert_eq!(refusal, Refusal { code, message, record_errors: Vec::new(), reason });
    };
    let none = Reason::NoBatch { version: 9 };
    check(&[], ErrorCode::InvalidRecord, none.clone());
    check(&good[..11], ErrorCode::InvalidRecord, none.clone());
    check(&good[..16], ErrorCode::InvalidRecord, none.clone());
    check(&good[..good.len() - 1], ErrorCode::InvalidRecord, none);
    for magic in [0, 1] {
        let reason = Reason::MagicOld { version: 9, magic };
        check(&changed(&good, 16, &[magic as u8]), ErrorCode::InvalidRecord, reason);
    }
    for magic in [3, -1, i8::MIN] {
        let batch = changed(&good, 16, &[magic as u8]);
        check(&batch, ErrorCode::CorruptMessage, Reason::MagicUnknown(magic));
    }
    for length in [13, 0, -1, i32::MIN] {
        let batch = changed(&good, 8, &length.to_be_bytes());
        check(&batch, ErrorCode::CorruptMessage, Reason::LengthTooSmall(length));
    }
    for length in [14_i32, 48] {
        let mut batch = changed(&good, 8, &length.to_be_bytes());
        batch.truncate(12 + length as usize);
        let bytes = batch.len();
        check(&batch, ErrorCode::CorruptMessage, Reason::BelowHeader { bytes });
    }
    let second = Reason::SecondBatch { version: 9 };
    check(&[&good[..], &good].concat(), ErrorCode::InvalidRecord, second);
    let with = |tail: &[u8]| [&good[..], tail].concat();
    check(&with(&[0; 12]), ErrorCode::CorruptMessage, Reason::JunkBehind);
    check(
        &changed(&good, 0, &1_i64.to_be_bytes()),
        ErrorCode::InvalidRecord,
        Reason::BaseOffset(1),
    );
    let mut stale = good.clone();
    stale[17] ^= 1;
    let reason =
        Reason::CrcMismatch { stored: batch_crc(&good) ^ 0x0100_0000, computed: batch_crc(&good) };
    check(&stale, ErrorCode::CorruptMessage, reason);
    assert_eq!(validate(None, &RULES, NOW_MS).expect_err("none").code.code(), 87);
}

#[test]
fn a_cut_batch_after_a_good_one_is_trimmed() {
    let good = sample(Compression::Lz4);
    for tail in [1, 11, 16, 17, 60, good.len() - 1] {
        let batch = [&good[..], &good[..tail]].concat();
        let valid = run(&batch, &RULES).expect("a good batch");
        assert_eq!(valid.bytes, good, "tail of {tail}");
    }
    let zeroes = [&good[..], &[0; 11]].concat();
    assert_eq!(run(&zeroes, &RULES).expect("a good batch").bytes, good);
}

#[test]
fn headers_that_disagree_are_refused() {
    let good = sample(Compression::None);
    let check = |at: usize, bytes: &[u8], code: ErrorCode, reason: Reason| {
        let refusal = refused(&changed(&good, at, bytes), &RULES);
        assert_eq!(refusal, Refusal { code, ..Refusal::plain(reason) });
    };
    let invalid = ErrorCode::InvalidRecord;
    for last in [-1, i32::MIN] {
        check(23, &last.to_be_bytes(), invalid, Reason::OffsetRange { last });
    }
    for count in [0, -1, i32::MIN] {
        check(57, &count.to_be_bytes(), invalid, Reason::Count(count));
    }
    let mismatch = |last, count| Reason::CountMismatch { last, count };
    check(57, &6_i32.to_be_bytes(), invalid, mismatch(4, 6));
    check(23, &i32::MAX.to_be_bytes(), invalid, mismatch(i32::MAX, 5));
    check(21, &[0, 0x20], invalid, Reason::ControlBatch);
    let reason = Reason::Sequence { sequence: -1, producer_id: ProducerId(0) };
    check(43, &0_i64.to_be_bytes(), invalid, reason);
    for codec in 5..=7 {
        let reason = Reason::CodecUnknown(codec);
        check(21, &[0, codec], ErrorCode::UnsupportedCompressionType, reason);
    }
}

#[test]
fn record_counts_and_bytes_must_agree() {
    for codec in CODECS {
        let check = |batch: &[u8], fault: RecordFault| {
            let refusal = refused(batch, &RULES);
            assert_eq!(refusal, Refusal::plain(Reason::Record(fault)), "{codec:?}");
            assert_eq!(refusal.code.code(), 87);
        };
        let good = sample(codec);
        let declare = |count: i32| {
            let batch = changed(&good, 23, &(count - 1).to_be_bytes());
            changed(&batch, 57, &count.to_be_bytes())
        };
        check(&declare(6), RecordFault::Truncated);
        check(&declare(4), RecordFault::TrailingBytes(4));
        check(&declare(i32::MAX), RecordFault::Truncated);
    }
    // One record whose declared size or header count is wrong, compressed or not.
    let payload = [0x0E, 0, 0, 0, 2, b'k', 1, 0];
    for codec in CODECS {
        let check = |at: usize, byte: u8, fault: RecordFault| {
            let mut payload = payload;
            payload[at] = byte;
            let refusal = refused(&batch_of(codec, &payload, 1), &RULES);
            assert_eq!(refusal, Refusal::plain(Reason::Record(fault)), "{codec:?}");
        };
        assert!(run(&batch_of(codec, &payload, 1), &RULES).is_ok());
        check(0, 0x0C, RecordFault::Truncated);
        check(0, 0x01, RecordFault::SizeNegative(-1));
        check(4, 0x7E, RecordFault::Truncated);
        check(7, 1, RecordFault::HeaderCount(-1));
        check(7, 2, RecordFault::HeaderCount(1));
        let longer = [0x10, 0, 0, 0, 2, b'k', 1, 0, 0];
        let refusal = refused(&batch_of(codec, &longer, 1), &RULES);
        let mismatch = Reason::Record(RecordFault::SizeMismatch(1));
        assert_eq!(refusal, Refusal::plain(mismatch));
    }
}

/// A sealed batch with this payload, compressed as asked.
fn batch_of(codec: Compression, payload: &[u8], count: i32) -> Vec<u8> {
    let target = CompressionTarget::of(codec);
    let mut batch = BatchBuilder::new(target).finish()[..HEADER_BYTES].to_vec();
    batch.extend(crate::batch::compression::compress(target, payload).expect("compresses"));
    batch_with_length(batch, count)
}

fn batch_with_length(batch: Vec<u8>, count: i32) -> Vec<u8> {
    let length = (batch.len() - 12) as i32;
    let batch = changed(&batch, 8, &length.to_be_bytes());
    let batch = changed(&batch, 23, &(count - 1).to_be_bytes());
    changed(&batch, 57, &count.to_be_bytes())
}

#[test]
fn offset_deltas_must_count_up() {
    for codec in CODECS {
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec)).last_offset_delta(1);
        builder.push_at(0, NOW_MS, None, None, &[]);
        builder.push_at(2, NOW_MS, None, None, &[]);
        let batch = changed(&builder.finish(), 23, &1_i32.to_be_bytes());
        let reason = Reason::OffsetDelta { expected: 1, found: 2 };
        let refusal = refused(&batch, &RULES);
        assert_eq!(refusal, Refusal::plain(reason));
        assert_eq!(refusal.code.code(), 87);
    }
}

#[test]
fn sizes_are_bounded() {
    let good = sample(Compression::Zstd);
    let max = good.len();
    let limits = |max_message_bytes, segment_bytes| ValidateRules {
        max_message_bytes,
        segment_bytes,
        ..RULES
    };
    assert!(run(&good, &limits(max, max)).is_ok());
    let refusal = refused(&good, &limits(max - 1, max));
    let reason = Reason::TooLarge { bytes: max, max: max - 1 };
    assert_eq!((refusal.code.code(), refusal.reason), (10, reason));
    let refusal = refused(&good, &limits(max, max - 1));
    let reason = Reason::AboveSegment { bytes: max, max: max - 1 };
    assert_eq!((refusal.code.code(), refusal.reason), (18, reason));
    // Fits as sent, not as the topic stores it.
    let plain = sample(Compression::None).len();
    let rules =
        ValidateRules { compression: CompressionTarget::Uncompressed, ..limits(max, plain) };
    let refusal = refused(&good, &rules);
    let reason = Reason::TooLarge { bytes: plain, max };
    assert_eq!((refusal.code.code(), refusal.reason), (10, reason));
}

#[test]
fn checks_come_in_kafkas_order() {
    let good = sample(Compression::Zstd);
    let tight =
        ValidateRules { produce_version: 6, max_message_bytes: 100, segment_bytes: 100, ..RULES };
    // Every fault at once, then one less each time.
    let mut batch = changed(&good, 0, &5_i64.to_be_bytes());
    batch[60] = 9;
    batch[30] ^= 0xFF;
    let twice = [&batch[..], &good].concat();
    assert_eq!(refused(&twice, &tight).code.code(), 76);
    let newer = ValidateRules { produce_version: 7, ..tight };
    assert_eq!(refused(&twice, &newer).reason, Reason::SecondBatch { version: 7 });
    assert_eq!(refused(&batch, &newer).reason, Reason::BaseOffset(5));
    batch[7] = 0;
    assert_eq!(refused(&batch, &newer).code.code(), 10);
    let wide = ValidateRules { max_message_bytes: 1 << 20, ..newer };
    assert_eq!(refused(&batch, &wide).code.code(), 2);
    seal(&mut batch);
    assert_eq!(refused(&batch, &wide).reason, Reason::CountMismatch { last: 4, count: 9 });
    assert_eq!(refused(&good, &wide).code.code(), 18);
}

#[test]
fn zstd_needs_version_7() {
    let good = sample(Compression::Zstd);
    for produce_version in 3..=13 {
        let rules = ValidateRules { produce_version, ..RULES };
        match run(&good, &rules) {
            Ok(_) => assert!(produce_version >= 7),
            Err(refusal) => {
                assert!(produce_version < 7);
                assert_eq!(refusal.code.code(), 76);
            }
        }
    }
}

#[test]
fn keyless_records_on_a_compacted_topic_are_named() {
    let rules = ValidateRules { keys_required: true, ..RULES };
    assert!(run(&sample(Compression::Gzip), &rules).is_ok());
    for codec in CODECS {
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
        for n in 0..6 {
            let key: Option<&[u8]> = if n == 1 { Some(b"") } else { None };
            builder.push(NOW_MS, key, Some(b"v"), &[]);
        }
        let refusal = refused(&builder.finish(), &rules).in_partition("orders-3");
        assert_eq!(refusal.code.code(), 87);
        let indexes: Vec<i32> = refusal.record_errors.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes, [0, 2, 3, 4, 5]);
        let text = "Compacted topic cannot accept message without key in topic partition orders-3";
        assert_eq!(refusal.record_errors[4].1.as_deref(), Some(text));
        let listed = |n: i32| format!("RecordError(batchIndex={n}, message='{text}')");
        let message = format!(
            "One or more records have been rejected due to 5 record errors in total, and only \
             showing the first three errors at most: [{}, {}, {}]",
            listed(0),
            listed(2),
            listed(3)
        );
        assert_eq!(refusal.message, Some(message));
    }
}

#[test]
fn the_number_of_named_records_is_bounded() {
    let rules = ValidateRules { keys_required: true, ..RULES };
    let mut builder = BatchBuilder::new(CompressionTarget::of(Compression::Zstd));
    for _ in 0..5000 {
        builder.push(NOW_MS, None, None, &[]);
    }
    let refusal = refused(&builder.finish(), &rules);
    assert_eq!(refusal.record_errors.len(), 1000);
    let message = refusal.message.expect("a text");
    assert!(
        message.starts_with(
            "One or more records have been rejected due to 5000 record errors in total"
        )
    );
}

fn stamped(timestamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
    for timestamp in timestamps {
        builder.push(*timestamp, None, None, &[]);
    }
    builder.finish()
}

#[test]
fn create_times_must_be_in_range() {
    let rules = ValidateRules { before_max_ms: 1000, after_max_ms: 500, ..RULES };
    assert!(run(&stamped(&[NOW_MS - 1000, NOW_MS + 500, -1]), &rules).is_ok());
    let refusal = refused(&stamped(&[NOW_MS, NOW_MS + 501, NOW_MS - 1001]), &rules);
    assert_eq!(refusal.code.code(), 32);
    let text = "One or more records have been rejected due to invalid timestamp";
    assert_eq!(refusal.message.as_deref(), Some(text));
    let text = |ts: i64, offset: i32| {
        Some(format!(
            "Timestamp {ts} of message with offset {offset} is out of range. The timestamp \
             should be within [1699999999000, 1700000000500]"
        ))
    };
    let expected = vec![(1, text(NOW_MS + 501, 1)), (2, text(NOW_MS - 1001, 2))];
    assert_eq!(refusal.record_errors, expected);
    // 1970 is fine by default; a time so far off that the difference wraps is not.
    assert!(run(&stamped(&[0, 1]), &RULES).is_ok());
    assert_eq!(refused(&stamped(&[i64::MIN]), &RULES).code.code(), 32);
    assert_eq!(refused(&stamped(&[i64::MAX]), &RULES).code.code(), 32);
}

#[test]
fn one_wrong_timestamp_decides_the_code() {
    let rules = ValidateRules { keys_required: true, ..RULES };
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
    builder.push(NOW_MS, None, None, &[]);
    builder.push(i64::MAX / 2, Some(b"k"), None, &[]);
    let refusal = refused(&builder.finish(), &rules);
    assert_eq!(refusal.code.code(), 32);
    assert_eq!(refusal.record_errors.len(), 2);
}

#[test]
fn producers_must_not_claim_append_time() {
    let build = |codec: Compression, time: i64| {
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec)).log_append_time(time);
        builder.push(5, None, Some(b"abc"), &[]);
        builder.finish()
    };
    let text = |batch: &[u8], rules: &ValidateRules| {
        let refusal = refused(batch, rules);
        assert_eq!(refusal.code.code(), 32);
        refusal.record_errors[0].1.clone().expect("a text")
    };
    assert_eq!(
        text(&build(Compression::None, NOW_MS), &APPEND_TIME),
        "Invalid timestamp type in message DefaultRecord(offset=0, timestamp=1700000000000, key=0 \
         bytes, value=3 bytes). Producer should not set timestamp type to LogAppendTime."
    );
    assert_eq!(
        text(&build(Compression::Gzip, -1), &RULES),
        "Invalid timestamp type in message PartialDefaultRecord(offset=0, timestamp=-1, key=-1 \
         bytes, value=3 bytes). Producer should not set timestamp type to LogAppendTime."
    );
    // On a topic of create times Kafka takes the claimed time for the records' and drops the bit.
    let valid = run(&build(Compression::None, NOW_MS - 7), &RULES).expect("accepted");
    assert_eq!(valid.header.timestamp_type(), TimestampType::CreateTime);
    assert_eq!(valid.max_timestamp, NOW_MS - 7);
    placed(&valid);
}

#[test]
fn append_time_is_set_in_the_header_beside_the_bytes() {
    for codec in CODECS {
        let batch = sample(codec);
        let valid = run(&batch, &APPEND_TIME).expect("a good batch");
        assert_eq!(valid.bytes, batch);
        assert!(valid.is_header_changed);
        assert_eq!((valid.max_timestamp, valid.log_append_time), (NOW_MS, Some(NOW_MS)));
        let mut expected = batch.clone();
        crate::batch::header::set_log_append_time(&mut expected, NOW_MS);
        assert_eq!(valid.header_bytes, expected[..HEADER_BYTES]);
        let times: Vec<i64> = owned_records(&placed(&valid)).iter().map(|r| r.0).collect();
        assert_eq!(times, [NOW_MS; 5]);
    }
}

#[test]
fn a_wrong_maximum_timestamp_is_corrected() {
    for (claimed, codec) in [(-1, Compression::None), (i64::MAX, Compression::Snappy)] {
        let mut batch = sample(codec);
        set_max_timestamp(&mut batch, claimed);
        let valid = run(&batch, &RULES).expect("a good batch");
        assert_eq!(valid.max_timestamp, NOW_MS + 4);
        assert!(valid.is_header_changed);
        let mut expected = batch.clone();
        set_max_timestamp(&mut expected, NOW_MS + 4);
        assert_eq!(valid.header_bytes, expected[..HEADER_BYTES]);
        placed(&valid);
    }
    assert_eq!(run(&stamped(&[-1, -1]), &RULES).expect("good").max_timestamp, -1);
}

#[test]
fn topics_with_a_codec_store_it() {
    let expected = owned_records(&sample(Compression::None));
    for source in CODECS {
        for target in CODECS {
            let rules = ValidateRules { compression: CompressionTarget::of(target), ..RULES };
            let batch = sample(source);
            let valid = run(&batch, &rules).expect("a good batch");
            assert_eq!(valid.is_recompressed, source != target);
            assert_eq!(valid.header.compression(), Some(target));
            assert_eq!(valid.header_bytes, valid.bytes[..HEADER_BYTES]);
            assert!(!valid.is_header_changed);
            assert_eq!(valid.bytes == batch, source == target);
            assert_eq!(valid.max_timestamp, NOW_MS + 4);
            assert_eq!(owned_records(&placed(&valid)), expected, "{source:?} to {target:?}");
        }
    }
    let rules = ValidateRules { compression: CompressionTarget::Gzip(1), ..APPEND_TIME };
    let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed)
        .producer(ProducerId(3), ProducerEpoch(2), 8)
        .transactional();
    builder.push(1, None, None, &[]);
    let valid = run(&builder.finish(), &rules).expect("a good batch");
    assert_eq!(valid.header.attributes, 0x19);
    assert_eq!((valid.header.base_sequence, valid.header.max_timestamp), (8, NOW_MS));
}

#[test]
fn slices_give_the_same_answer() {
    let large = |codec: Compression| {
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
        for n in 0..100_u32 {
            let value: Vec<u8> = (0..3000).map(|m| (m * n % 255) as u8).collect();
            builder.push(NOW_MS, Some(b"k"), Some(&value), &[]);
        }
        builder.finish()
    };
    let rules = ValidateRules { max_message_bytes: 1 << 20, ..APPEND_TIME };
    for codec in CODECS {
        let batch = Bytes::from(large(codec));
        let whole = validate(Some(batch.clone()), &rules, NOW_MS).expect("a good batch");
        for budget in [1, 1000, 1 << 16] {
            let mut validator = Validator::start(Some(batch.clone()), &rules, NOW_MS);
            let mut steps = 0;
            let sliced = loop {
                steps += 1;
                if let Poll::Ready(result) = validator.step(budget) {
                    break result.expect("a good batch");
                }
            };
            assert!(steps > 1 || budget == 1 << 16, "{codec:?} by {budget}: {steps}");
            assert_eq!(sliced.header_bytes, whole.header_bytes);
            assert_eq!(sliced.bytes, whole.bytes);
        }
    }
}

/// A batch of `count` records of a mebibyte of zeroes each.
fn bomb(codec: Compression, count: i32) -> Vec<u8> {
    let target = CompressionTarget::of(codec);
    let value_bytes = 1 << 20;
    let mut deflater = Deflater::new(target, vec![0; HEADER_BYTES], usize::MAX).expect("starts");
    let mut record = Vec::new();
    for index in 0..count {
        let mut body = vec![0, 0];
        crate::batch::records::write_varlong(i64::from(index), &mut body);
        crate::batch::records::write_varlong(-1, &mut body);
        crate::batch::records::write_varlong(value_bytes, &mut body);
        body.resize(body.len() + value_bytes as usize, 0);
        body.push(0);
        record.clear();
        crate::batch::records::write_varlong(body.len() as i64, &mut record);
        record.extend_from_slice(&body);
        deflater.write(&record).expect("compresses");
    }
    let mut batch = deflater.finish().expect("compresses").bytes;
    let header = BatchBuilder::new(target).finish();
    batch[..HEADER_BYTES].copy_from_slice(&header[..HEADER_BYTES]);
    batch_with_length(batch, count)
}

#[test]
fn a_decompression_bomb_is_refused() {
    let batch = bomb(Compression::Zstd, 1025);
    assert!(batch.len() < RULES.max_message_bytes);
    let refusal = refused(&batch, &RULES);
    assert_eq!(refusal, Refusal::plain(Reason::Inflate(InflateFault::TooLarge)));
    assert_eq!(refusal.code.code(), 87);
    // Eight of them are a good batch, of which only a window is in memory at any time.
    let valid = run(&bomb(Compression::Gzip, 8), &RULES).expect("a good batch");
    assert!(valid.records_bytes > 8 << 20);
}

#[test]
fn a_record_larger_than_the_limit_is_refused_from_its_size() {
    // The sizes of the record and its value say 2 GiB; what follows is far less.
    let mut payload = vec![0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0, 1];
    crate::batch::records::write_varlong(i64::from(i32::MAX - 20), &mut payload);
    payload.resize(1000, 0);
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let refusal = refused(&batch_of(codec, &payload, 1), &RULES);
        assert_eq!(refusal.reason, Reason::Inflate(InflateFault::TooLarge));
    }
}

#[test]
fn damaged_compressed_records_are_refused() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        for damage in [&b""[..], b"not compressed at all", &[0xFF; 40]] {
            let mut batch = BatchBuilder::new(CompressionTarget::of(codec)).finish();
            batch.truncate(HEADER_BYTES);
            batch.extend_from_slice(damage);
            let refusal = refused(&batch_with_length(batch, 1), &RULES);
            assert_eq!(refusal.code.code(), 87, "{codec:?} {damage:?}");
        }
    }
}

#[test]
fn a_batch_whose_crc_is_zero_is_a_batch() {
    let value_at = |value: [u8; 4]| {
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
        builder.push(NOW_MS, Some(b"k"), Some(&value), &[]);
        builder.finish()
    };
    // The CRC is affine in the four bytes of the value: eliminate until it is zero.
    let crc = |value: u32| batch_crc(&value_at(value.to_be_bytes()));
    let mut rest = crc(0);
    let mut value = 0;
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for bit in 0..32 {
        let mut row = (crc(1 << bit) ^ crc(0), 1_u32 << bit);
        for (pivot, bits) in &rows {
            if row.0 & (1 << pivot.ilog2()) != 0 {
                row = (row.0 ^ pivot, row.1 ^ bits);
            }
        }
        assert_ne!(row.0, 0);
        rows.push(row);
    }
    while rest != 0 {
        // Not in echelon form, so pass over the rows until none applies.
        for (pivot, bits) in &rows {
            if rest & (1 << pivot.ilog2()) != 0 {
                rest ^= pivot;
                value ^= bits;
            }
        }
    }
    let batch = value_at(value.to_be_bytes());
    assert_eq!(BatchHeader::read_verified(&batch).map(|header| header.crc), Ok(0));
    assert!(!crate::batch::header::is_blank(&batch));
    assert_eq!(run(&batch, &RULES).expect("a good batch").bytes, batch);
}

fn any_record() -> impl Strategy<Value = Owned> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let header = ("[ab]{0,2}", proptest::option::of(bytes()))
        .prop_map(|(key, value)| (key.into_bytes(), value));
    (
        0..NOW_MS,
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        proptest::collection::vec(header, 0..4),
    )
}

fn built(records: &[Owned], target: CompressionTarget) -> Vec<u8> {
    let mut builder = BatchBuilder::new(target);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
        builder.push(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.finish()
}

fn any_codec() -> impl Strategy<Value = Compression> {
    (0..5_u8).prop_map(|id| Compression::from_id(id).expect("a codec"))
}

proptest! {
    #[test]
    fn records_come_back_as_they_were_built(
        records in proptest::collection::vec(any_record(), 1..20),
        source in any_codec(),
        target in any_codec(),
        budget in 1_usize..5000,
    ) {
        let batch = built(&records, CompressionTarget::of(source));
        let rules = ValidateRules { compression: CompressionTarget::of(target), ..RULES };
        let mut validator = Validator::start(Some(Bytes::from(batch)), &rules, NOW_MS);
        let valid = loop {
            if let Poll::Ready(result) = validator.step(budget) {
                break result.expect("a good batch");
            }
        };
        let max = records.iter().map(|record| record.0).max();
        prop_assert_eq!(Some(valid.max_timestamp), max);
        prop_assert_eq!(owned_records(&placed(&valid)), records);
    }

    /// Damaged batches, with and without a CRC that fits, are answered and never panic; what is
    /// accepted can be read.
    #[test]
    fn damaged_batches_never_panic(
        records in proptest::collection::vec(any_record(), 1..5),
        codec in any_codec(),
        target in any_codec(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        is_sealed in any::<bool>(),
    ) {
        let mut batch = built(&records, CompressionTarget::of(codec));
        for (at, byte) in changes {
            let at = at.index(batch.len());
            batch[at] = byte;
        }
        if let Some(cut) = cut {
            batch.truncate(cut.index(batch.len()));
        }
        if is_sealed && batch.len() >= HEADER_BYTES {
            let length = (batch.len() - 12) as i32;
            batch[8..12].copy_from_slice(&length.to_be_bytes());
            seal(&mut batch);
        }
        let rules = ValidateRules { compression: CompressionTarget::of(target), ..RULES };
        if let Ok(valid) = run(&batch, &rules) {
            let stored = placed(&valid);
            let count = owned_records(&stored).len();
            prop_assert_eq!(count, valid.header.record_count as usize);
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(run(&bytes, &RULES).is_err());
        let _ = BatchHeader::read_verified(&bytes);
        let _ = crate::batch::header::peek_frame(&bytes);
        for record in Records::new(&bytes, i32::MAX) {
            let _ = record;
        }
    }
}
