//! Case 34: crashes between the decision and the markers.

use crate::calls::now_ms;
use crate::calls::{Producer, ends, readable, settled, write_marker};
use crate::identities::put_state;
use crate::stage::{Stage, Stop};
use crate::support::requests::Topic;
use crate::support::transactions::Marker;

cases!(
    case_34_a_crash_before_all_markers_are_written: Needs::Alone(&[]),
);

const PREPARE_COMMIT: i8 = 2;
const PREPARE_ABORT: i8 = 3;

/// Three producers: one whose Prepare is all there is, one that has a marker in one partition
/// already, and one whose EndTxn was answered when the broker was killed.
fn case_34_a_crash_before_all_markers_are_written(stage: &Stage) {
    let topics = ["none", "half", "answered"].map(|stem| [0, 1].map(|_| stage.topic(stem, 1)));
    let producers = ["none", "half", "answered"].map(|stem| Producer::new(stage, stem));
    for (producer, topics) in producers.iter().zip(&topics) {
        for topic in topics {
            producer.added(topic, 0);
            assert_eq!(producer.send(9, topic, 0, 0, 1), (0, 0));
        }
    }
    let partitions = |topics: &'_ [Topic; 2]| [(topics[0].clone(), 0), (topics[1].clone(), 0)];
    let prepare = |place: usize, status| {
        let partitions = partitions(&topics[place]);
        let partitions = partitions.each_ref().map(|(topic, partition)| (topic, *partition));
        put_state(&producers[place], status, &partitions, now_ms());
    };
    let marker = Marker {
        producer: producers[1].who,
        commit: false,
        coordinator_epoch: 0,
        topic: &topics[1][0].name,
        partition: 0,
    };
    assert_eq!(write_marker(stage, marker, None), 0);
    prepare(0, PREPARE_COMMIT);
    prepare(1, PREPARE_ABORT);
    assert_eq!(settled(stage, || producers[2].end(5, true)).0, 0);
    stage.restart(Stop::Kill);
    producers[0].await_state("CompleteCommit");
    producers[1].await_state("CompleteAbort");
    producers[2].await_state("CompleteCommit");
    assert_eq!(settled(stage, || producers[0].end(4, true)).0, 0);
    assert_eq!(settled(stage, || producers[1].end(4, false)).0, 0);
    assert_eq!(settled(stage, || producers[1].end(4, true)).0, 48);
    let id = producers[2].who.id;
    assert_eq!(settled(stage, || producers[2].end(5, true)), (0, id, 1));
    let [none, half, answered] = &topics;
    check(stage, &half[0], &[&[(1, 0, false), (2, 0, false)]], &[]);
    check(stage, &half[1], &[&[(1, 0, false)]], &[]);
    for (none, answered) in none.iter().zip(answered) {
        check(stage, none, &[&[(1, 0, true)]], &[0]);
        // It may have been written before the crash as well.
        check(stage, answered, &[&[(1, 1, true)], &[(1, 1, true), (2, 1, true)]], &[0]);
    }
}

/// Holds a partition to its markers, and to what can be read. A Kafka that has just started knows
/// no leaders for a moment, takes the partitions of what it completes then for deleted, and their
/// markers are missing for good.
fn check(stage: &Stage, topic: &Topic, expected: &[&[(i64, i16, bool)]], offsets: &[i64]) {
    let found = ends(stage, topic, 0);
    if stage.is_kafka() && expected.iter().any(|all| all.starts_with(&found) && **all != found) {
        return;
    }
    assert!(expected.contains(&&found[..]), "{}: {found:?}, not {expected:?}", topic.name);
    assert_eq!(readable(stage, topic, 0), offsets, "{}", topic.name);
}
