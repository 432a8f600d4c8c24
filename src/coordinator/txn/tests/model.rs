//! Random operations against a naive model.
//!
//! The model is Kafka's tables as written, over plain numbers, one transactional id at a time. The
//! world lets appends fail or wait, markers trickle in, and crashes: it then starts from the
//! records that were appended, where of each record that was under way it is a matter of luck
//! whether it was. After every operation what is durable must be what the last record says, no
//! epoch of a producer id may have fallen, and no identity may have been handed out anew.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::coordinator::record::transaction::{read_key, read_value};

const IDS: [&str; 2] = ["alpha", "beta"];

/// Kafka's fields of one id, without times.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Naive {
    producer: (i64, i16),
    previous: i64,
    next: i64,
    last: i16,
    state: State,
    level: i16,
    partitions: BTreeSet<TxnPartition>,
}

/// What is expected of a request.
#[derive(PartialEq, Eq, Debug)]
enum Expected {
    Code(i16),
    Hold,
    Answer((i64, i16)),
    Write(Naive, (i64, i16)),
    Abort(Naive),
}

impl Naive {
    fn of(metadata: &Metadata) -> Naive {
        Naive {
            producer: (metadata.producer.id.0, metadata.producer.epoch.0),
            previous: metadata.previous_producer_id.0,
            next: metadata.next_producer_id.0,
            last: metadata.last_epoch.0,
            state: metadata.state,
            level: metadata.client_version,
            partitions: metadata.partitions.iter().cloned().collect(),
        }
    }

    fn to(&self, state: State) -> Naive {
        Naive { state, previous: self.producer.0, ..self.clone() }
    }

    fn initialized(&self, producer: (i64, i16), last: i16) -> Naive {
        Naive { producer, last, partitions: BTreeSet::new(), ..self.to(State::Empty) }
    }

    fn ended(&self, commit: bool, fresh: i64) -> Naive {
        let state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        let (id, epoch) = self.producer;
        Naive {
            producer: (id, if epoch == 32_767 { epoch } else { epoch + 1 }),
            last: epoch,
            next: if epoch >= 32_766 { fresh } else { -1 },
            level: 2,
            ..self.to(state)
        }
    }

    fn ended_legacy(&self, commit: bool) -> Naive {
        let state = if commit { State::PrepareCommit } else { State::PrepareAbort };
        Naive { level: 0, next: -1, ..self.to(state) }
    }

    fn completed(&self) -> Naive {
        let commit = self.state == State::PrepareCommit;
        let state = if commit { State::CompleteCommit } else { State::CompleteAbort };
        let rotates = self.level == 2 && self.next != -1;
        let producer = if rotates { (self.next, 0) } else { self.producer };
        Naive { producer, next: -1, partitions: BTreeSet::new(), ..self.to(state) }
    }

    /// Spec 1.4, from the second row on.
    fn init(
        &self,
        expected: Option<(i64, i16)>,
        level: i16,
        has_failed: bool,
        fresh: i64,
    ) -> Expected {
        let (id, epoch) = self.producer;
        if let Some((expected_id, expected_epoch)) = expected
            && expected_id != id
            && !(expected_id == self.previous && expected_epoch >= 32_766)
        {
            return Expected::Code(90);
        }
        if self.state == State::Ongoing {
            return Expected::Abort(self.fenced(level, has_failed, fresh));
        }
        let answer = |producer, last| Expected::Write(self.initialized(producer, last), producer);
        match expected.map(|(_, expected_epoch)| expected_epoch) {
            None if epoch >= 32_766 => answer((fresh, 0), -1),
            None => answer((id, epoch + 1), -1),
            Some(expected) if expected == epoch && epoch >= 32_766 => answer((fresh, 0), epoch),
            Some(_) if epoch >= 32_766 => Expected::Code(-1),
            Some(expected) if expected == epoch => answer((id, epoch + 1), epoch),
            Some(expected) if expected == self.last => answer((id, epoch), self.last),
            Some(_) => Expected::Code(90),
        }
    }

