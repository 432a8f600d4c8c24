//! Partitions of a transaction: a test for each row of the tables.

use super::*;

fn check(metadata: &Metadata, producer: Identity, expected: Result<(), ErrorCode>) {
    let mut world = World::with(RULES, metadata);
    let before = world.log.len();
    let verdict = world.ask_add(producer, &partitions());
    match expected {
        Ok(()) => assert_eq!(world.settle(verdict), Ok(())),
        Err(ErrorCode::ConcurrentTransactions) => assert_eq!(verdict, Verdict::Hold),
        Err(code) => assert_eq!(verdict, Verdict::Refuse(code)),
    }
    assert_eq!(world.log.len() > before, expected.is_ok() && metadata.state != State::Ongoing);
}

#[test]
fn the_empty_id_is_an_invalid_request() {
    let world = &mut World::new(RULES);
    let request = AddPartitions { transactional_id: "".into(), ..add_request(who(P, 0), &[]) };
    let verdict = world.coordinator.add_partitions(PARTITION, &request, 0);
    assert_eq!(verdict, Verdict::Refuse(ErrorCode::InvalidRequest));
    let verified = world.coordinator.verify_partitions(PARTITION, &request);
    assert_eq!(verified, Err(ErrorCode::InvalidRequest));
}

#[test]
fn other_partitions_and_loading_ones_are_told() {
    let mut world = World::new(RULES);
    let request = add_request(who(P, 0), &partitions());
    let mut check = |code| {
        let verdict = world.coordinator.add_partitions(PartitionIndex(9), &request, 0);
        assert_eq!(verdict, Verdict::Refuse(code));
        let verified = world.coordinator.verify_partitions(PartitionIndex(9), &request);
        assert_eq!(verified, Err(code));
        world.coordinator.begin_load(PartitionIndex(9));
    };
    check(ErrorCode::NotCoordinator);
    check(ErrorCode::CoordinatorLoadInProgress);
}

#[test]
fn an_unknown_id_maps_to_no_producer() {
    let mut world = World::new(RULES);
    assert_eq!(world.add(who(P, 0)), refused(ErrorCode::InvalidProducerIdMapping));
    let request = add_request(who(P, 0), &partitions());
    let verified = world.coordinator.verify_partitions(PARTITION, &request);
    assert_eq!(verified, Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn a_pending_transition_holds_before_the_producer_is_looked_at() {
    let mut world = World::with(RULES, &at(State::Ongoing, 32_766));
    let verdict = world.ask_end(&end_request(who(P, 32_766), true, 5));
    let Verdict::Write { write, then } = verdict else { panic!() };
    assert_eq!(then, who(FRESH, 0));
    // The client has the new producer id as soon as the Prepare is durable.
    let completion = world.append(write).markers.expect("a commit has markers");
    assert_eq!(world.ask_add(then, &partitions()), Verdict::Hold);
    world.complete(&completion);
    assert_eq!(world.add(then), Ok(()));
}

#[test]
fn the_first_record_of_an_id_holds() {
    let mut world = World::new(RULES);
    let Verdict::Write { .. } = world.ask_init(&init_request(None)) else { panic!() };
    assert_eq!(world.ask_add(who(FRESH, 0), &partitions()), Verdict::Hold);
    let request = add_request(who(FRESH, 0), &partitions());
    let verified = world.coordinator.verify_partitions(PARTITION, &request);
    assert_eq!(verified, Err(ErrorCode::InvalidProducerIdMapping));
}

#[test]
fn another_producer_id_maps_to_no_producer() {
    for state in [State::Empty, State::Ongoing, State::CompleteCommit] {
        check(&at(state, 3), who(99, 3), Err(ErrorCode::InvalidProducerIdMapping));
    }
}

#[test]
fn another_epoch_is_fenced_be_it_lower_or_higher() {
    for epoch in [2, 4] {
        check(&at(State::Empty, 3), who(P, epoch), Err(ErrorCode::ProducerFenced));
        check(&at(State::Ongoing, 3), who(P, epoch), Err(ErrorCode::ProducerFenced));
    }
}

#[test]
fn a_transaction_that_is_ending_holds() {
    check(&at(State::PrepareCommit, 3), who(P, 3), Err(ErrorCode::ConcurrentTransactions));
    check(&at(State::PrepareAbort, 3), who(P, 3), Err(ErrorCode::ConcurrentTransactions));
}

#[test]
fn partitions_that_are_there_need_no_record() {
    check(&at(State::Ongoing, 3), who(P, 3), Ok(()));
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    assert_eq!(world.ask_add(who(P, 3), &[]), Verdict::Answer(()));
}

#[test]
fn the_first_partitions_begin_the_transaction() {
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        assert_eq!(world.add(who(P, 3)), Ok(()));
        let durable = world.durable();
        assert_eq!((durable.state, durable.start_ms), (State::Ongoing, START_MS));
        assert_eq!((&durable.partitions, durable.producer), (&partitions(), who(P, 3)));
        assert_eq!((durable.last_update_ms, durable.timeout_ms), (START_MS, 60_000));
    }
}

#[test]
fn more_partitions_join_and_the_clock_goes_on() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let more = [("aside".into(), 9), ("orders".into(), 1), ("aside".into(), 9)];
    let verdict = world.ask_add(who(P, 3), &more);
    let Verdict::Write { write, .. } = verdict else { panic!() };
    assert!(!write.ends);
    world.append(write);
    let durable = world.durable();
    let mut expected = vec![("aside".into(), 9)];
    expected.extend(partitions());
    assert_eq!(durable.partitions, expected);
    assert_eq!((durable.start_ms, durable.last_update_ms), (START_MS - 1_000, START_MS));
}

