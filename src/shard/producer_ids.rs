//! Producer ids that this shard may hand out.
//!
//! Owns one block of ids, reserved durably by shard 0 before any of it is used; the rest of a
//! block is lost at a restart, and no id is ever handed out twice. Source: KIP-730.

use std::cell::Cell;
use std::rc::Rc;

use super::Shard;
use super::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use crate::error_code::ErrorCode;
use crate::ids::{ProducerId, ShardId};

/// The rest of the current block.
#[derive(Default)]
pub struct ProducerIds {
    next: Cell<i64>,
    end: Cell<i64>,
}

impl ProducerIds {
    /// One that is at hand.
    pub fn take(&self) -> Option<ProducerId> {
        let next = self.next.get();
        (next < self.end.get()).then(|| {
            self.next.set(next + 1);
            ProducerId(next)
        })
    }
}

/// A producer id that nobody has.
///
/// # Errors
/// 15 when the catalog cannot be written.
pub async fn next(shard: &Rc<Shard>) -> Result<ProducerId, ErrorCode> {
    loop {
        if let Some(id) = shard.producer_ids.take() {
            return Ok(id);
        }
        reserve(shard).await?;
    }
}

/// Reserves a block for this shard.
///
/// # Errors
/// 15 when the catalog cannot be written.
pub async fn reserve(shard: &Rc<Shard>) -> Result<(), ErrorCode> {
    let reserve = Operation::Catalog(CatalogChange::ReserveProducerIds);
    match shard.ask(ShardId(0), reserve).await {
        Reply::Catalog(CatalogOutcome::ProducerIds { first, count }) => {
            // Two requests may have asked at once: the block that came second is used up first,
            // and what was left of the other is lost, which is allowed.
            shard.producer_ids.next.set(first);
            shard.producer_ids.end.set(first + count);
            Ok(())
        }
        _ => Err(ErrorCode::CoordinatorNotAvailable),
    }
}
