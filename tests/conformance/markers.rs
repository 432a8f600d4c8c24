//! Cases 33, 44, 51 and 52: markers from outside, for partitions that are gone, and in a race.

use kafka_protocol::messages::DeleteTopicsRequest;

use crate::calls::{
    Producer, UNCOMMITTED, Who, bounds, ends, fresh_id, producer_state, read_all, readable,
    settled, write_marker,
};
use crate::stage::Stage;
use crate::support::batch::CONTROL;
use crate::support::requests::{self, Topic};
use crate::support::transactions::{Marker, TRANSACTION, write_markers};

cases!(
    case_33_markers_from_outside: Needs::Shared,
    case_44_a_hanging_transaction:
        Needs::Alone(&[("transaction.partition.verification.enable", "false")]),
    case_51_a_topic_is_deleted: Needs::Shared,
    case_52_an_append_races_with_an_abort: Needs::Shared,
);

fn marker(topic: &Topic, partition: i32, producer: Who, commit: bool) -> Marker<'_> {
    Marker { producer, commit, coordinator_epoch: 0, topic: &topic.name, partition }
}

fn case_33_markers_from_outside(stage: &Stage) {
    let topic = stage.topic("thirty-three", 3);
    let who = Who { id: fresh_id(stage), epoch: 4 };
    let of = |coordinator_epoch| Marker { coordinator_epoch, ..marker(&topic, 0, who, true) };
    assert_eq!(write_marker(stage, of(7), None), 0, "a producer that nobody knows");
    assert_eq!(write_marker(stage, of(6), None), 52);
    assert_eq!(write_marker(stage, of(6), Some(2)), 52);
    assert_eq!(write_marker(stage, of(7), None), 0, "the same again is written again");
    let older = Marker { producer: Who { epoch: 3, ..who }, ..of(7) };
    assert_eq!(write_marker(stage, older, None), 47);
    assert_eq!(ends(stage, &topic, 0), [(0, 4, true), (1, 4, true)]);

    let producer = Producer::new(stage, "thirty-three");
    assert_eq!(producer.sent(&topic, 1, 0, 1), 0);
    assert_eq!(producer.sent(&topic, 2, 0, 1), 0);
    let strict = marker(&topic, 1, producer.who, true);
    assert_eq!(write_marker(stage, strict, Some(2)), 47, "the same epoch while it is open");
    assert_eq!(bounds(stage, &topic, 1), (0, 1));
    let raised = marker(&topic, 1, Who { epoch: 1, ..producer.who }, true);
    assert_eq!(write_marker(stage, raised, Some(2)), 0);
    assert_eq!(write_marker(stage, raised, Some(2)), 0, "a retry");
    assert_eq!(write_marker(stage, strict, Some(2)), 47, "a lower epoch");
    assert_eq!(ends(stage, &topic, 1), [(1, 1, true), (2, 1, true)]);
    let legacy = marker(&topic, 2, producer.who, false);
    assert_eq!(write_marker(stage, legacy, Some(1)), 0, "the legacy rule cannot tell");
    assert_eq!(ends(stage, &topic, 2), [(1, 0, false)]);

    let node = stage.leader(&topic.name, 0);
    let unknown = [marker(&topic, 9, who, true), Marker { topic: "no-such", ..of(7) }];
    let response = stage.call(node, 1, &write_markers(&unknown));
    let topics = response.markers.iter().flat_map(|found| &found.topics);
    let codes: Vec<i16> =
        topics.flat_map(|found| &found.partitions).map(|found| found.error_code).collect();
    assert_eq!(codes, [3, 3]);
    assert_eq!(stage.call(node, 1, &write_markers(&[])).markers, []);
}

