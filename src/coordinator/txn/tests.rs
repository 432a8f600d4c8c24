//! Tests of the transaction coordinator: a world that appends its records and writes its markers,
//! at once or when told to, and that can be started again from what it has appended.

use std::sync::Arc;

use super::coordinator::Entry;
use super::state::{Metadata, State};
use super::*;
use crate::coordinator::record::transaction::{key_bytes, value_bytes};

mod add;
mod admin;
mod appends;
mod end;
mod init;
mod load;
mod model;
mod timers;

const PARTITION: PartitionIndex = PartitionIndex(3);
const ID: &str = "payments";
/// The producer id that fixtures have.
const P: i64 = 7;
/// The first producer id that is handed out.
const FRESH: i64 = 1000;
const COORDINATOR_EPOCH: i32 = 5;
const START_MS: i64 = 1_000_000;
const RULES: Rules = Rules {
    max_timeout_ms: 900_000,
    id_expiration_ms: 604_800_000,
    finalized_level: 2,
    two_phase_commit: false,
};
const LEGACY: Rules = Rules { finalized_level: 1, ..RULES };

/// A coordinator with the log of its one partition.
struct World {
    rules: Rules,
    coordinator: Coordinator,
    log: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    next_id: i64,
    now_ms: i64,
}

impl World {
    fn new(rules: Rules) -> World {
        let coordinator = Coordinator::new(rules);
        let mut world =
            World { rules, coordinator, log: Vec::new(), next_id: FRESH, now_ms: START_MS };
        world.restart();
        world
    }

    /// A world in which the id is known.
    fn with(rules: Rules, metadata: &Metadata) -> World {
        let mut world = World::new(rules);
        world.log.push((key_bytes(ID), Some(value_bytes(metadata, 1))));
        world.restart();
        world
    }

    /// Starts again from the log; the transactions that are to be completed.
    fn restart(&mut self) -> Vec<Completion> {
        self.coordinator = Coordinator::new(self.rules);
        self.coordinator.begin_load(PARTITION);
        for (key, value) in &self.log {
            let loaded = self.coordinator.load_record(PARTITION, key, value.as_deref());
            assert_eq!(loaded, Ok(()));
        }
        self.coordinator.finish_load(PARTITION, COORDINATOR_EPOCH, self.now_ms)
    }

    /// The record becomes durable.
    fn append(&mut self, write: Write) -> Written {
        assert_eq!(write.partition, PARTITION);
        self.log.push((write.key, write.value));
        self.coordinator.written(write.ticket, Ok(()), self.now_ms)
    }

    /// Every marker is written, and the Complete becomes durable.
    fn complete(&mut self, completion: &Completion) {
        let write = self.coordinator.marked(completion.ticket, &completion.partitions, self.now_ms);
        let written = self.append(write.expect("the last marker"));
        assert_eq!(written.released.as_deref(), Some(&*completion.transactional_id));
        assert_eq!((written.markers, written.error, written.again), (None, None, None));
    }

    /// Appends what there is to append, writes the markers, and gives the answer.
    fn settle<T>(&mut self, verdict: Verdict<T>) -> Result<T, ErrorCode> {
        match verdict {
            Verdict::Answer(answer) => Ok(answer),
            Verdict::Refuse(code) => Err(code),
            Verdict::Hold => Err(ErrorCode::ConcurrentTransactions),
            Verdict::NeedsProducerId => panic!("a producer id was given"),
            Verdict::Write { write, then } => {
                if let Some(completion) = self.append(write).markers {
                    self.complete(&completion);
                }
                Ok(then)
            }
            Verdict::AbortFirst(write) => {
                let completion = self.append(write).markers.expect("an abort has markers");
                self.complete(&completion);
                Err(ErrorCode::ConcurrentTransactions)
            }
        }
    }

    fn fresh(&mut self) -> Option<ProducerId> {
        self.next_id += 1;
        Some(ProducerId(self.next_id - 1))
    }

