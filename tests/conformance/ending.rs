//! Cases 22-26: transactions whose partitions the leader adds, and whose end raises the epoch.

use crate::calls::{Producer, UNCOMMITTED, ends, idempotent, outcome, read_all, readable, settled};
use crate::stage::{Stage, Stop};
use crate::support::requests::Topic;
use std::path::Path;
use std::time::{Duration, Instant};

cases!(
    case_22_ending_what_is_empty: Needs::Shared,
    case_23_ending_again: Needs::Shared,
    case_25_every_transaction_begins_with_sequence_0: Needs::Shared,
    case_26_plain_data_inside_a_transaction: Needs::Shared,
);

ringlog_cases!(
    case_24_the_next_transaction_waits_for_the_markers: Needs::Alone(&[]),
);

fn case_22_ending_what_is_empty(stage: &Stage) {
    let producer = Producer::new(stage, "twenty-two").at_epoch(1);
    let id = producer.who.id;
    let end = |producer: &Producer<'_>, commit| settled(stage, || producer.end(5, commit));
    assert_eq!(end(&producer, true), (48, -1, -1));
    assert_eq!(end(&producer.in_epoch(0), false), (90, -1, -1));
    assert_eq!(end(&producer.in_epoch(0), true), (90, -1, -1));
    assert_eq!(end(&producer, false), (0, id, 2));
    producer.await_state("CompleteAbort");
    assert_eq!(end(&producer, false), (0, id, 2), "again");
    assert_eq!(end(&producer.in_epoch(2), true), (48, -1, -1));
}

fn case_23_ending_again(stage: &Stage) {
    let topic = stage.topic("twenty-three", 1);
    let producer = Producer::new(stage, "twenty-three");
    let id = producer.who.id;
    producer.sent(&topic, 0, 0, 1);
    let end = |epoch, commit| settled(stage, || producer.in_epoch(epoch).end(5, commit));
    assert_eq!(end(0, true), (0, id, 1));
    assert_eq!(end(0, true), (0, id, 1), "again");
    assert_eq!(end(0, false), (48, -1, -1));
    assert_eq!(end(1, true), (48, -1, -1));
    assert_eq!(end(1, false), (0, id, 2));
    assert_eq!(end(1, false), (0, id, 2), "again");
    assert_eq!(end(0, true), (90, -1, -1));
    assert_eq!(ends(stage, &topic, 0), [(1, 1, true)], "an empty abort leaves no marker");
}

fn case_25_every_transaction_begins_with_sequence_0(stage: &Stage) {
    let topic = stage.topic("twenty-five", 1);
    let mut producer = Producer::new(stage, "twenty-five");
    assert_eq!(producer.send(13, &topic, 0, 3, 1), (45, -1), "the very first batch");
    assert_eq!(producer.sent(&topic, 0, 0, 2), 0);
    producer.ended(5, true);
    assert_eq!(settled(stage, || producer.send(13, &topic, 0, 2, 1)), (45, -1));
    assert_eq!(read_all(stage, &topic, 0, UNCOMMITTED).len(), 2, "nothing is written");
    assert_eq!(producer.sent(&topic, 0, 0, 1), 3);
    producer.ended(5, true);
    assert_eq!(ends(stage, &topic, 0), [(2, 1, true), (4, 2, true)]);
}

fn case_26_plain_data_inside_a_transaction(stage: &Stage) {
    let topic = stage.topic("twenty-six", 2);
    let producer = Producer::new(stage, "twenty-six");
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    let plain = |sequence| idempotent(producer.who.id, 0, sequence, 1);
    assert_eq!(outcome(stage, &topic, 0, &plain(1)), (48, -1));
    assert_eq!(outcome(stage, &topic, 1, &plain(0)), (0, 0), "none is open there");
    assert_eq!(producer.sent(&topic, 0, 1, 1), 1);
}

/// One of two partitions is offline, so that its marker waits. The next transaction waits with it:
/// at once for 100 ms, and held as long as requests are held.
fn case_24_the_next_transaction_waits_for_the_markers(stage: &Stage) {
    let (whole, damaged) = (stage.topic("whole", 1), stage.topic("damaged", 1));
    let mut producer = Producer::new(stage, "twenty-four");
    assert_eq!(producer.sent(&whole, 0, 0, 1), 0);
    assert_eq!(producer.sent(&damaged, 0, 0, 1), 0);
    stage.restart_after(Stop::Clean, |topics| cut_segment(topics, &damaged));
    let (code, id, epoch) = settled(stage, || producer.end(5, true));
    assert_eq!((code, id, epoch), (0, producer.who.id, 1));
    producer.who.epoch = 1;
    let started = Instant::now();
    assert_eq!(producer.send(12, &whole, 0, 0, 1), (51, -1));
    let least = if stage.holds() { 1000 } else { 100 };
    assert!(started.elapsed() >= Duration::from_millis(least), "{:?}", started.elapsed());
    let started = Instant::now();
    assert_eq!(producer.in_epoch(1).end(5, false).0, 51);
    let held_once = started.elapsed() < Duration::from_millis(500);
    assert!(held_once, "after one expiry the id is answered at once: {:?}", started.elapsed());
    assert_eq!(producer.send(11, &whole, 0, 0, 1), (19, -1));
    assert_eq!(producer.add(3, &[(&whole, 0)]), [51]);
    assert_eq!(&*producer.describe().transaction_state, "PrepareCommit");
    let loss = format!("{}-0", damaged.name);
    stage.add_arguments(&["--accept-loss", &loss]);
    stage.restart(Stop::Clean);
    producer.await_state("CompleteCommit");
    // A start sends all markers again: which were written is not kept.
    assert_eq!(ends(stage, &whole, 0), [(1, 1, true), (2, 1, true)]);
    assert_eq!(ends(stage, &damaged, 0).len(), 1);
    assert_eq!(producer.sent(&whole, 0, 0, 1), 3);
    assert_eq!(readable(stage, &whole, 0), [0]);
}

/// Cuts the segment of a topic's only partition, below what is known to be synced.
fn cut_segment(topics: &Path, topic: &Topic) {
    let path = topics.join(format!("{}-0", topic.name)).join("00000000000000000000.log");
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.set_len(10).expect("a file can be cut");
}
