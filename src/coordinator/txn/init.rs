//! InitProducerId with a transactional id.
//!
//! Owns the order of its checks and who gets which epoch. Must never give two producers the same
//! producer id and epoch, except the same answer to a repeated question; nor answer while a
//! transaction of the id is open.
//! Source: KIP-98, KIP-360, KIP-890, KIP-939 (refused); Kafka's `handleInitProducerId`.

use super::coordinator::{Coordinator, Entry, Transition};
use super::state::{EPOCH_FOR_CLIENTS_MAX, Metadata, NO_TIMEOUT_MS, State};
use super::{Decision, Identity, InitProducerId, Verdict, is_valid_id};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerId};

/// What becomes of a request whose id is known and has nothing pending.
enum Plan {
    Refuse(ErrorCode),
    Concurrent,
    NeedsProducerId,
    Initialize(Metadata),
    Abort(Transition),
}

impl Coordinator {
    /// InitProducerId with a transactional id.
    pub fn init_producer_id(
        &mut self,
        partition: PartitionIndex,
        request: &InitProducerId,
        fresh: Option<ProducerId>,
        now_ms: i64,
    ) -> Verdict<Identity> {
        let timeout_ms = match self.check_init(request) {
            Ok(timeout_ms) => timeout_ms,
            Err(code) => return Verdict::Refuse(code),
        };
        let found = match self.active(partition) {
            Ok(found) => found,
            Err(code) => return Verdict::Refuse(code),
        };
        let plan = match found.ids.get(&request.transactional_id) {
            None => plan_new(request, timeout_ms, fresh, now_ms),
            Some(entry) if entry.pending.is_some() => Plan::Concurrent,
            Some(entry) => self.plan_init(entry, request.expected, timeout_ms, fresh, now_ms),
        };
        let id = &request.transactional_id;
        match plan {
            Plan::Refuse(code) => Verdict::Refuse(code),
            Plan::Concurrent => Verdict::Hold,
            Plan::NeedsProducerId => Verdict::NeedsProducerId,
            Plan::Initialize(target) => {
                let then = target.producer;
                let write = self.begin(partition, id, Transition::Become(target));
                Verdict::Write { write, then }
            }
            Plan::Abort(transition) => Verdict::AbortFirst(self.begin(partition, id, transition)),
        }
    }

    /// The timeout to store.
    fn check_init(&self, request: &InitProducerId) -> Result<i32, ErrorCode> {
        if !is_valid_id(&request.transactional_id) {
            return Err(ErrorCode::InvalidRequest);
        }
        if request.two_phase && !self.rules.two_phase_commit {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        if request.keep_prepared {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if request.two_phase {
            return Ok(NO_TIMEOUT_MS);
        }
        if !(1..=self.rules.max_timeout_ms).contains(&request.timeout_ms) {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        Ok(request.timeout_ms)
    }

    fn plan_init(
        &self,
        entry: &Entry,
        expected: Option<Identity>,
        timeout_ms: i32,
        fresh: Option<ProducerId>,
        now_ms: i64,
    ) -> Plan {
        let durable = entry.durable.as_ref().expect("invariant: nothing pending, so durable");
        let is_known = |expected: Identity| {
            expected.id == durable.producer.id
                || (expected.id == durable.previous_producer_id
                    && expected.epoch >= EPOCH_FOR_CLIENTS_MAX)
        };
        if !expected.is_none_or(is_known) {
            return Plan::Refuse(ErrorCode::ProducerFenced);
        }
        match durable.state {
            State::Ongoing => match self.fence(entry, || fresh, Decision::Fenced, now_ms) {
                Some(transition) => Plan::Abort(transition),
                None => Plan::NeedsProducerId,
            },
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                plan_settled(durable, expected, timeout_ms, fresh, now_ms)
            }
            State::PrepareCommit | State::PrepareAbort | State::Dead | State::PrepareEpochFence => {
                Plan::Concurrent
            }
        }
    }
}

/// An id without a record: a client whose id has expired heals here, whatever it expects.
fn plan_new(
    request: &InitProducerId,
    timeout_ms: i32,
    fresh: Option<ProducerId>,
    now_ms: i64,
) -> Plan {
    let Some(fresh) = fresh else { return Plan::NeedsProducerId };
    let expected = request.expected.map(|expected| expected.epoch);
    match Metadata::new(fresh, timeout_ms, now_ms).initialized(timeout_ms, expected, now_ms) {
        Ok(target) => Plan::Initialize(target),
        Err(code) => Plan::Refuse(code),
    }
}

fn plan_settled(
    durable: &Metadata,
    expected: Option<Identity>,
    timeout_ms: i32,
    fresh: Option<ProducerId>,
    now_ms: i64,
) -> Plan {
    let expected = expected.map(|expected| expected.epoch);
    if durable.is_exhausted() && expected.is_none_or(|epoch| epoch == durable.producer.epoch) {
        let Some(fresh) = fresh else { return Plan::NeedsProducerId };
        let is_expected = expected.is_some();
        return Plan::Initialize(durable.rotated(fresh, timeout_ms, is_expected, now_ms));
    }
    match durable.initialized(timeout_ms, expected, now_ms) {
        Ok(target) => Plan::Initialize(target),
        Err(code) => Plan::Refuse(code),
    }
}
