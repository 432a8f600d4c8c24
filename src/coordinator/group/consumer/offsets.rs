//! Whose offsets a consumer group takes and shows.
//!
//! A member may commit with its current epoch, and with an older one for those partitions that it
//! has had since then: an answer may be on its way. Source: KIP-848, KIP-1251, Kafka's
//! `ConsumerGroup.validateOffsetCommit`.

use super::{ConsumerGroup, CurrentAssignment, Member};
use crate::coordinator::group::{CommitApi, Committer};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;

/// Which offsets of a commit are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitCheck<'a> {
    /// All of them.
    All,
    /// Those of partitions that the member has had since this epoch or longer.
    Since {
        /// What the member has.
        current: &'a CurrentAssignment,
        /// The epoch of the request.
        epoch: i32,
        /// The code for the others.
        otherwise: ErrorCode,
    },
}

impl CommitCheck<'_> {
    /// Whether an offset of one partition is taken.
    ///
    /// # Errors
    /// The code for all of the commit: one partition that is refused refuses the others.
    pub fn of_partition(&self, id: Option<TopicId>, partition: i32) -> Result<(), ErrorCode> {
        let CommitCheck::Since { current, epoch, otherwise } = self else { return Ok(()) };
        let id = id.ok_or(*otherwise)?;
        let since = |epochs: &super::Epochs| epochs.get(&id)?.get(&partition).copied();
        match since(&current.assigned).or_else(|| since(&current.revoking)) {
            Some(since) if since <= *epoch => Ok(()),
            _ => Err(*otherwise),
        }
    }
}

impl ConsumerGroup {
    /// Whether a commit is taken.
    ///
    /// # Errors
    /// The code for all of it.
    pub fn check_commit(
        &self,
        by: &Committer,
        api: CommitApi,
    ) -> Result<CommitCheck<'_>, ErrorCode> {
        if by.generation < 0 && self.members.is_empty() {
            return Ok(CommitCheck::All);
        }
        let is_transactional = api == CommitApi::Transactional;
        let says_nothing =
            by.generation == -1 && by.member_id.is_empty() && by.instance_id.is_none();
        if is_transactional && says_nothing {
            return Ok(CommitCheck::All);
        }
        let member = self.members.get(by.member_id.as_str()).ok_or(ErrorCode::UnknownMemberId)?;
        if matches!(api, CommitApi::Plain(..9)) && member.metadata.classic.is_none() {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let current = &*member.current;
        if by.generation == current.epoch {
            return Ok(CommitCheck::All);
        }
        let otherwise =
            if is_transactional { ErrorCode::IllegalGeneration } else { member.stale() };
        if by.generation > current.epoch {
            return Err(otherwise);
        }
        Ok(CommitCheck::Since { current, epoch: by.generation, otherwise })
    }

    /// Whether offsets are shown to this member; nobody in particular may see them all.
    ///
    /// # Errors
    /// 25 for an unknown member, 113 for another epoch than its own.
    pub fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = member_id.and_then(|id| self.members.get(id));
        let member = member.ok_or(ErrorCode::UnknownMemberId)?;
        if member.current.epoch == epoch { Ok(()) } else { Err(member.stale()) }
    }
}

impl Member {
    /// The code for another epoch, in the words of the protocol that the member uses.
    fn stale(&self) -> ErrorCode {
        match self.metadata.classic {
            Some(_) => ErrorCode::IllegalGeneration,
            None => ErrorCode::StaleMemberEpoch,
        }
    }
}
