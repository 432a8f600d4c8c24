//! EndTxn, in both protocols.
//!
//! Owns which end is new, which is a repetition and which comes from a producer that is fenced.
//! Before KIP-890 an end is told by its epoch and the outcome alone; since KIP-890 every end raises
//! the epoch, so that the one before means a repetition. Must never end a transaction by a request
//! that was meant for another one, wherever the epoch can tell.
//! Source: KIP-98, KIP-890, KAFKA-20090, KAFKA-20785; Kafka's `endTransaction`.

use super::coordinator::{Coordinator, Transition};
use super::state::{EPOCH_FOR_CLIENTS_MAX, Metadata, STRICT_LEVEL, State};
use super::{EndTxn, Identity, Verdict, is_valid_id};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerId};

/// What an end means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    /// It is refused.
    Refused(ErrorCode),
    /// Another one is under way.
    Concurrent,
    /// It has happened.
    Repeated,
    /// It is to happen.
    New,
}

impl Coordinator {
    /// EndTxn. The identity is the one for the next transaction; a legacy request has no field
    /// for it, and gets none.
    pub fn end(
        &mut self,
        partition: PartitionIndex,
        request: &EndTxn,
        fresh: Option<ProducerId>,
        now_ms: i64,
    ) -> Verdict<Identity> {
        let id = &request.transactional_id;
        if !is_valid_id(id) {
            return Verdict::Refuse(ErrorCode::InvalidRequest);
        }
        let found = match self.active(partition) {
            Ok(found) => found,
            Err(code) => return Verdict::Refuse(code),
        };
        let Some(entry) = found.ids.get(id) else {
            return Verdict::Refuse(ErrorCode::InvalidProducerIdMapping);
        };
        let is_pending = entry.pending.is_some();
        let Some(durable) = &entry.durable else {
            // Nobody has been told yet who produces.
            return if request.strict {
                Verdict::Hold
            } else {
                Verdict::Refuse(ErrorCode::InvalidProducerIdMapping)
            };
        };
        let meaning = if request.strict {
            meaning_strict(durable, request, is_pending)
        } else {
            meaning_legacy(durable, request, is_pending)
        };
        match meaning {
            Meaning::Refused(code) => return Verdict::Refuse(code),
            Meaning::Concurrent => return Verdict::Hold,
            Meaning::Repeated if request.strict => return Verdict::Answer(durable.producer),
            Meaning::Repeated => return Verdict::Answer(Identity::NONE),
            Meaning::New => {}
        }
        let target = if request.strict {
            let next = fresh.filter(|_| durable.is_exhausted());
            if durable.is_exhausted() && next.is_none() {
                return Verdict::NeedsProducerId;
            }
            match durable.prepared_strict(request.commit, next, now_ms) {
                Ok(target) => target,
                Err(code) => return Verdict::Refuse(code),
            }
        } else {
            durable.prepared(request.commit, now_ms)
        };
        let then = if request.strict { target.identity_when_complete() } else { Identity::NONE };
        let write = self.begin(partition, id, Transition::Become(target));
        Verdict::Write { write, then }
    }
}

/// The rules before KIP-890 (EndTxn below version 5).
fn meaning_legacy(durable: &Metadata, request: &EndTxn, is_pending: bool) -> Meaning {
    if durable.producer.id != request.producer.id {
        return Meaning::Refused(ErrorCode::InvalidProducerIdMapping);
    }
    if durable.producer.epoch != request.producer.epoch {
        return Meaning::Refused(ErrorCode::ProducerFenced);
    }
    if is_pending {
        return Meaning::Concurrent;
    }
    match (durable.state, request.commit) {
        (State::Ongoing, _) => Meaning::New,
        (State::CompleteCommit, true) | (State::CompleteAbort, false) => Meaning::Repeated,
        (State::PrepareCommit, true) | (State::PrepareAbort, false) => Meaning::Concurrent,
        _ => Meaning::Refused(ErrorCode::InvalidTxnState),
    }
}

/// The rules of KIP-890 (EndTxn from version 5 on).
///
/// A pending transition is looked at before the producer: after a rotation the client already has
/// the producer id that is only pending here.
fn meaning_strict(durable: &Metadata, request: &EndTxn, is_pending: bool) -> Meaning {
    if is_pending {
        return Meaning::Concurrent;
    }
    let Identity { id, epoch } = request.producer;
    let is_over_rotation = id == durable.previous_producer_id
        && epoch == EPOCH_FOR_CLIENTS_MAX
        && durable.producer.epoch.0 == 0;
    if durable.producer.id != id && !is_over_rotation {
        return Meaning::Refused(ErrorCode::InvalidProducerIdMapping);
    }
    // A legacy end raises no epoch: the one before is that of somebody who was fenced.
    // **deviation** from Kafka, which tells them the epoch of the producer that fenced them.
    let is_before = durable.client_version >= STRICT_LEVEL
        && epoch.0.checked_add(1) == Some(durable.producer.epoch.0);
    let is_current = epoch == durable.producer.epoch;
    let is_repeated = is_before || is_over_rotation;
    let is_valid = match durable.state {
        State::Ongoing | State::Empty | State::Dead | State::PrepareEpochFence => is_current,
        State::PrepareCommit | State::PrepareAbort => is_before,
        State::CompleteCommit | State::CompleteAbort => is_repeated || is_current,
    };
    if !is_valid {
        return Meaning::Refused(ErrorCode::ProducerFenced);
    }
    match (durable.state, request.commit, is_repeated) {
        (State::Ongoing, ..) | (State::Empty, false, _) => Meaning::New,
        (State::CompleteCommit, true, true) | (State::CompleteAbort, false, true) => {
            Meaning::Repeated
        }
        (State::CompleteCommit | State::CompleteAbort, false, false) => Meaning::New,
        // The transaction was aborted under the client, by a timeout or by another producer's
        // InitProducerId: fenced, from which clients recover (KAFKA-20785).
        (State::CompleteAbort, true, true) => Meaning::Refused(ErrorCode::ProducerFenced),
        (State::PrepareCommit, true, _) | (State::PrepareAbort, false, _) => Meaning::Concurrent,
        _ => Meaning::Refused(ErrorCode::InvalidTxnState),
    }
}

#[cfg(test)]
mod tests;
