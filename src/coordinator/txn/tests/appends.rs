//! What becomes of a transition whose record, or whose markers, fail.

use super::*;

fn fail(world: &mut World, write: &Write, code: ErrorCode) -> Written {
    world.coordinator.written(write.ticket, Err(code), world.now_ms)
}

#[test]
fn the_logs_codes_are_mapped() {
    use ErrorCode as E;
    for (log, caller) in [
        (E::UnknownTopicOrPartition, E::CoordinatorNotAvailable),
        (E::NotEnoughReplicas, E::CoordinatorNotAvailable),
        (E::NotEnoughReplicasAfterAppend, E::CoordinatorNotAvailable),
        (E::RequestTimedOut, E::CoordinatorNotAvailable),
        (E::NotLeaderOrFollower, E::NotCoordinator),
        (E::KafkaStorageError, E::NotCoordinator),
        (E::MessageTooLarge, E::UnknownServerError),
        (E::RecordListTooLarge, E::UnknownServerError),
        (E::CorruptMessage, E::CorruptMessage),
    ] {
        let mut world = World::with(RULES, &at(State::Empty, 3));
        let Verdict::Write { write, .. } = world.ask_init(&init_request(None)) else { panic!() };
        let written = fail(&mut world, &write, log);
        let expected =
            Written { released: Some(ID.into()), error: Some(caller), ..Written::default() };
        assert_eq!(written, expected);
        assert_eq!(world.durable(), &at(State::Empty, 3));
        assert_eq!(world.init(None), Ok(who(P, 4)));
    }
}

#[test]
fn an_id_whose_first_record_fails_was_never_there() {
    let mut world = World::new(RULES);
    let Verdict::Write { write, .. } = world.ask_init(&init_request(None)) else { panic!() };
    fail(&mut world, &write, ErrorCode::KafkaStorageError);
    assert!(world.entry(ID).is_none());
    assert_eq!(world.coordinator.counts(), [0; 8]);
    assert_eq!(world.init(None), Ok(who(FRESH + 1, 0)));
}

#[test]
fn an_addition_or_an_end_that_fails_leaves_the_transaction_open() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let Verdict::Write { write, .. } = world.ask_add(who(P, 3), &[("new".into(), 0)]) else {
        panic!()
    };
    fail(&mut world, &write, ErrorCode::KafkaStorageError);
    assert_eq!(world.durable(), &at(State::Ongoing, 3));
    let verdict = world.ask_end(&end_request(who(P, 3), true, 5));
    let Verdict::Write { write, .. } = verdict else { panic!() };
    let written = fail(&mut world, &write, ErrorCode::KafkaStorageError);
    assert_eq!(written.markers, None);
    assert_eq!(world.durable(), &at(State::Ongoing, 3));
    assert_eq!(world.end(who(P, 3), true, 5), Ok(who(P, 4)));
}

#[test]
fn a_failed_fence_is_simply_tried_again_since_kip_890() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    for _ in 0..3 {
        let Verdict::AbortFirst(write) = world.ask_init(&init_request(None)) else { panic!() };
        fail(&mut world, &write, ErrorCode::NotEnoughReplicas);
        assert_eq!(world.durable(), &at(State::Ongoing, 3));
    }
    assert_eq!(world.init(None), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.identity(), (P, 4));
}

#[test]
fn a_failed_fence_raises_once_before_kip_890() {
    let mut world = World::with(LEGACY, &at(State::Ongoing, 3));
    for _ in 0..3 {
        let Verdict::AbortFirst(write) = world.ask_init(&init_request(None)) else { panic!() };
        fail(&mut world, &write, ErrorCode::NotEnoughReplicas);
        assert_eq!((world.durable().state, world.identity()), (State::Ongoing, (P, 4)));
        // The producer is fenced all the same.
        assert_eq!(world.end(who(P, 3), true, 4), refused(ErrorCode::ProducerFenced));
    }
    assert_eq!(world.init(None), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!((world.durable().state, world.identity()), (State::CompleteAbort, (P, 4)));
    assert_eq!(world.init(None), Ok(who(P, 5)));
    // And the next fence raises again.
    assert_eq!(world.add(who(P, 5)), Ok(()));
    assert_eq!(world.init(None), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.identity(), (P, 6));
}

fn ending(world: &mut World) -> Completion {
    let verdict = world.ask_end(&end_request(who(P, 3), true, 5));
    let Verdict::Write { write, .. } = verdict else { panic!() };
    world.append(write).markers.expect("markers")
}

#[test]
fn a_complete_is_tried_until_it_is_written() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let completion = ending(&mut world);
    let marked = world.coordinator.marked(completion.ticket, &partitions(), START_MS + 7);
    let mut write = marked.expect("a Complete");
    for code in [ErrorCode::NotEnoughReplicas, ErrorCode::RequestTimedOut] {
        let written = fail(&mut world, &write, code);
        assert_eq!(written.error, Some(ErrorCode::CoordinatorNotAvailable));
        assert_eq!((written.markers, written.released), (None, None));
        let again = written.again.expect("another try");
        assert_ne!(again.ticket, write.ticket);
        assert_eq!((&again.value, again.ends), (&write.value, true));
        assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
        write = again;
    }
    assert_eq!(world.append(write).released.as_deref(), Some(ID));
    assert_eq!((world.durable().state, world.identity()), (State::CompleteCommit, (P, 4)));
    assert_eq!(world.durable().last_update_ms, START_MS + 7);
}

