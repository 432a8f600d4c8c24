//! Cases 28-32: what readers of either isolation see.

use kafka_protocol::messages::fetch_response::PartitionData;

use crate::calls::now_ms;
use crate::calls::{
    COMMITTED, Producer, UNCOMMITTED, bounds, ends, fetch, markers, offset_at, outcome, readable,
    settled, whole_batches,
};
use crate::stage::{Stage, Stop};
use crate::support::batch::{Batch, CONTROL, LOG_APPEND_TIME, Record, TRANSACTIONAL};
use crate::support::requests::{self, Topic};

cases!(
    case_28_the_bytes_of_a_marker: Needs::Shared,
    case_29_interleaved_transactions: Needs::Shared,
    case_30_the_list_of_aborted_transactions: Needs::Shared,
    case_31_an_abort_in_a_later_segment: Needs::Alone(&[]),
    case_32_offsets_by_isolation: Needs::Shared,
);

/// Producer ids and first offsets of the aborted transactions that an answer names.
fn aborted(data: &PartitionData) -> Option<Vec<(i64, i64)>> {
    let entries = data.aborted_transactions.as_ref()?;
    Some(entries.iter().map(|entry| (entry.producer_id.0, entry.first_offset)).collect())
}

fn base_offsets(data: &PartitionData) -> Vec<i64> {
    whole_batches(data).iter().map(|batch| batch.base_offset).collect()
}

fn case_28_the_bytes_of_a_marker(stage: &Stage) {
    let appended = [("message.timestamp.type", "LogAppendTime")];
    let topics = [stage.topic("marker", 1), stage.topic_with("marker", 1, &appended)];
    for (topic, stamped) in topics.iter().zip([false, true]) {
        let mut producer = Producer::new(stage, "marker");
        for (commit, at) in [(true, 1), (false, 3)] {
            let who = producer.who;
            let before = now_ms();
            assert_eq!(producer.sent(topic, 0, 0, 1), at - 1);
            producer.ended(5, commit);
            let data = fetch(stage, topic, 0, at, UNCOMMITTED);
            let set = data.records.expect("a marker");
            assert_eq!(set.len(), 78);
            let time = i64::from_be_bytes(set[27..35].try_into().expect("eight bytes"));
            assert!((before - 1000..=now_ms() + 1000).contains(&time), "{before} {time}");
            let found = &markers(stage, topic, 0)[usize::from(!commit)];
            let kind = [0, 0, 0, u8::from(commit)];
            let mut value = vec![0, 0];
            value.extend(found.coordinator_epoch.to_be_bytes());
            let mut expected = Batch::of(vec![Record::keyed(kind, value)]).with_producer(
                who.id,
                who.epoch + 1,
                -1,
            );
            expected.base_offset = at;
            expected.partition_leader_epoch =
                i32::from_be_bytes(set[12..16].try_into().expect("four bytes"));
            expected.attributes =
                TRANSACTIONAL | CONTROL | if stamped { LOG_APPEND_TIME } else { 0 };
            expected.base_timestamp = time;
            // Where the broker stamps batches, it does so when the marker is appended.
            let last = i64::from_be_bytes(set[35..43].try_into().expect("eight bytes"));
            assert!(last == time || (stamped && last > time), "{time} {last}");
            expected.max_timestamp = Some(last);
            assert_eq!(set, expected.encode(), "{commit}");
            assert_eq!(set[8..12], [0, 0, 0, 66]);
            assert_eq!(set[61..66], [0x20, 0, 0, 0, 8]);
            assert_eq!((set[70], set[77]), (0x0c, 0));
            assert_eq!(bounds(stage, topic, 0), (at + 1, at + 1), "one offset");
        }
    }
}

fn case_29_interleaved_transactions(stage: &Stage) {
    let topic = stage.topic("interleaved", 1);
    let (mut first, mut second) = (Producer::new(stage, "a"), Producer::new(stage, "b"));
    assert_eq!(first.sent(&topic, 0, 0, 1), 0);
    assert_eq!(bounds(stage, &topic, 0), (0, 1));
    assert_eq!(second.sent(&topic, 0, 0, 1), 1);
    assert_eq!(first.sent(&topic, 0, 1, 1), 2);
    let id = first.who.id;
    let data = fetch(stage, &topic, 0, 0, COMMITTED);
    assert_eq!((base_offsets(&data), data.last_stable_offset, data.high_watermark), (vec![], 0, 3));
    first.ended(5, false);
    assert_eq!(bounds(stage, &topic, 0), (1, 4));
    let data = fetch(stage, &topic, 0, 0, COMMITTED);
    assert_eq!((base_offsets(&data), aborted(&data)), (vec![0], Some(vec![(id, 0)])));
    assert_eq!((data.last_stable_offset, data.high_watermark), (1, 4));
    let data = fetch(stage, &topic, 0, 1, COMMITTED);
    assert!(base_offsets(&data).is_empty(), "nothing at the bound, and no error");
    second.ended(5, true);
    let data = fetch(stage, &topic, 0, 0, COMMITTED);
    assert_eq!((base_offsets(&data), aborted(&data)), (vec![0, 1, 2, 3, 4], Some(vec![(id, 0)])));
    assert_eq!((data.last_stable_offset, data.high_watermark), (5, 5));
    assert_eq!(readable(stage, &topic, 0), [1]);
    let data = fetch(stage, &topic, 0, 2, COMMITTED);
    assert_eq!(aborted(&data), Some(vec![(id, 0)]), "one that began before");
    assert_eq!(ends(stage, &topic, 0), [(3, 1, false), (4, 1, true)]);
}