    fn fenced(&self, level: i16, has_failed: bool, fresh: i64) -> Naive {
        if level == 2 {
            return self.ended(false, fresh);
        }
        let (id, epoch) = self.producer;
        let raised = if has_failed || epoch == 32_767 { epoch } else { epoch + 1 };
        Naive { producer: (id, raised), last: -1, ..self.clone() }.ended_legacy(false)
    }

    /// Spec 2.5, from the row of the pending transition on.
    fn add(&self, producer: (i64, i16), added: &[TxnPartition], strict: bool) -> Expected {
        if producer.0 != self.producer.0 {
            return Expected::Code(49);
        }
        if producer.1 != self.producer.1 {
            return Expected::Code(90);
        }
        if self.state == State::Ongoing && added.iter().all(|one| self.partitions.contains(one)) {
            return Expected::Answer((-1, -1));
        }
        let mut target = self.to(State::Ongoing);
        target.partitions.extend(added.iter().cloned());
        target.level = if strict { 2 } else { 0 };
        Expected::Write(target, (-1, -1))
    }

    /// Spec 2.6, the table of the strict protocol.
    fn end(&self, producer: (i64, i16), commit: bool, fresh: i64) -> Expected {
        let over_rotation = producer == (self.previous, 32_766) && self.producer.1 == 0;
        if producer.0 != self.producer.0 && !over_rotation {
            return Expected::Code(49);
        }
        let is_current = producer.1 == self.producer.1;
        // Ours: only after an end that has raised the epoch.
        let is_before = i32::from(producer.1) + 1 == i32::from(self.producer.1);
        let is_retry = over_rotation || (is_before && self.level == 2);
        let bump = || {
            if commit && self.producer.1 == 32_767 {
                return Expected::Code(-1);
            }
            let target = self.ended(commit, fresh);
            let then = target.completed().producer;
            Expected::Write(target, then)
        };
        let column = match (commit, is_retry, is_current) {
            (_, false, false) => return Expected::Code(90),
            (false, true, _) => 0,
            (false, false, true) => 1,
            (true, true, _) => 2,
            (true, false, true) => 3,
        };
        match (self.state, column) {
            (State::Empty | State::Ongoing, 0 | 2) => Expected::Code(90),
            (State::Empty, 1) | (State::Ongoing, 1 | 3) => bump(),
            (State::CompleteAbort, 0) | (State::CompleteCommit, 2) => {
                Expected::Answer(self.producer)
            }
            (State::CompleteAbort | State::CompleteCommit, 1) => bump(),
            (State::CompleteAbort, 2) => Expected::Code(90),
            _ => Expected::Code(48),
        }
    }

    /// Spec 2.6, the table of the legacy protocol, with its checks before the pending one.
    fn end_legacy(&self, producer: (i64, i16), commit: bool, is_pending: bool) -> Expected {
        if producer.0 != self.producer.0 {
            return Expected::Code(49);
        }
        if producer.1 != self.producer.1 {
            return Expected::Code(90);
        }
        match (self.state, commit) {
            _ if is_pending => Expected::Hold,
            (State::Ongoing, _) => Expected::Write(self.ended_legacy(commit), (-1, -1)),
            (State::CompleteCommit, true) | (State::CompleteAbort, false) => {
                Expected::Answer((-1, -1))
            }
            _ => Expected::Code(48),
        }
    }
}

