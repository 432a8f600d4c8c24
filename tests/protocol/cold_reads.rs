//! What is read from segments for a fetch: ahead of one that goes on, hardly more than is returned
//! for one that comes from nowhere. A broker of its own, started anew so that nothing is in memory.

use crate::calls::{append, only_fetched};
use crate::cluster::{Cluster, PER_CORE_1};
use crate::metrics::{Scrape, start};
use crate::support::batch::{Batch, Record, read_batches};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

const BATCHES: i64 = 160;
const RECORDS: i64 = 16;
const READ: &str = "ringlog_segment_read_bytes_total{shard=\"0\"}";
const READ_AHEAD: &str = "ringlog_segment_read_ahead_bytes_total{shard=\"0\"}";

/// A topic of 10 MiB in batches of 64 KiB, none of it in memory.
fn cold() -> (Cluster, Topic) {
    let mut cluster = start(PER_CORE_1, &["--set", "log.segment.bytes=4000000"]);
    let topic = cluster.topic("cold", 1);
    let records =
        |number: i64| (0..RECORDS).map(move |n| vec![(number * RECORDS + n) as u8; 4_096]);
    let mut client = cluster.at(&topic, 0);
    for number in 0..BATCHES {
        let batch = Batch::of(records(number).map(Record::value).collect());
        assert_eq!(append(&mut client, &topic, 0, &batch), number * RECORDS);
    }
    assert_eq!(cluster.broker.terminate().code, Some(0));
    cluster.broker.restart();
    (cluster, topic)
}

/// Fetches at most so many bytes; how many came, and the offset after them.
fn fetch(client: &mut Client, topic: &Topic, offset: i64, bytes: i32) -> (usize, i64) {
    let mut request = requests::fetch(11, topic, 0, offset);
    request.max_bytes = bytes;
    request.topics[0].partitions[0].partition_max_bytes = bytes;
    let data = only_fetched(client.call(11, &request), 0);
    assert_eq!(data.error_code, 0);
    let records = data.records.unwrap_or_default();
    let length = records.len();
    let batches = read_batches(records);
    for batch in &batches {
        assert!(batch.crc_is_valid);
    }
    let next = batches.last().map(|last| last.base_offset + i64::from(last.last_offset_delta) + 1);
    (length, next.unwrap_or(offset))
}

#[test]
fn a_reader_that_goes_on_is_read_ahead_of() {
    let (cluster, topic) = cold();
    let mut client = cluster.at(&topic, 0);
    let (mut offset, mut returned) = (0, 0);
    while offset < BATCHES * RECORDS {
        let (bytes, next) = fetch(&mut client, &topic, offset, 300_000);
        assert!(bytes > 0, "at {offset}");
        (offset, returned) = (next, returned + bytes);
    }
    let scrape = Scrape::of(&cluster);
    let (read, ahead) = (scrape.value(READ), scrape.value(READ_AHEAD));
    assert!(ahead >= 0.7 * returned as f64, "{ahead} of {returned} bytes were read ahead");
    assert!(read <= 1.1 * returned as f64, "{read} bytes were read to return {returned}");
}

#[test]
fn a_read_from_nowhere_reads_hardly_more_than_it_returns() {
    let (cluster, topic) = cold();
    let mut client = cluster.at(&topic, 0);
    let mut before = 0.0;
    for bytes in [65_536, 150_000, 1_048_576] {
        let mut returned = 0;
        // Every place once, in an order in which none follows another.
        for step in 0..40 {
            let offset = (step * 67 % BATCHES) * RECORDS + 1 + step % (RECORDS - 1);
            returned += fetch(&mut client, &topic, offset, bytes).0;
        }
        let scrape = Scrape::of(&cluster);
        assert!(scrape.value(READ_AHEAD) == 0.0, "nobody has gone on");
        let read = scrape.value(READ) - before;
        before += read;
        assert!(read <= 1.3 * returned as f64, "{read} bytes were read to return {returned}");
    }
}