#[test]
fn the_protocol_of_the_last_addition_is_kept() {
    let mut world = World::with(RULES, &at(State::Empty, 3));
    for (strict, expected) in [(false, 0), (true, 2)] {
        let partitions = [("orders".into(), expected.into())];
        let request = AddPartitions { strict, ..add_request(who(P, 3), &partitions) };
        let verdict = world.coordinator.add_partitions(PARTITION, &request, START_MS);
        assert_eq!(world.settle(verdict), Ok(()));
        assert_eq!(world.durable().client_version, expected);
    }
}

#[test]
fn verification_checks_the_producer_and_the_state() {
    let check = |state, producer, code| {
        let world = World::with(RULES, &at(state, 3));
        let request = add_request(producer, &partitions());
        assert_eq!(world.coordinator.verify_partitions(PARTITION, &request), Err(code));
    };
    check(State::Ongoing, who(99, 3), ErrorCode::InvalidProducerIdMapping);
    check(State::Ongoing, who(P, 2), ErrorCode::ProducerFenced);
    check(State::Ongoing, who(P, 4), ErrorCode::ProducerFenced);
    check(State::PrepareCommit, who(P, 3), ErrorCode::ConcurrentTransactions);
    check(State::PrepareAbort, who(P, 3), ErrorCode::ConcurrentTransactions);
}

#[test]
fn verification_tells_of_each_partition() {
    let verify = |world: &World| {
        let asked = [("orders".into(), 1), ("orders".into(), 2), ("stock".into(), 4)];
        let request = add_request(who(P, 3), &asked);
        world.coordinator.verify_partitions(PARTITION, &request)
    };
    use ErrorCode::{None, TransactionAbortable};
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    assert_eq!(verify(&world), Ok(vec![None, TransactionAbortable, None]));
    // A pending transition is not looked at.
    let Verdict::Write { .. } = world.ask_add(who(P, 3), &[("orders".into(), 2)]) else { panic!() };
    assert_eq!(verify(&world), Ok(vec![None, TransactionAbortable, None]));
    // Nor need a transaction be open.
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort] {
        let world = World::with(RULES, &at(state, 3));
        assert_eq!(verify(&world), Ok(vec![TransactionAbortable; 3]));
    }
}
