//! One shard's transaction coordinator.

use super::{
    AddPartitions, Completion, Description, EndTxn, Identity, InitProducerId, ListFilter, Listing,
    Rules, Ticket, TxnPartition, Verdict, Write, Written,
};
use crate::coordinator::record::RecordFault;
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerId};

/// The coordinator of every transactional id whose partition of `__transaction_state` one shard
/// owns.
pub struct Coordinator {
    rules: Rules,
}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl Coordinator {
    /// A coordinator of no partition yet.
    #[must_use]
    pub fn new(rules: Rules) -> Coordinator {
        Coordinator { rules }
    }

    /// A partition of `__transaction_state` is being read: its ids answer
    /// COORDINATOR_LOAD_IN_PROGRESS.
    pub fn begin_load(&mut self, partition: PartitionIndex) {}

    /// One record of a partition that is being read, in log order.
    pub fn load_record(
        &mut self,
        partition: PartitionIndex,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), RecordFault> {
        Ok(())
    }

    /// The partition has been read. Transactions found in a Prepare state are to get their markers
    /// now.
    pub fn finish_load(
        &mut self,
        partition: PartitionIndex,
        coordinator_epoch: i32,
        now_ms: i64,
    ) -> Vec<Completion> {
        Vec::new()
    }

    /// The partition is no longer here: its ids are forgotten.
    pub fn unload(&mut self, partition: PartitionIndex) {}

    /// InitProducerId with a transactional id.
    pub fn init_producer_id(
        &mut self,
        partition: PartitionIndex,
        request: &InitProducerId,
        fresh: Option<ProducerId>,
        now_ms: i64,
    ) -> Verdict<Identity> {
        Verdict::Refuse(ErrorCode::NotCoordinator)
    }

    /// Adds partitions to a transaction.
    pub fn add_partitions(
        &mut self,
        partition: PartitionIndex,
        request: &AddPartitions,
        now_ms: i64,
    ) -> Verdict<()> {
        Verdict::Refuse(ErrorCode::NotCoordinator)
    }

    /// Whether partitions are in a transaction: one code per partition, or one for all.
    pub fn verify_partitions(
        &self,
        partition: PartitionIndex,
        request: &AddPartitions,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        Err(ErrorCode::NotCoordinator)
    }

    /// EndTxn. The identity is the one for the next transaction; a legacy request has no field
    /// for it.
    pub fn end(
        &mut self,
        partition: PartitionIndex,
        request: &EndTxn,
        fresh: Option<ProducerId>,
        now_ms: i64,
    ) -> Verdict<Identity> {
        Verdict::Refuse(ErrorCode::NotCoordinator)
    }

    /// What an append became: durable, or refused with the log's own code.
    pub fn written(
        &mut self,
        ticket: Ticket,
        outcome: Result<(), ErrorCode>,
        now_ms: i64,
    ) -> Written {
        Written::default()
    }

    /// Partitions that have their marker durably, or whose topic is gone. The Complete record to
    /// append when none is owed one any more.
    pub fn marked(
        &mut self,
        ticket: Ticket,
        partitions: &[TxnPartition],
        now_ms: i64,
    ) -> Option<Write> {
        None
    }

    /// A partition refused a marker for good: the transaction stays as it is until it is loaded
    /// again.
    pub fn give_up(&mut self, ticket: Ticket) {}

    /// Aborts of transactions that have been open for too long. Each may need a producer id
    /// never used before; one that `fresh` has none for waits for the next sweep.
    pub fn timed_out(
        &mut self,
        now_ms: i64,
        fresh: &mut dyn FnMut() -> Option<ProducerId>,
    ) -> Vec<Write> {
        Vec::new()
    }

    /// Tombstones of ids that nobody has used for too long.
    pub fn expired(&mut self, now_ms: i64) -> Vec<Write> {
        Vec::new()
    }

    /// One id for DescribeTransactions.
    pub fn describe(&self, partition: PartitionIndex, id: &str) -> Result<Description, ErrorCode> {
        Err(ErrorCode::NotCoordinator)
    }

    /// The ids for ListTransactions.
    pub fn list(&self, filter: &ListFilter, now_ms: i64) -> Result<Listing, ErrorCode> {
        Err(ErrorCode::CoordinatorLoadInProgress)
    }

    /// Number of ids in each state, by its number.
    #[must_use]
    pub fn counts(&self) -> [usize; 8] {
        let _ = self.rules;
        [0; 8]
    }
}
