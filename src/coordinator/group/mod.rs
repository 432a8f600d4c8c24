//! The group coordinator: what is kept in one partition of `__consumer_offsets`.
//!
//! Owns [`Groups`], which changes in two ways only: [`Groups::apply`], one record at a time, and
//! [`Groups::marker`], the end of a transaction. Both are used for what has just been appended and
//! for what is read back at a start, so that the two cannot differ. Requests are answered by plans:
//! what to append, and what to answer once it is. Must never do I/O or read a clock.
//!
//! A group here is what Kafka calls a simple group: it has offsets and no members. The group
//! protocols add kinds of groups to [`check_commit`] and [`Group`], and record types to [`record`].

pub mod offsets;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerId};

use record::{OffsetKey, OffsetValue};

/// The groups of one partition of `__consumer_offsets`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Groups {
    groups: BTreeMap<Arc<str>, Group>,
    /// What each open transaction has committed.
    open: BTreeMap<ProducerId, BTreeSet<OffsetKey>>,
}

/// One group: offsets by topic and partition. One that has lost its offsets stays until it expires.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Group {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, Position>>,
}

/// What is known of a group's progress in one partition; never without an offset.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Position {
    committed: Option<Committed>,
    /// One for each open transaction that commits here.
    pending: Vec<(ProducerId, Committed)>,
}

/// An offset and where its record stands.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Committed {
    at: Offset,
    value: OffsetValue,
}

/// Who commits, as the request says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committer {
    /// Member id, empty for none.
    pub member_id: String,
    /// Instance id of a static member.
    pub instance_id: Option<String>,
    /// Generation or member epoch, -1 for none.
    pub generation: i32,
}

/// Which API a commit came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitApi {
    /// OffsetCommit of this version.
    Plain(i16),
    /// TxnOffsetCommit.
    Transactional,
}

/// Whether a group takes offsets from this committer. `group` is `None` if nobody knows it.
fn check_commit(group: Option<&Group>, by: &Committer, api: CommitApi) -> Result<(), ErrorCode> {
    // Without a generation it is an admin or a consumer that assigns its partitions itself, and a
    // group without members takes that, whoever the request says it is.
    if by.generation < 0 {
        return Ok(());
    }
    match group {
        Some(_) => Err(ErrorCode::UnknownMemberId),
        None if matches!(api, CommitApi::Plain(9..)) => Err(ErrorCode::GroupIdNotFound),
        None => Err(ErrorCode::IllegalGeneration),
    }
}
