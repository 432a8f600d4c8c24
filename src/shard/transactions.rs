//! The way from a partition to the coordinator of a transaction.
//!
//! Owns the question that comes before the first batch of a transaction in a partition. Nobody
//! coordinates transactions yet: the answer is that the coordinator is not available.

use std::rc::Rc;
use std::sync::Arc;

use super::Shard;
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};

/// Whether these partitions are part of a producer's transaction, or may become it.
#[derive(Clone, Debug)]
pub struct TxnQuestion {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Topics and partitions.
    pub partitions: Vec<(Arc<str>, i32)>,
    /// Whether nothing is to be added.
    pub verify_only: bool,
}

/// Adds partitions to a transaction, or checks that they are in it: one code per partition.
pub async fn add_for_append(_shard: &Rc<Shard>, question: TxnQuestion) -> Vec<ErrorCode> {
    vec![ErrorCode::CoordinatorNotAvailable; question.partitions.len()]
}
