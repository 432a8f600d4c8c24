//! Listing, describing and deleting groups of this shard.
//!
//! Owns what is asked of all partitions at once. What is shown is durable; a list that lacks a
//! partition which is still being read is refused (14), never given without it.

use std::rc::Rc;
use std::sync::Arc;

use super::{Kept, consumers, find, load, newest_of, place_of, wait_durable, write_or_fail};
use crate::api::list_offsets::is_served;
use crate::coordinator::group::admin::{DescribedGroup, GroupFilter, ListedGroup};
use crate::coordinator::group::consumer::{self, Refusal};
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, PartitionIndex, ShardId, TopicPartition};
use crate::metadata::image::CONSUMER_OFFSETS;
use crate::shard::Shard;
use crate::shard::message::{Operation, Reply};

/// What tools ask of a group's shard.
#[derive(Clone, Debug)]
pub enum AdminRequest {
    /// List the groups of that shard.
    List(GroupFilter),
    /// Describe a group.
    Describe(Arc<str>),
    /// Describe a consumer group.
    DescribeConsumer(Arc<str>),
    /// Delete a group.
    Delete(Arc<str>),
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum AdminReply {
    /// Of a list.
    Listed(Vec<ListedGroup>),
    /// Of a description.
    Described(Result<DescribedGroup, Refusal>),
    /// Of a description of a consumer group.
    DescribedConsumer(Result<consumer::DescribedGroup, Refusal>),
    /// Of a deletion.
    Deleted,
}

/// Has a request about one group done where it is kept.
///
/// # Errors
/// 16 for a group of another node, and what its coordinator says.
pub async fn ask(
    shard: &Rc<Shard>,
    group: &str,
    request: AdminRequest,
) -> Result<AdminReply, ErrorCode> {
    let (_, owner) = place_of(shard, group)?;
    if !is_served(shard, owner) {
        return Err(ErrorCode::NotCoordinator);
    }
    ask_shard(shard, owner, request).await
}

/// The groups of this node, by name.
///
/// # Errors
/// 14 while some are being read.
pub async fn list(shard: &Rc<Shard>, filter: &GroupFilter) -> Result<Vec<ListedGroup>, ErrorCode> {
    let shards = if shard.context.is_single() {
        (0..shard.context.shards).map(ShardId).collect()
    } else {
        vec![shard.id]
    };
    let mut all = Vec::new();
    for owner in shards {
        match ask_shard(shard, owner, AdminRequest::List(filter.clone())).await? {
            AdminReply::Listed(groups) => all.extend(groups),
            _ => return Err(ErrorCode::UnknownServerError),
        }
    }
    all.sort_by(|left, right| left.id.cmp(&right.id));
    Ok(all)
}

async fn ask_shard(
    shard: &Rc<Shard>,
    owner: ShardId,
    request: AdminRequest,
) -> Result<AdminReply, ErrorCode> {
    match shard.ask(owner, Operation::GroupAdmin(request)).await {
        Reply::GroupAdmin(outcome) => outcome,
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// Does a request on this shard.
///
/// # Errors
/// The code for all of the request.
pub async fn perform(shard: &Rc<Shard>, request: AdminRequest) -> Result<AdminReply, ErrorCode> {
    match request {
        AdminRequest::List(filter) => {
            let mut groups = Vec::new();
            let mut durable_at = JournalSequence(0);
            for kept in all_kept(shard)? {
                groups.extend(kept.with(|known| known.list(&filter))?);
                durable_at = durable_at.max(newest_of(shard, kept.id));
            }
            wait_durable(shard, durable_at).await?;
            Ok(AdminReply::Listed(groups))
        }
        AdminRequest::Describe(group) => {
            let kept = find(shard, &group)?;
            let described = kept.with(|groups| groups.describe(&group))?;
            wait_durable(shard, newest_of(shard, kept.id)).await?;
            Ok(AdminReply::Described(described))
        }
        AdminRequest::DescribeConsumer(group) => {
            let kept = find(shard, &group)?;
            let described = consumers::describe(shard, &kept, &group)?;
            wait_durable(shard, newest_of(shard, kept.id)).await?;
            Ok(AdminReply::DescribedConsumer(described))
        }
        AdminRequest::Delete(group) => {
            let kept = find(shard, &group)?;
            let turn = kept.turn().await;
            let deleted = match kept.with(|groups| groups.plan_delete_group(&group))? {
                Ok(records) => write_or_fail(shard, &kept, records).await,
                Err(code) => Err(code),
            };
            drop(turn);
            // A group that is not there any more may have been deleted just now.
            wait_durable(shard, newest_of(shard, kept.id)).await?;
            deleted.map(|()| AdminReply::Deleted)
        }
    }
}

/// Every partition that is this shard's.
fn all_kept(shard: &Shard) -> Result<Vec<Rc<Kept>>, ErrorCode> {
    let image = shard.catalog();
    let Some(topic) = image.topic(CONSUMER_OFFSETS) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for partition in (0..topic.partition_count()).map(PartitionIndex) {
        if topic.owner(partition, shard.context.shards) == Some(shard.id) {
            let id = TopicPartition { topic: topic.id, partition };
            all.push(load::kept(shard, id).ok_or(ErrorCode::CoordinatorLoadInProgress)?);
        }
    }
    Ok(all)
}
