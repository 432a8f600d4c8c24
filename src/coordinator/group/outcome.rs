//! What an operation on a group comes to: records, answers and timers.
//!
//! Owns the types between the rules and the shell. An operation has a [`Ticket`] of whoever asked
//! and may leave it for later: a ticket is answered once, perhaps in the outcome of another
//! operation. The shell appends the records as one batch and applies them, sets the timers, and
//! lets the answers go when all of that is durable. Must never hold anything of the machine.

use std::sync::Arc;

use bytes::Bytes;

use super::consumer::{HeartbeatAnswer, Refusal, Timer};
use super::conversion::Conversion;
use super::record::GroupRecord;
use crate::error_code::ErrorCode;

/// The two clocks at an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Now {
    /// Monotonic time: what deadlines are measured in.
    pub ms: i64,
    /// Wall clock: what records say.
    pub wall_ms: i64,
}

/// Who waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A timer of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TimerKey {
    /// Whether this member, or who was given this member id, has been silent for too long.
    Session(Arc<str>),
    /// The end of waiting for members to join.
    Join,
    /// The end of waiting for members to sync.
    Sync,
    /// One of a consumer group.
    Consumer(Timer),
}

/// Timers to be set to a time, or taken away. One that comes too early does no harm.
pub type Timers = Vec<(TimerKey, Option<i64>)>;

/// What an operation comes to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// What to append, as one batch.
    pub records: Vec<GroupRecord>,
    /// Answers, once that is durable; they are all of one group.
    pub answers: Vec<(Ticket, Answer)>,
    /// Timers of the group.
    pub timers: Timers,
    /// What else is to be done once the records are applied, where it becomes of the other kind.
    pub conversion: Option<Box<Conversion>>,
}

/// The answer to one ticket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To JoinGroup.
    Join(Box<JoinAnswer>),
    /// To SyncGroup.
    Sync(SyncAnswer),
    /// To Heartbeat.
    Heartbeat(ErrorCode),
    /// To LeaveGroup.
    Leave(Result<Vec<LeaveAnswer>, ErrorCode>),
    /// To ConsumerGroupHeartbeat.
    Consumer(Result<HeartbeatAnswer, Refusal>),
}

/// The answer to JoinGroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinAnswer {
    /// Its error.
    pub error: ErrorCode,
    /// The generation joined, -1 for none.
    pub generation: i32,
    /// Protocol type of the group.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen.
    pub protocol: Option<Arc<str>>,
    /// The leader, empty for none.
    pub leader: Arc<str>,
    /// The leader is to keep the assignment as it is.
    pub skip_assignment: bool,
    /// The member id to go on with.
    pub member_id: Arc<str>,
    /// For the leader: the members.
    pub members: Vec<JoinedMember>,
}

/// A member, as the leader is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    /// Member id.
    pub id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// Its metadata for the protocol chosen.
    pub metadata: Bytes,
}

/// The answer to SyncGroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncAnswer {
    /// Its error.
    pub error: ErrorCode,
    /// Protocol type of the group.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen.
    pub protocol: Option<Arc<str>>,
    /// What the leader assigned.
    pub assignment: Bytes,
}

/// What became of one member that was to leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaveAnswer {
    /// Member id as in the request.
    pub member_id: Arc<str>,
    /// Instance id as in the request.
    pub instance_id: Option<Arc<str>>,
    /// Its error.
    pub error: ErrorCode,
}

impl Outcome {
    /// An outcome that only answers.
    #[must_use]
    pub fn answer(ticket: Ticket, answer: Answer) -> Outcome {
        Outcome { answers: vec![(ticket, answer)], ..Outcome::default() }
    }
}

impl Answer {
    /// The same answer where the records could not be appended.
    #[must_use]
    pub fn not_written(self, code: ErrorCode) -> Answer {
        match self {
            Answer::Join(_) => Answer::Join(Box::new(JoinAnswer::failed(code, "".into()))),
            Answer::Sync(_) => Answer::Sync(SyncAnswer::failed(code)),
            Answer::Heartbeat(_) => Answer::Heartbeat(code),
            Answer::Leave(_) => Answer::Leave(Err(code)),
            Answer::Consumer(_) => {
                let message = "The state of the group could not be written.".to_owned();
                Answer::Consumer(Err(Refusal { code, message }))
            }
        }
    }
}

impl JoinAnswer {
    /// An answer that carries nothing but an error.
    #[must_use]
    pub fn failed(error: ErrorCode, member_id: Arc<str>) -> JoinAnswer {
        JoinAnswer {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

impl SyncAnswer {
    /// An answer that carries nothing but an error.
    #[must_use]
    pub fn failed(error: ErrorCode) -> SyncAnswer {
        SyncAnswer { error, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}