/// An open transaction that no coordinator knows, ended as an admin would do it.
fn case_44_a_hanging_transaction(stage: &Stage) {
    let topic = stage.topic("forty-four", 1);
    let producer = Producer::new(stage, "forty-four");
    assert_eq!(producer.send(9, &topic, 0, 0, 1), (0, 0), "nothing is verified");
    let state = producer_state(stage, &topic, 0, producer.who.id).expect("an entry");
    let found = (state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset);
    assert_eq!(found, (0, -1, 0));
    assert_eq!(&*producer.describe().transaction_state, "Empty");
    assert_eq!(bounds(stage, &topic, 0), (0, 1));
    assert_eq!(write_marker(stage, marker(&topic, 0, producer.who, false), None), 0);
    assert_eq!(bounds(stage, &topic, 0), (2, 2));
    assert!(readable(stage, &topic, 0).is_empty());
    let state = producer_state(stage, &topic, 0, producer.who.id).expect("an entry");
    let found = (state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset);
    assert_eq!(found, (0, 0, -1));
}

fn case_51_a_topic_is_deleted(stage: &Stage) {
    let stays = stage.topic("stays", 1);
    for version in [4, 5] {
        let goes = stage.topic("goes", 1);
        let mut producer = Producer::new(stage, "fifty-one");
        let first = producer.sent(&stays, 0, 0, 1);
        producer.sent(&goes, 0, 0, 1);
        let request: DeleteTopicsRequest = requests::delete_topic(&goes.name);
        let response = stage.call(stage.any_node(), 5, &request);
        assert_eq!(response.responses[0].error_code, 0);
        producer.ended(version, true);
        assert_eq!(ends(stage, &stays, 0).last().map(|end| end.0), Some(first + 1));
    }
    assert_eq!(readable(stage, &stays, 0), [0, 2]);
}

/// In every round a produce and a fence are on their way at once. Whoever comes first: no batch of
/// the old epoch stands behind the marker of the new one, and nothing stays open.
fn case_52_an_append_races_with_an_abort(stage: &Stage) {
    let topic = stage.topic("fifty-two", 1);
    let mut producer = Producer::new(stage, "fifty-two");
    let mut at_leader = stage.connect(stage.leader(&topic.name, 0));
    let mut at_coordinator = stage.connect(stage.coordinator(TRANSACTION, &producer.id));
    let mut taken = Vec::new();
    for round in 0..60 {
        let version = [13, 11, 9][round % 3];
        if version < 12 {
            producer.added(&topic, 0);
        }
        let set = producer.batch(0, 1).encode();
        let produce = producer.produce_request(version, &topic, 0, set);
        let fence = requests::init_producer_id(Some(&producer.id));
        let (sent, fencing) = if round % 2 == 0 {
            let sent = at_leader.send(version, &produce);
            (sent, at_coordinator.send(5, &fence))
        } else {
            let fencing = at_coordinator.send(5, &fence);
            (at_leader.send(version, &produce), fencing)
        };
        let answer = at_leader.receive(sent).responses[0].partition_responses[0].clone();
        // 19 is 51 for an old version, and 120 a partition that is no more in the transaction.
        let codes = [0, 47, 48, 51, 19, 120];
        assert!(codes.contains(&answer.error_code), "v{version}: {}", answer.error_code);
        if answer.error_code == 0 {
            taken.push(answer.base_offset);
        }
        let fenced = at_coordinator.receive(fencing).error_code;
        assert!([0, 51].contains(&fenced), "{fenced}");
        producer.begin_again();
    }
    let mut ended = -1;
    let mut found = Vec::new();
    for batch in read_all(stage, &topic, 0, UNCOMMITTED) {
        if batch.attributes & CONTROL != 0 {
            ended = batch.producer_epoch;
        } else {
            assert!(batch.producer_epoch >= ended, "{batch:?} behind the marker of {ended}");
            found.push(batch.base_offset);
        }
    }
    assert_eq!(found, taken, "what was acknowledged, and nothing else");
    settled(stage, || producer.end(5, false));
    let (stable, end) = bounds(stage, &topic, 0);
    assert_eq!(stable, end, "nothing hangs");
}
