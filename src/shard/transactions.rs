//! Questions to the transaction coordinator.

use std::rc::Rc;
use std::sync::Arc;

use super::Shard;
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};

/// Adds partitions to a transaction, or checks that they are in it.
#[derive(Clone, Debug)]
pub struct TxnQuestion {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// Its producer.
    pub producer_id: ProducerId,
    /// The producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// The partitions, by topic name.
    pub partitions: Vec<(Arc<str>, i32)>,
    /// Check only.
    pub verify_only: bool,
}

/// One code per partition, as the coordinator says it.
pub async fn add_for_append(_shard: &Rc<Shard>, question: TxnQuestion) -> Vec<ErrorCode> {
    vec![ErrorCode::CoordinatorNotAvailable; question.partitions.len()]
}