fn case_30_the_list_of_aborted_transactions(stage: &Stage) {
    let topic = stage.topic("thirty", 1);
    let mut producer = Producer::new(stage, "thirty");
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    producer.ended(5, true);
    let lists = |offset| {
        [UNCOMMITTED, COMMITTED]
            .map(|isolation| aborted(&fetch(stage, &topic, 0, offset, isolation)))
    };
    assert_eq!(lists(0), [None, Some(vec![])]);
    let id = producer.who.id;
    assert_eq!(producer.sent(&topic, 0, 0, 1), 2);
    producer.ended(5, false);
    assert_eq!(lists(0), [None, Some(vec![(id, 2)])]);
    assert_eq!(base_offsets(&fetch(stage, &topic, 0, 0, UNCOMMITTED)), [0, 1, 2, 3]);
}

/// A fetch that returns one small batch.
fn fetch_little(stage: &Stage, topic: &Topic, offset: i64) -> PartitionData {
    let mut request = requests::fetch(17, topic, 0, offset).with_isolation_level(COMMITTED);
    request.topics[0].partitions[0].partition_max_bytes = 1;
    let response = stage.call(stage.leader(&topic.name, 0), 17, &request);
    response.responses[0].partitions[0].clone()
}

fn case_31_an_abort_in_a_later_segment(stage: &Stage) {
    let topic = stage.topic_with("segments", 1, &[("segment.bytes", "1048576")]);
    let producer = Producer::new(stage, "segments");
    let id = producer.who.id;
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    for number in 1..=30 {
        let batch = Batch::of_values([vec![b'x'; 100_000]]);
        assert_eq!(outcome(stage, &topic, 0, &batch), (0, number));
    }
    producer.clone().ended(5, false);
    assert_eq!(ends(stage, &topic, 0), [(31, 1, false)]);
    let check = || {
        for offset in [0, 1, 15, 30] {
            let data = fetch_little(stage, &topic, offset);
            // One batch from the middle holds nothing of it, but it may be named.
            let list = aborted(&data).expect("a list");
            assert!(list.is_empty() || list == [(id, 0)], "{list:?}");
            assert!(offset > 0 || !list.is_empty(), "at {offset}");
        }
        assert_eq!(readable(stage, &topic, 0), (1..=30).collect::<Vec<i64>>());
        assert_eq!(bounds(stage, &topic, 0), (32, 32));
    };
    check();
    stage.restart_after(Stop::Kill, |topics| {
        let directory = topics.join(format!("{}-0", topic.name));
        let Ok(entries) = std::fs::read_dir(&directory) else { return };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.extension().is_some_and(|extension| extension == "txnindex") {
                std::fs::remove_file(path).expect("an index can be removed");
            }
        }
    });
    check();
}

fn case_32_offsets_by_isolation(stage: &Stage) {
    let topic = stage.topic("thirty-two", 1);
    let plain = Batch { base_timestamp: 1_700_000_000_000, ..Batch::of_values(["a"]) };
    assert_eq!(outcome(stage, &topic, 0, &plain), (0, 0));
    let mut producer = Producer::new(stage, "thirty-two");
    let later = 1_700_000_001_000;
    let batch = Batch { base_timestamp: later, ..producer.batch(0, 1) };
    let request = producer.produce_request(13, &topic, 0, batch.encode());
    let answer = || {
        let response = stage.call(stage.leader(&topic.name, 0), 13, &request);
        response.responses[0].partition_responses[0].error_code
    };
    assert_eq!(settled(stage, answer), 0);
    let at = |timestamp| {
        [UNCOMMITTED, COMMITTED].map(|isolation| offset_at(stage, &topic, 0, timestamp, isolation))
    };
    assert_eq!(at(-1), [(2, -1), (1, -1)]);
    assert_eq!(at(-2), [(0, -1), (0, -1)]);
    assert_eq!(at(later), [(1, later), (-1, -1)]);
    assert_eq!(at(later - 1000), [(0, later - 1000); 2]);
    assert_eq!(at(-3), [(1, later), (-1, -1)]);
    producer.ended(5, true);
    assert_eq!(at(-1), [(3, -1); 2]);
    assert_eq!(at(later), [(1, later); 2]);
}