    fn ask_init(&mut self, request: &InitProducerId) -> Verdict<Identity> {
        match self.coordinator.init_producer_id(PARTITION, request, None, self.now_ms) {
            Verdict::NeedsProducerId => {
                let fresh = self.fresh();
                self.coordinator.init_producer_id(PARTITION, request, fresh, self.now_ms)
            }
            verdict => verdict,
        }
    }

    fn init(&mut self, expected: Option<Identity>) -> Result<Identity, ErrorCode> {
        let verdict = self.ask_init(&init_request(expected));
        self.settle(verdict)
    }

    fn ask_end(&mut self, request: &EndTxn) -> Verdict<Identity> {
        match self.coordinator.end(PARTITION, request, None, self.now_ms) {
            Verdict::NeedsProducerId => {
                let fresh = self.fresh();
                self.coordinator.end(PARTITION, request, fresh, self.now_ms)
            }
            verdict => verdict,
        }
    }

    fn end(
        &mut self,
        producer: Identity,
        commit: bool,
        version: i16,
    ) -> Result<Identity, ErrorCode> {
        let verdict = self.ask_end(&end_request(producer, commit, version));
        self.settle(verdict)
    }

    fn ask_add(&mut self, producer: Identity, partitions: &[TxnPartition]) -> Verdict<()> {
        let request = add_request(producer, partitions);
        self.coordinator.add_partitions(PARTITION, &request, self.now_ms)
    }

    fn add(&mut self, producer: Identity) -> Result<(), ErrorCode> {
        let verdict = self.ask_add(producer, &partitions());
        self.settle(verdict)
    }

    /// Sweeps for timeouts, and appends all it finds.
    fn time_out(&mut self) -> usize {
        let next_id = &mut self.next_id;
        let writes = self.coordinator.timed_out(self.now_ms, &mut || {
            *next_id += 1;
            Some(ProducerId(*next_id - 1))
        });
        let count = writes.len();
        for write in writes {
            let completion = self.append(write).markers.expect("an abort has markers");
            self.complete(&completion);
        }
        count
    }

    fn durable(&self) -> &Metadata {
        self.durable_of(ID).expect("a known id")
    }

    fn durable_of(&self, id: &str) -> Option<&Metadata> {
        self.entry(id)?.durable.as_ref()
    }

    fn entry(&self, id: &str) -> Option<&Entry> {
        self.coordinator.partitions.get(&PARTITION)?.ids.get(id)
    }

    fn identity(&self) -> (i64, i16) {
        (self.durable().producer.id.0, self.durable().producer.epoch.0)
    }
}

fn who(id: i64, epoch: i16) -> Identity {
    Identity { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

fn init_request(expected: Option<Identity>) -> InitProducerId {
    InitProducerId {
        transactional_id: ID.into(),
        timeout_ms: 60_000,
        expected,
        two_phase: false,
        keep_prepared: false,
    }
}

fn add_request(producer: Identity, partitions: &[TxnPartition]) -> AddPartitions {
    AddPartitions {
        transactional_id: ID.into(),
        producer,
        partitions: partitions.to_vec(),
        strict: true,
    }
}

fn end_request(producer: Identity, commit: bool, version: i16) -> EndTxn {
    EndTxn { transactional_id: ID.into(), producer, commit, strict: version >= 5 }
}

fn partitions() -> Vec<TxnPartition> {
    vec![("orders".into(), 0), ("orders".into(), 1), ("stock".into(), 4)]
}

/// The id at producer id 7 in some state, reached by requests of a client that follows KIP-890.
fn at(state: State, epoch: i16) -> Metadata {
    let metadata = Metadata::new(ProducerId(P), 60_000, START_MS - 1_000);
    let is_open = state == State::Ongoing || state.is_prepare();
    Metadata {
        producer: who(P, epoch),
        previous_producer_id: ProducerId(P),
        state,
        client_version: 2,
        partitions: if is_open { partitions() } else { Vec::new() },
        start_ms: if state == State::Empty { -1 } else { START_MS - 1_000 },
        ..metadata
    }
}

/// The refusal that an answer is.
fn refused<T>(code: ErrorCode) -> Result<T, ErrorCode> {
    Err(code)
}
