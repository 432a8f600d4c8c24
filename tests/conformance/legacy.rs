//! Cases 17-21 and 47: transactions of clients that add their partitions themselves.

use crate::calls::{Producer, ends, readable, settled};
use crate::stage::{Stage, Stop};
use crate::support::requests::{self, Topic};

cases!(
    case_17_transactional_data_without_an_id: Needs::Shared,
    case_18_a_partition_that_was_not_added: Needs::Shared,
    case_19_one_unknown_partition_refuses_all: Needs::Shared,
    case_20_adding_with_a_wrong_identity: Needs::Shared,
    case_21_ending_in_every_state: Needs::Shared,
    case_47_ending_from_another_process: Needs::Alone(&[]),
);

fn case_17_transactional_data_without_an_id(stage: &Stage) {
    let (topic, other) = (stage.topic("seventeen", 1), stage.topic("seventeen", 1));
    let producer = Producer::new(stage, "seventeen");
    for version in [9, 11, 12] {
        let set = producer.batch(0, 1).encode();
        let mut request = requests::produce(version, &topic, 0, -1, set.clone());
        if stage.leader(&topic.name, 0) == stage.leader(&other.name, 0) {
            let more = requests::produce(version, &other, 0, -1, set);
            request.topic_data.extend(more.topic_data);
        }
        let response = stage.call(stage.leader(&topic.name, 0), version, &request);
        for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
            assert_eq!((partition.error_code, partition.base_offset), (53, -1), "v{version}");
        }
        assert_eq!(response.responses.len(), request.topic_data.len());
    }
}

fn case_18_a_partition_that_was_not_added(stage: &Stage) {
    let topic = stage.topic("eighteen", 2);
    let mut producer = Producer::new(stage, "eighteen");
    assert_eq!(producer.send(9, &topic, 0, 0, 1), (48, -1));
    assert_eq!(producer.send(11, &topic, 0, 0, 1), (120, -1));
    producer.added(&topic, 0);
    assert_eq!(producer.send(9, &topic, 0, 0, 1), (0, 0));
    assert_eq!(producer.send(11, &topic, 0, 1, 1), (0, 1));
    assert_eq!(producer.send(10, &topic, 1, 0, 1), (48, -1));
    assert_eq!(producer.send(11, &topic, 1, 0, 1), (120, -1));
    producer.ended(4, true);
    assert_eq!(readable(stage, &topic, 0), [0, 1]);
    assert_eq!((ends(stage, &topic, 0), ends(stage, &topic, 1)), (vec![(2, 0, true)], vec![]));
}

fn case_19_one_unknown_partition_refuses_all(stage: &Stage) {
    let topic = stage.topic("nineteen", 1);
    let producer = Producer::new(stage, "nineteen");
    let unknown = Topic::named("no-such-topic");
    assert_eq!(settled(stage, || producer.add(3, &[(&unknown, 0), (&topic, 0)])), [3, 55]);
    assert_eq!(settled(stage, || producer.add(3, &[(&topic, 1), (&topic, 0)])), [3, 55]);
    assert_eq!(settled(stage, || producer.end(4, true)).0, 48);
}

fn case_20_adding_with_a_wrong_identity(stage: &Stage) {
    let topic = stage.topic("twenty", 1);
    let producer = Producer::new(stage, "twenty").at_epoch(1);
    let add = |producer: &Producer<'_>, version| {
        settled(stage, || producer.add(version, &[(&topic, 0)]))[0]
    };
    for version in 0..=3 {
        let fenced = if version < 2 { 47 } else { 90 };
        assert_eq!(add(&producer.in_epoch(0), version), fenced, "v{version}, a stale epoch");
        assert_eq!(add(&producer.in_epoch(2), version), fenced, "v{version}, one to come");
        assert_eq!(add(&producer.with_id(producer.who.id + 1), version), 49, "v{version}");
        let unknown = Producer { id: crate::stage::unique("unknown"), ..producer.clone() };
        assert_eq!(add(&unknown, version), 49, "v{version}");
        let fenced_end = settled(stage, || producer.in_epoch(0).end(version, true)).0;
        assert_eq!(fenced_end, fenced, "EndTxn v{version}");
        assert_eq!(settled(stage, || producer.in_epoch(0).add_offsets(version, "g")), fenced);
    }
    assert_eq!(add(&producer, 3), 0);
}

fn case_21_ending_in_every_state(stage: &Stage) {
    let topic = stage.topic("twenty-one", 1);
    let producer = Producer::new(stage, "twenty-one");
    let end = |commit| settled(stage, || producer.end(4, commit));
    assert_eq!(end(true), (48, -1, -1), "Empty");
    assert_eq!(end(false), (48, -1, -1), "Empty");
    producer.added(&topic, 0);
    assert_eq!(end(true), (0, -1, -1));
    producer.await_state("CompleteCommit");
    assert_eq!(end(true), (0, -1, -1), "again");
    assert_eq!(end(false), (48, -1, -1));
    producer.added(&topic, 0);
    assert_eq!(end(false), (0, -1, -1));
    producer.await_state("CompleteAbort");
    assert_eq!(end(false), (0, -1, -1), "again");
    assert_eq!(end(true), (48, -1, -1));
    assert_eq!(ends(stage, &topic, 0), [(0, 0, true), (1, 0, false)], "one marker each");
}

fn case_47_ending_from_another_process(stage: &Stage) {
    let topic = stage.topic("forty-seven", 2);
    let producer = Producer::new(stage, "forty-seven");
    producer.sent(&topic, 0, 0, 1);
    producer.sent(&topic, 1, 0, 1);
    // A connection of its own for the other process.
    let node = stage.coordinator(crate::support::transactions::TRANSACTION, &producer.id);
    let request = crate::support::transactions::end_txn(&producer.id, producer.who, true);
    assert_eq!(stage.connect(node).call(4, &request).error_code, 0);
    producer.await_state("CompleteCommit");
    assert_eq!(stage.connect(node).call(4, &request).error_code, 0, "again");
    stage.restart(Stop::Clean);
    assert_eq!(settled(stage, || producer.end(4, true)).0, 0, "after a restart");
    for partition in 0..2 {
        assert_eq!(ends(stage, &topic, partition), [(1, 0, true)]);
        assert_eq!(readable(stage, &topic, partition), [0]);
    }
}