#[test]
fn a_complete_that_another_coordinator_will_write_is_left() {
    for code in [ErrorCode::KafkaStorageError, ErrorCode::CoordinatorLoadInProgress] {
        let mut world = World::with(RULES, &at(State::Ongoing, 3));
        let completion = ending(&mut world);
        let marked = world.coordinator.marked(completion.ticket, &partitions(), START_MS);
        let written = fail(&mut world, &marked.expect("a Complete"), code);
        assert_eq!((written.again, written.released), (None, None));
        assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
        assert_eq!(world.coordinator.open_tickets(), (0, 0));
        let completions = world.restart();
        world.complete(&completions[0]);
        assert_eq!(world.durable().state, State::CompleteCommit);
    }
}

#[test]
fn markers_come_one_by_one_in_any_order() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let completion = ending(&mut world);
    let partitions = partitions();
    let unknown = [("elsewhere".into(), 0), ("orders".into(), 7)];
    for marked in [&unknown[..], &partitions[2..], &partitions[2..], &partitions[..1]] {
        let write = world.coordinator.marked(completion.ticket, marked, START_MS);
        assert_eq!(write, None);
    }
    let owed = world.coordinator.describe(PARTITION, ID).expect("known").partitions;
    assert_eq!(owed, partitions[1..2]);
    let write = world.coordinator.marked(completion.ticket, &partitions, START_MS);
    // What comes after the last one counts for nothing.
    assert_eq!(world.coordinator.marked(completion.ticket, &partitions, START_MS), None);
    world.append(write.expect("a Complete"));
    assert_eq!(world.coordinator.marked(completion.ticket, &partitions, START_MS), None);
    assert_eq!(world.coordinator.open_tickets(), (0, 0));
}

#[test]
fn markers_of_an_earlier_transaction_count_for_nothing() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let first = ending(&mut world);
    world.complete(&first);
    assert_eq!(world.add(who(P, 4)), Ok(()));
    let verdict = world.ask_end(&end_request(who(P, 4), true, 5));
    let Verdict::Write { write, .. } = verdict else { panic!() };
    let second = world.append(write).markers.expect("markers");
    assert_eq!(world.coordinator.marked(first.ticket, &partitions(), START_MS), None);
    assert_eq!(world.durable().state, State::PrepareCommit);
    world.complete(&second);
}

#[test]
fn markers_that_are_given_up_leave_the_transaction_as_it_is() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let completion = ending(&mut world);
    world.coordinator.give_up(completion.ticket);
    assert_eq!(world.coordinator.marked(completion.ticket, &partitions(), START_MS), None);
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
    assert_eq!(world.durable().state, State::PrepareCommit);
    let completions = world.restart();
    assert_eq!(completions.len(), 1);
    world.complete(&completions[0]);
    assert_eq!(world.durable().state, State::CompleteCommit);
}

#[test]
fn an_answer_for_a_partition_that_is_gone_is_not_coordinator() {
    for reload in [false, true] {
        let mut world = World::with(RULES, &at(State::Ongoing, 3));
        let verdict = world.ask_end(&end_request(who(P, 3), true, 5));
        let Verdict::Write { write, .. } = verdict else { panic!() };
        world.coordinator.unload(PARTITION);
        if reload {
            // The same transition is pending again, by another request.
            world.coordinator.begin_load(PARTITION);
            for (key, value) in &world.log {
                let loaded = world.coordinator.load_record(PARTITION, key, value.as_deref());
                assert_eq!(loaded, Ok(()));
            }
            world.coordinator.finish_load(PARTITION, 6, START_MS);
            let verdict = world.ask_end(&end_request(who(P, 3), true, 5));
            assert!(matches!(verdict, Verdict::Write { .. }));
        }
        let written = world.coordinator.written(write.ticket, Ok(()), START_MS);
        assert_eq!(written.error, Some(ErrorCode::NotCoordinator));
        assert_eq!((written.markers, written.again), (None, None));
        assert_eq!(written.released.as_deref(), Some(ID));
        assert_eq!(
            world.durable_of(ID).map(|durable| durable.state == State::Ongoing),
            reload.then_some(true)
        );
    }
}

#[test]
fn a_ticket_is_used_once() {
    let mut world = World::with(RULES, &at(State::Empty, 3));
    let Verdict::Write { write, .. } = world.ask_init(&init_request(None)) else { panic!() };
    let ticket = write.ticket;
    world.append(write);
    let twice = std::panic::AssertUnwindSafe(|| world.coordinator.written(ticket, Ok(()), 0));
    assert!(std::panic::catch_unwind(twice).is_err());
}
