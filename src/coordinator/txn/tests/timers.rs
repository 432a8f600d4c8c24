//! Timeouts and expiry.

use super::*;
use crate::limits::TRANSACTION_SWEEP_WRITES_MAX;

#[test]
fn a_transaction_times_out_past_its_timeout() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let start_ms = world.durable().start_ms;
    world.now_ms = start_ms + 60_000;
    assert_eq!(world.time_out(), 0);
    world.now_ms += 1;
    assert_eq!(world.time_out(), 1);
    assert_eq!((world.durable().state, world.identity()), (State::CompleteAbort, (P, 4)));
    assert_eq!(world.time_out(), 0);
}

#[test]
fn what_is_pending_does_not_time_out() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let verdict = world.ask_add(who(P, 3), &[("new".into(), 0)]);
    let Verdict::Write { write, .. } = verdict else { panic!() };
    world.now_ms += 60_000;
    assert_eq!(world.time_out(), 0);
    world.append(write);
    assert_eq!(world.time_out(), 1);
}

#[test]
fn only_open_transactions_time_out() {
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort, State::PrepareAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        world.now_ms += 800_000;
        assert_eq!(world.time_out(), 0);
    }
}

#[test]
fn a_transaction_that_ended_in_time_does_not_time_out() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    assert_eq!(world.end(who(P, 3), true, 5), Ok(who(P, 4)));
    world.now_ms += 50_000;
    assert_eq!(world.add(who(P, 4)), Ok(()));
    world.now_ms += 50_000;
    assert_eq!(world.time_out(), 0);
    world.now_ms += 10_001;
    assert_eq!(world.time_out(), 1);
}

#[test]
fn a_timeout_at_the_last_epoch_rotates() {
    // KAFKA-20090.
    let mut world = World::with(RULES, &at(State::Ongoing, 32_766));
    world.now_ms += 60_000;
    let none = world.coordinator.timed_out(world.now_ms, &mut || None);
    assert_eq!(none, []);
    assert_eq!(world.time_out(), 1);
    assert_eq!((world.durable().state, world.identity()), (State::CompleteAbort, (FRESH, 0)));
    assert_eq!(world.end(who(P, 32_766), false, 5), Ok(who(FRESH, 0)));
    assert_eq!(world.end(who(P, 32_766), true, 5), refused(ErrorCode::ProducerFenced));
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
}

#[test]
fn a_producer_id_is_asked_for_only_where_it_is_needed() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    world.now_ms += 60_000;
    let writes = world.coordinator.timed_out(world.now_ms, &mut || panic!("not needed"));
    assert_eq!(writes.len(), 1);
    assert!(writes[0].ends);
}

#[test]
fn settled_ids_expire() {
    for state in [State::Empty, State::CompleteCommit, State::CompleteAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        world.now_ms = world.durable().last_update_ms + RULES.id_expiration_ms - 1;
        assert_eq!(world.coordinator.expired(world.now_ms), []);
        world.now_ms += 1;
        let mut writes = world.coordinator.expired(world.now_ms);
        let write = writes.pop().expect("a tombstone");
        assert_eq!((writes.len(), &write.key, &write.value), (0, &key_bytes(ID), &None));
        assert!(write.ends);
        // While it goes everything holds, and it still shows.
        assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
        assert_eq!(world.ask_add(who(P, 3), &partitions()), Verdict::Hold);
        assert_eq!(world.coordinator.expired(world.now_ms), []);
        assert_eq!(world.append(write).released.as_deref(), Some(ID));
        assert!(world.entry(ID).is_none());
        assert_eq!(world.coordinator.counts(), [0; 8]);
        assert_eq!(world.add(who(P, 3)), refused(ErrorCode::InvalidProducerIdMapping));
        world.restart();
        assert!(world.entry(ID).is_none());
        assert_eq!(world.init(Some(who(P, 3))), Ok(who(FRESH, 0)));
    }
}

#[test]
fn open_transactions_and_ending_ones_do_not_expire() {
    for state in [State::Ongoing, State::PrepareCommit, State::PrepareAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        assert_eq!(world.coordinator.expired(i64::MAX), []);
    }
}

#[test]
fn an_id_whose_tombstone_fails_lives_on() {
    let mut world = World::with(RULES, &at(State::CompleteCommit, 3));
    world.now_ms += RULES.id_expiration_ms;
    let write = world.coordinator.expired(world.now_ms).pop().expect("a tombstone");
    let code = ErrorCode::KafkaStorageError;
    let written = world.coordinator.written(write.ticket, Err(code), world.now_ms);
    assert_eq!(written.released.as_deref(), Some(ID));
    assert_eq!(world.coordinator.expired(world.now_ms).len(), 1);
    let mut world = World::with(RULES, &at(State::CompleteCommit, 3));
    assert_eq!(world.init(None), Ok(who(P, 4)));
}

#[test]
fn use_puts_expiry_off() {
    let mut world = World::with(RULES, &at(State::CompleteCommit, 3));
    world.now_ms += RULES.id_expiration_ms - 2_000;
    assert_eq!(world.init(None), Ok(who(P, 4)));
    assert_eq!(world.coordinator.expired(START_MS + RULES.id_expiration_ms), []);
    assert_eq!(world.coordinator.expired(world.now_ms + RULES.id_expiration_ms).len(), 1);
}

#[test]
fn a_sweep_is_bounded_and_what_remains_is_next() {
    let mut world = World::new(RULES);
    let count = TRANSACTION_SWEEP_WRITES_MAX + 10;
    for number in 0..count {
        let state = if number % 2 == 0 { State::Ongoing } else { State::Empty };
        let value = value_bytes(&at(state, 3), 1);
        world.log.push((key_bytes(&format!("id-{number}")), Some(value)));
    }
    world.restart();
    let open = count / 2;
    assert_eq!(world.coordinator.counts(), [open, open, 0, 0, 0, 0, 0, 0]);
    world.now_ms += RULES.id_expiration_ms;
    assert_eq!(world.time_out(), open);
    // All of them expire later on.
    world.now_ms += RULES.id_expiration_ms;
    for expected in [TRANSACTION_SWEEP_WRITES_MAX, 10, 0] {
        let writes = world.coordinator.expired(world.now_ms);
        assert_eq!(writes.len(), expected);
        for write in writes {
            world.append(write);
        }
    }
    assert_eq!(world.coordinator.counts(), [0; 8]);
}
