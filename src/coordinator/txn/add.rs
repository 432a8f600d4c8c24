//! Partitions of a transaction: adding them, and looking them up.
//!
//! Owns the checks of AddPartitionsToTxn and AddOffsetsToTxn, and of what a partition's leader asks
//! for a producer (KIP-890). Must never add to a transaction that is ending.
//! Source: KIP-98, KIP-890; Kafka's `handleAddPartitionsToTransaction` and
//! `handleVerifyPartitionsInTransaction`.

use super::coordinator::{Coordinator, Transition};
use super::state::{Metadata, State};
use super::{AddPartitions, Identity, Verdict, is_valid_id};
use crate::error_code::ErrorCode;
use crate::ids::PartitionIndex;

impl Coordinator {
    /// Adds partitions to a transaction, and begins it with the first.
    ///
    /// A pending transition is looked at before the producer: after a rotation the client already
    /// has the producer id that is only pending here.
    pub fn add_partitions(
        &mut self,
        partition: PartitionIndex,
        request: &AddPartitions,
        now_ms: i64,
    ) -> Verdict<()> {
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
        let (None, Some(durable)) = (&entry.pending, &entry.durable) else { return Verdict::Hold };
        match check_producer(durable, request.producer) {
            Ok(()) => {}
            Err(ErrorCode::ConcurrentTransactions) => return Verdict::Hold,
            Err(code) => return Verdict::Refuse(code),
        }
        let is_present = request.partitions.iter().all(|added| durable.has(added));
        if durable.state == State::Ongoing && is_present {
            return Verdict::Answer(());
        }
        let target = durable.with_partitions(&request.partitions, request.strict, now_ms);
        let write = self.begin(partition, id, Transition::Become(target));
        Verdict::Write { write, then: () }
    }

    /// Whether partitions are in a transaction: a code for each, in order. Pending transitions are
    /// not looked at: the append that follows is checked again, by its guard.
    ///
    /// # Errors
    /// One code for all of them.
    pub fn verify_partitions(
        &self,
        partition: PartitionIndex,
        request: &AddPartitions,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        let id = &request.transactional_id;
        if !is_valid_id(id) {
            return Err(ErrorCode::InvalidRequest);
        }
        let entry = self.active(partition)?.ids.get(id);
        let durable = entry.and_then(|entry| entry.durable.as_ref());
        let durable = durable.ok_or(ErrorCode::InvalidProducerIdMapping)?;
        check_producer(durable, request.producer)?;
        let code = |has| if has { ErrorCode::None } else { ErrorCode::TransactionAbortable };
        Ok(request.partitions.iter().map(|asked| code(durable.has(asked))).collect())
    }
}

fn check_producer(durable: &Metadata, producer: Identity) -> Result<(), ErrorCode> {
    if durable.producer.id != producer.id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if durable.producer.epoch != producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    if durable.state.is_prepare() {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    Ok(())
}