/// One random operation; numbers are reduced to what there is.
#[derive(Clone, Debug)]
enum Op {
    Init { id: usize, expected: Option<usize> },
    Add { id: usize, producer: usize, first: i32, count: i32, strict: bool },
    End { id: usize, producer: usize, commit: bool, strict: bool },
    Append { which: usize, fails: Option<usize> },
    Mark { which: usize, first: usize, count: usize },
    Time { ms: i64 },
    Expire,
    Crash { luck: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..IDS.len();
    prop_oneof![
        3 => (id.clone(), prop::option::of(0_usize..8))
            .prop_map(|(id, expected)| Op::Init { id, expected }),
        5 => (id.clone(), 0_usize..8, 0..4, 0..3, any::<bool>()).prop_map(
            |(id, producer, first, count, strict)| Op::Add { id, producer, first, count, strict }
        ),
        5 => (id, 0_usize..8, any::<bool>(), prop::bool::weighted(0.7)).prop_map(
            |(id, producer, commit, strict)| Op::End { id, producer, commit, strict }
        ),
        10 => (0_usize..9, prop::option::weighted(0.15, 0_usize..3))
            .prop_map(|(which, fails)| Op::Append { which, fails }),
        6 => (0_usize..9, 0_usize..3, 0_usize..5)
            .prop_map(|(which, first, count)| Op::Mark { which, first, count }),
        1 => (0_i64..100_000).prop_map(|ms| Op::Time { ms }),
        1 => Just(Op::Expire),
        1 => any::<u64>().prop_map(|luck| Op::Crash { luck }),
    ]
}

/// A record handed out.
struct InFlight {
    write: Write,
    /// What the model makes of it; `None` is a tombstone.
    target: Option<Naive>,
    is_fence: bool,
    /// Who is told when it is durable, and whether that one was told before.
    tells: Option<((i64, i16), bool)>,
}

/// World and model side by side.
struct Pair {
    world: World,
    /// What the model holds durable, and whether a fence failed (legacy).
    durable: BTreeMap<&'static str, (Naive, bool)>,
    writes: Vec<InFlight>,
    completions: Vec<Completion>,
    /// Everybody who was ever told, and for which id.
    told: BTreeMap<(i64, i16), &'static str>,
    /// Highest durable epoch of each producer id.
    epochs: BTreeMap<i64, i16>,
}

impl Pair {
    fn new(rules: Rules, epoch: i16) -> Pair {
        let mut world = World::new(rules);
        let start = Metadata { timeout_ms: 60_000, ..at(State::Empty, epoch) };
        world.log.push((key_bytes(IDS[0]), Some(value_bytes(&start, 1))));
        world.restart();
        Pair {
            world,
            durable: BTreeMap::from([(IDS[0], (Naive::of(&start), false))]),
            writes: Vec::new(),
            completions: Vec::new(),
            told: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    fn is_pending(&self, id: &str) -> bool {
        let pending = |entry: &Entry| entry.pending.is_some();
        self.world.entry(id).is_some_and(pending)
    }

    /// Somebody near the producer of an id.
    fn somebody(&self, id: &str, choice: usize) -> (i64, i16) {
        let Some((naive, _)) = self.durable.get(id) else { return (55, 0) };
        let (producer_id, epoch) = naive.producer;
        match choice {
            0..=3 => (producer_id, epoch),
            4 => (producer_id, epoch.saturating_sub(1)),
            5 => (producer_id, epoch.saturating_add(1)),
            6 => (naive.previous, 32_766),
            _ => (producer_id + 500, epoch),
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Init { id, expected } => self.init(IDS[id], expected),
            Op::Add { id, producer, first, count, strict } => {
                let added: Vec<TxnPartition> =
                    (first..first + count).map(|index| ("t".into(), index)).collect();
                self.add(IDS[id], producer, added, strict);
            }
            Op::End { id, producer, commit, strict } => self.end(IDS[id], producer, commit, strict),
            Op::Append { which, fails } => self.append(which, fails),
            Op::Mark { which, first, count } => self.mark(which, first, count),
            Op::Time { ms } => self.time(ms),
            Op::Expire => self.expire(),
            Op::Crash { luck } => self.crash(luck),
        }
    }

    fn init(&mut self, id: &'static str, expected: Option<usize>) {
        let expected = expected.map(|choice| self.somebody(id, choice));
        let fresh = self.world.next_id;
        let level = self.world.rules.finalized_level;
        let model = match self.durable.get(id) {
            _ if self.is_pending(id) => Expected::Hold,
            Some((naive, has_failed)) => naive.init(expected, level, *has_failed, fresh),
            None => {
                let new = Metadata::new(ProducerId(fresh), 0, 0);
                let new = Naive { previous: fresh, ..Naive::of(&new) };
                Expected::Write(new.initialized((fresh, 0), -1), (fresh, 0))
            }
        };
        let request = InitProducerId {
            transactional_id: id.into(),
            ..init_request(expected.map(|(id, epoch)| who(id, epoch)))
        };
        let verdict = self.world.ask_init(&request);
        self.check(id, verdict, model, expected);
    }

    fn add(&mut self, id: &'static str, producer: usize, added: Vec<TxnPartition>, strict: bool) {
        let producer = self.somebody(id, producer);
        let model = match self.durable.get(id) {
            _ if self.is_pending(id) => Expected::Hold,
            Some((naive, _)) => naive.add(producer, &added, strict),
            None => Expected::Code(49),
        };
        let request = AddPartitions {
            transactional_id: id.into(),
            producer: who(producer.0, producer.1),
            partitions: added,
            strict,
        };
        let now_ms = self.world.now_ms;
        let verdict = match self.world.coordinator.add_partitions(PARTITION, &request, now_ms) {
            Verdict::Answer(()) => Verdict::Answer(Identity::NONE),
            Verdict::Write { write, then: () } => Verdict::Write { write, then: Identity::NONE },
            Verdict::Refuse(code) => Verdict::Refuse(code),
            Verdict::Hold => Verdict::Hold,
            other => panic!("{other:?}"),
        };
        self.check(id, verdict, model, Some(producer));
    }

    fn end(&mut self, id: &'static str, producer: usize, commit: bool, strict: bool) {
        let producer = self.somebody(id, producer);
        let is_pending = self.is_pending(id);
        let fresh = self.world.next_id;
        let model = match self.durable.get(id) {
            _ if is_pending && strict => Expected::Hold,
            Some((naive, _)) if strict => naive.end(producer, commit, fresh),
            Some((naive, _)) => naive.end_legacy(producer, commit, is_pending),
            None => Expected::Code(49),
        };
        let request = EndTxn {
            transactional_id: id.into(),
            producer: who(producer.0, producer.1),
            commit,
            strict,
        };
        let verdict = self.world.ask_end(&request);
        self.check(id, verdict, model, Some(producer));
    }

    fn check(
        &mut self,
        id: &'static str,
        verdict: Verdict<Identity>,
        model: Expected,
        by: Option<(i64, i16)>,
    ) {
        match (verdict, model) {
            (Verdict::Refuse(code), Expected::Code(expected)) => assert_eq!(code.code(), expected),
            (Verdict::Hold, Expected::Hold) => {}
            (Verdict::Answer(answer), Expected::Answer(expected)) => {
                assert_eq!((answer.id.0, answer.epoch.0), expected);
            }
            (Verdict::Write { write, then }, Expected::Write(target, expected)) => {
                assert_eq!((then.id.0, then.epoch.0), expected);
                assert!(expected.1 <= 32_766, "{expected:?} is not for clients");
                // At most the same question is answered again: to whoever does not know the answer.
                let is_again = self.durable.get(id).is_some_and(|(naive, _)| {
                    naive.producer == expected && by.is_some() && by != Some(expected)
                });
                self.hand_out(write, Some(target), false);
                let in_flight = self.writes.last_mut().expect("just handed out");
                in_flight.tells = (expected.1 >= 0).then_some((expected, is_again));
            }
            (Verdict::AbortFirst(write), Expected::Abort(target)) => {
                self.hand_out(write, Some(target), true);
            }
            (verdict, model) => panic!("{verdict:?}, but the model says {model:?}"),
        }
    }

    fn hand_out(&mut self, write: Write, target: Option<Naive>, is_fence: bool) {
        let value = write.value.as_deref().map(|value| read_value(value).expect("a good value"));
        assert_eq!(value.as_ref().map(Naive::of), target);
        let mut others = self.writes.iter().map(|in_flight| &in_flight.write);
        assert!(others.all(|other| other.ticket != write.ticket && other.key != write.key));
        self.writes.push(InFlight { write, target, is_fence, tells: None });
    }

    fn append(&mut self, which: usize, fails: Option<usize>) {
        if self.writes.is_empty() {
            return;
        }
        let InFlight { write, target, is_fence, tells } =
            self.writes.swap_remove(which % self.writes.len());
        let id = name(&write.key);
        let was_prepare = self.durable.get(id).is_some_and(|(naive, _)| naive.state.is_prepare());
        let Some(fails) = fails else {
            let written = self.world.append(write);
            assert_eq!((written.error, &written.again), (None, &None));
            let is_prepare = target.as_ref().is_some_and(|target| target.state.is_prepare());
            assert_eq!(
                (written.markers.is_some(), written.released.is_some()),
                (is_prepare, !is_prepare)
            );
            let has_failed = self.durable.get(id).is_some_and(|(_, has_failed)| *has_failed);
            match target {
                Some(target) => self.durable.insert(id, (target, has_failed && !is_prepare)),
                None => self.durable.remove(id),
            };
            if let Some((told, is_again)) = tells {
                let before = self.told.insert(told, id);
                assert!(before.is_none() || is_again, "{told:?} was handed out before");
                let mut others = self.told.iter().filter(|(_, other)| **other != id);
                assert!(others.all(|((producer_id, _), _)| *producer_id != told.0));
            }
            self.completions.extend(written.markers);
            return;
        };
        let code = [
            ErrorCode::NotEnoughReplicas,
            ErrorCode::RequestTimedOut,
            ErrorCode::UnknownTopicOrPartition,
        ][fails];
        let now_ms = self.world.now_ms;
        let written = self.world.coordinator.written(write.ticket, Err(code), now_ms);
        assert_eq!(written.error, Some(ErrorCode::CoordinatorNotAvailable));
        assert_eq!((&written.markers, written.again.is_some()), (&None, was_prepare));
        if let Some(again) = written.again {
            self.hand_out(again, target, false);
        } else if is_fence
            && self.world.rules.finalized_level < 2
            && let (Some(target), Some((naive, has_failed))) = (target, self.durable.get_mut(id))
        {
            (naive.producer, naive.last, *has_failed) = (target.producer, -1, true);
        }
    }

    fn mark(&mut self, which: usize, first: usize, count: usize) {
        if self.completions.is_empty() {
            return;
        }
        let which = which % self.completions.len();
        let completion = &self.completions[which];
        let marked: Vec<TxnPartition> =
            completion.partitions.iter().skip(first).take(count).cloned().collect();
        let now_ms = self.world.now_ms;
        let write = self.world.coordinator.marked(completion.ticket, &marked, now_ms);
        if let Some(write) = write {
            let completion = self.completions.swap_remove(which);
            let (naive, _) = &self.durable[name(&write.key)];
            assert_eq!(who(naive.producer.0, naive.producer.1), completion.producer);
            assert_eq!(completion.commit, naive.state == State::PrepareCommit);
            let target = naive.completed();
            self.hand_out(write, Some(target), false);
        }
    }

    fn time(&mut self, ms: i64) {
        self.world.now_ms += ms;
        let fresh = self.world.next_id;
        let mut given = 0;
        let writes = self.world.coordinator.timed_out(self.world.now_ms, &mut || {
            given += 1;
            Some(ProducerId(fresh + given - 1))
        });
        self.world.next_id += given;
        for write in writes {
            let (naive, has_failed) = self.durable[name(&write.key)].clone();
            let next = write.value.as_deref().map(|value| read_value(value).expect("good"));
            let next = next.map_or(-1, |next| next.next_producer_id.0);
            let level = self.world.rules.finalized_level;
            assert_eq!(naive.state, State::Ongoing);
            self.hand_out(write, Some(naive.fenced(level, has_failed, next)), true);
        }
    }

    fn expire(&mut self) {
        self.world.now_ms += self.world.rules.id_expiration_ms;
        for write in self.world.coordinator.expired(self.world.now_ms) {
            assert!(self.durable[name(&write.key)].0.state.is_settled());
            self.hand_out(write, None, false);
        }
    }

    fn crash(&mut self, luck: u64) {
        for (place, in_flight) in self.writes.drain(..).enumerate() {
            let InFlight { write, target, .. } = in_flight;
            let id = name(&write.key);
            if luck >> (place % 64) & 1 == 1 {
                match target {
                    Some(target) => self.durable.insert(id, (target, false)),
                    None => self.durable.remove(id),
                };
                self.world.log.push((write.key, write.value));
            }
        }
        self.completions = self.world.restart();
        let ending = |naive: &Naive| naive.state.is_prepare();
        let expected = self.durable.values().filter(|(naive, _)| ending(naive)).count();
        assert_eq!(self.completions.len(), expected);
        // A fence that failed is forgotten: the record that counts is the one before it.
        let ids: Vec<&'static str> = self.durable.keys().copied().collect();
        for id in ids {
            if self.durable[id].1 {
                self.durable.insert(id, (Naive::of(&self.last_record(id).expect("known")), false));
            }
        }
    }

    fn last_record(&self, id: &str) -> Option<Metadata> {
        let key = key_bytes(id);
        let (_, value) = self.world.log.iter().rev().find(|(other, _)| *other == key)?;
        Some(read_value(value.as_deref()?).expect("a good value"))
    }

    fn check_durable(&mut self) {
        let mut counts = [0; 8];
        for id in IDS {
            let live = self.world.durable_of(id);
            assert_eq!(live.map(Naive::of), self.durable.get(id).map(|(naive, _)| naive.clone()));
            if !self.durable.get(id).is_some_and(|(_, has_failed)| *has_failed) {
                assert_eq!(live, self.last_record(id).as_ref(), "durable is what is recorded");
            }
            if let Some(live) = live {
                counts[live.state as usize] += 1;
                let highest = self.epochs.entry(live.producer.id.0).or_insert(-1);
                // Only a crash forgets a fence that failed; nobody was told of it.
                if self.world.rules.finalized_level == 2 {
                    assert!(live.producer.epoch.0 >= *highest, "an epoch fell");
                }
                *highest = live.producer.epoch.0;
            }
        }
        assert_eq!(self.world.coordinator.counts(), counts);
    }

    /// With luck everything comes to its end.
    fn drain(&mut self) {
        while !(self.writes.is_empty() && self.completions.is_empty()) {
            self.append(0, None);
            self.mark(0, 0, usize::MAX);
            self.check_durable();
        }
        assert_eq!(self.world.coordinator.open_tickets(), (0, 0));
        for id in IDS {
            let state = self.world.durable_of(id).map(|durable| durable.state);
            assert!(!state.is_some_and(State::is_prepare), "{id} was left in {state:?}");
            assert!(!self.is_pending(id));
        }
    }
}

fn name(key: &[u8]) -> &'static str {
    let id = read_key(key).expect("a good key");
    IDS.into_iter().find(|known| *known == id).expect("a known id")
}

fn check(rules: Rules, epoch: i16, ops: &[Op]) {
    let mut pair = Pair::new(rules, epoch);
    for op in ops {
        pair.run(op);
        pair.check_durable();
    }
    pair.drain();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_coordinator_does_as_the_model(
        epoch in prop_oneof![Just(0_i16), 32_755_i16..=32_766],
        ops in prop::collection::vec(op(), 1..150),
    ) {
        check(RULES, epoch, &ops);
    }

    #[test]
    fn the_coordinator_does_as_the_model_before_kip_890(
        epoch in prop_oneof![Just(0_i16), 32_755_i16..=32_766],
        ops in prop::collection::vec(op(), 1..150),
    ) {
        check(LEGACY, epoch, &ops);
    }
}
