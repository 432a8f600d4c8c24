//! Reading `__transaction_state`.

use super::*;
use crate::coordinator::record::RecordFault;
use crate::ids::ProducerId;

#[test]
fn the_last_record_counts_and_a_tombstone_removes() {
    let mut world = World::new(RULES);
    let value = |state, epoch| Some(value_bytes(&at(state, epoch), 1));
    world.log = vec![
        (key_bytes("a"), value(State::Empty, 1)),
        (key_bytes("b"), value(State::Ongoing, 1)),
        (key_bytes("a"), value(State::Ongoing, 2)),
        (key_bytes("b"), None),
        (key_bytes("c"), None),
        (key_bytes("b"), value(State::CompleteAbort, 4)),
        (key_bytes("d"), value(State::Empty, 0)),
        (key_bytes("d"), None),
    ];
    assert_eq!(world.restart(), []);
    assert_eq!(world.durable_of("a"), Some(&at(State::Ongoing, 2)));
    assert_eq!(world.durable_of("b"), Some(&at(State::CompleteAbort, 4)));
    assert_eq!(world.durable_of("c"), None);
    assert_eq!(world.durable_of("d"), None);
    assert_eq!(world.coordinator.counts(), [0, 1, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn what_was_ending_gets_all_its_markers_again() {
    let states = [
        (State::PrepareCommit, State::CompleteCommit, true),
        (State::PrepareAbort, State::CompleteAbort, false),
    ];
    for (prepare, complete, commit) in states {
        let mut world = World::new(RULES);
        world.log.push((key_bytes(ID), Some(value_bytes(&at(prepare, 4), 1))));
        let completions = world.restart();
        assert_eq!(completions.len(), 1);
        let completion = &completions[0];
        assert_eq!((completion.producer, completion.commit), (who(P, 4), commit));
        assert_eq!((completion.transaction_version, completion.coordinator_epoch), (2, 5));
        assert_eq!(completion.partitions, partitions());
        assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
        // Stopped again after some markers: all of them once more.
        world.coordinator.marked(completion.ticket, &partitions()[..2], START_MS);
        let completions = world.restart();
        assert_eq!(completions[0].partitions, partitions());
        world.complete(&completions[0]);
        assert_eq!((world.durable().state, world.identity()), (complete, (P, 4)));
        assert_eq!(world.restart(), []);
    }
}

#[test]
fn what_was_open_keeps_its_clock() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    world.now_ms += 59_001;
    world.restart();
    assert_eq!(world.time_out(), 1);
    assert_eq!(world.identity(), (P, 4));
}

#[test]
fn a_load_forgets_what_was_there_before() {
    let mut world = World::with(RULES, &at(State::PrepareAbort, 3));
    assert_eq!(world.coordinator.open_tickets(), (0, 1));
    world.coordinator.begin_load(PARTITION);
    assert_eq!(world.coordinator.open_tickets(), (0, 0));
    let loading = ErrorCode::CoordinatorLoadInProgress;
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Refuse(loading));
    assert_eq!(world.coordinator.finish_load(PARTITION, 6, START_MS), []);
    assert_eq!(world.coordinator.counts(), [0; 8]);
    assert_eq!(world.init(None), Ok(who(FRESH, 0)));
    world.coordinator.unload(PARTITION);
    let gone = ErrorCode::NotCoordinator;
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Refuse(gone));
    assert_eq!(world.coordinator.counts(), [0; 8]);
    assert_eq!(world.coordinator.expired(i64::MAX), []);
}

#[test]
fn records_that_mean_nothing_are_told_and_change_nothing() {
    let mut coordinator = Coordinator::new(RULES);
    coordinator.begin_load(PARTITION);
    let value = value_bytes(&at(State::Empty, 1), 1);
    let mut load = |key: &[u8], value: &[u8]| coordinator.load_record(PARTITION, key, Some(value));
    let unknown = load(&[0, 1, 0, 1, b'a'], &value);
    assert_eq!(unknown, Err(RecordFault::UnknownKeyVersion(1)));
    assert!(unknown.is_err_and(RecordFault::is_skipped));
    let unknown = load(&key_bytes("a"), &[0, 2, 0]);
    assert_eq!(unknown, Err(RecordFault::UnknownValueVersion(2)));
    assert!(unknown.is_err_and(RecordFault::is_skipped));
    let cut = load(&key_bytes("a"), &value[..9]);
    assert!(cut.is_err_and(|fault| !fault.is_skipped()));
    coordinator.finish_load(PARTITION, 5, START_MS);
    assert_eq!(coordinator.counts(), [0; 8]);
}

#[test]
fn partitions_of_the_topic_are_apart() {
    let mut coordinator = Coordinator::new(RULES);
    for index in 0..3 {
        coordinator.begin_load(PartitionIndex(index));
        for epoch in 0..=index {
            let producer_id = ProducerId(100 + i64::from(epoch));
            let metadata = Metadata { producer: who(producer_id.0, 1), ..at(State::Empty, 1) };
            let key = key_bytes(&format!("id-{epoch}"));
            let value = value_bytes(&metadata, 1);
            let loaded = coordinator.load_record(PartitionIndex(index), &key, Some(&value));
            assert_eq!(loaded, Ok(()));
        }
        coordinator.finish_load(PartitionIndex(index), 5, START_MS);
    }
    assert_eq!(coordinator.counts()[0], 6);
    coordinator.unload(PartitionIndex(1));
    assert_eq!(coordinator.counts()[0], 4);
    let known = |index, id| coordinator.describe(PartitionIndex(index), id).map(|_| ());
    assert_eq!(known(0, "id-0"), Ok(()));
    assert_eq!(known(0, "id-1"), Err(ErrorCode::TransactionalIdNotFound));
    assert_eq!(known(1, "id-1"), Err(ErrorCode::NotCoordinator));
    assert_eq!(known(2, "id-2"), Ok(()));
}

#[test]
fn a_hundred_thousand_ids_are_read() {
    let mut world = World::new(RULES);
    let value = value_bytes(&at(State::CompleteCommit, 3), 1);
    for number in 0..100_000 {
        world.log.push((key_bytes(&format!("sink-{number}")), Some(value.clone())));
    }
    assert_eq!(world.restart(), []);
    assert_eq!(world.coordinator.counts()[State::CompleteCommit as usize], 100_000);
    // What is not due is not looked at, and what is pending costs nothing idle.
    assert_eq!(world.time_out(), 0);
    assert_eq!(world.coordinator.expired(world.now_ms), []);
    assert_eq!(world.coordinator.open_tickets(), (0, 0));
}

#[test]
fn an_idle_id_is_small() {
    // Slots of a table just grown are less than half full, so are the leaves of a tree of
    // deadlines at worst; the text of the id, here of 40 bytes, is shared by both.
    let slot = size_of::<(Arc<str>, Entry)>() + 1;
    let deadline = size_of::<(i64, PartitionIndex, Arc<str>)>();
    let text = 16 + 40 + 16;
    let total = slot * 16 / 7 + deadline * 2 + text;
    assert!(total <= 512, "an idle id takes {total} bytes");
}
