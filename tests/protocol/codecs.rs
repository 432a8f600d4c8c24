//! Compressed batches: stored as sent, or compressed anew where the topic says so.

use std::io::{Read, Write};

use crate::calls::{self, append, outcome, produce};
use crate::cluster::Cluster;
use crate::support::batch::{Batch, CODEC_MASK, Record};

in_every_mode!(
    compressed_batches_are_stored_as_sent,
    topics_choose_their_codec,
    broken_records_inside_a_compressed_batch_are_refused,
    small_batches_that_inflate_to_much_are_stored,
);

const CODECS: [&str; 5] = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];

fn compress(codec: i16, records: &[u8]) -> Vec<u8> {
    match codec {
        0 => records.to_vec(),
        1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(records).expect("memory");
            encoder.finish().expect("memory")
        }
        2 => xerial(records),
        3 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records).expect("memory");
            encoder.finish().expect("memory")
        }
        4 => zstd::encode_all(records, 0).expect("memory"),
        _ => unreachable!("five codecs"),
    }
}

/// The framing of Java's snappy streams: a header of 16 bytes, then blocks behind their lengths.
fn xerial(records: &[u8]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in records.chunks(32 * 1024) {
        let block = snap::raw::Encoder::new().compress_vec(block).expect("small enough");
        out.extend(u32::try_from(block.len()).expect("small").to_be_bytes());
        out.extend(block);
    }
    out
}

fn inflate(codec: i16, mut payload: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    match codec {
        0 => records.extend(payload),
        1 => {
            flate2::read::GzDecoder::new(payload).read_to_end(&mut records).expect("gzip");
        }
        2 => {
            assert_eq!(&payload[..8], b"\x82SNAPPY\0");
            payload = &payload[16..];
            while !payload.is_empty() {
                let length = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
                let (block, rest) = payload[4..].split_at(length as usize);
                records.extend(snap::raw::Decoder::new().decompress_vec(block).expect("snappy"));
                payload = rest;
            }
        }
        3 => {
            lz4_flex::frame::FrameDecoder::new(payload).read_to_end(&mut records).expect("lz4");
        }
        4 => records = zstd::decode_all(payload).expect("zstd"),
        _ => unreachable!("five codecs"),
    }
    records
}

fn batch(count: usize) -> Batch {
    let record = |number: usize| {
        let mut record = Record::keyed(format!("key {number}"), vec![b'a'; 200])
            .header("same", Some(b"1"))
            .header("same", None);
        record.timestamp_delta = number as i64;
        record
    };
    Batch::of((0..count).map(record).collect())
}

fn compressed(codec: i16, count: usize) -> Batch {
    let mut batch = batch(count);
    batch.payload = Some(compress(codec, &batch.encoded_records()));
    batch.attributes |= codec;
    batch
}

fn compressed_batches_are_stored_as_sent(cluster: &Cluster) {
    let topic = cluster.topic("codecs", 1);
    let mut client = cluster.at(&topic, 0);
    let mut expected = Vec::new();
    for codec in 1..=4 {
        expected.push(compressed(codec, 300));
    }
    // Some clients write snappy without Java's framing.
    let mut raw = batch(5);
    let records = raw.encoded_records();
    raw.payload = Some(snap::raw::Encoder::new().compress_vec(&records).expect("small"));
    raw.attributes = 2;
    expected.push(raw);
    let mut base = 0;
    for batch in &expected {
        assert_eq!(append(&mut client, &topic, 0, batch), base);
        base += batch.records.len() as i64;
    }
    let found = calls::read_all(&mut client, &topic, 0, 0);
    assert_eq!(found.len(), expected.len());
    for (found, batch) in found.iter().zip(&expected) {
        assert!(found.crc_is_valid);
        assert_eq!(found.attributes, batch.attributes);
        assert_eq!(Some(found.payload.to_vec()), batch.payload);
    }
    for version in 3..=13 {
        let answer = produce(&mut client, version, &topic, 0, compressed(4, 1).encode());
        assert_eq!(answer.error_code, if version < 7 { 76 } else { 0 }, "version {version}");
    }
}

fn topics_choose_their_codec(cluster: &Cluster) {
    for (target, name) in (0..).zip(CODECS) {
        let topic = cluster.topic_with(name, 1, &[("compression.type", name)]);
        let mut client = cluster.at(&topic, 0);
        let mut base = 0;
        for source in 0..=4 {
            let sent = compressed(source, 100).with_producer(7, 0, base);
            assert_eq!(append(&mut client, &topic, 0, &sent), i64::from(base));
            let found = &calls::read_all(&mut client, &topic, 0, i64::from(base))[0];
            assert!(found.crc_is_valid);
            assert_eq!(found.attributes & CODEC_MASK, target, "{source} to {name}");
            assert_eq!((found.record_count, found.last_offset_delta), (100, 99));
            assert_eq!((found.producer_id, found.base_sequence), (7, base));
            assert_eq!(found.max_timestamp, sent.base_timestamp + 99);
            assert_eq!(inflate(target, &found.payload), sent.encoded_records());
            if source == target {
                assert_eq!(Some(found.payload.to_vec()), sent.payload, "left as it is");
            }
            base += 100;
        }
    }
}

fn broken_records_inside_a_compressed_batch_are_refused(cluster: &Cluster) {
    let plain = cluster.topic("broken-inside", 1);
    let other = cluster.topic_with("broken-other", 1, &[("compression.type", "zstd")]);
    for topic in [&plain, &other] {
        let mut client = cluster.at(topic, 0);
        for codec in 1..=4 {
            let mut delta = batch(3);
            delta.records[1].offset_delta = Some(2);
            let mut count = batch(3);
            (count.record_count, count.last_offset_delta) = (Some(4), Some(3));
            let mut short = batch(3);
            short.records[2].length = Some(9000);
            for mut batch in [delta, count, short] {
                batch.payload = Some(compress(codec, &batch.encoded_records()));
                batch.attributes = codec;
                assert_eq!(outcome(&mut client, topic, 0, &batch), (87, -1), "codec {codec}");
            }
            let mut cut = compressed(codec, 3);
            let payload = cut.payload.as_mut().expect("set");
            payload.truncate(payload.len() / 2);
            assert_eq!(outcome(&mut client, topic, 0, &cut), (87, -1), "cut, codec {codec}");
        }
        assert_eq!(calls::end(&mut client, topic, 0), 0);
    }
}

fn small_batches_that_inflate_to_much_are_stored(cluster: &Cluster) {
    let topic = cluster.topic("inflates", 1);
    let mut client = cluster.at(&topic, 0);
    let mut large = Batch::of_values([vec![0_u8; 20 << 20]]);
    large.payload = Some(compress(4, &large.encoded_records()));
    large.attributes = 4;
    assert_eq!(append(&mut client, &topic, 0, &large), 0);
    let found = &calls::read_all(&mut client, &topic, 0, 0)[0];
    assert_eq!(Some(found.payload.to_vec()), large.payload);
}
