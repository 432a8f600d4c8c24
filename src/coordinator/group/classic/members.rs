//! SyncGroup, Heartbeat and LeaveGroup.
//!
//! Owns what a member of the present generation may do. The leader's SyncGroup writes the group;
//! everybody's is answered when that is durable. A heartbeat changes when a session ends, and
//! nothing else: it allocates nothing.
//!
//! **Deviation**: a sync that is answered at once prolongs the session, whether with 27 or with
//! the assignment, as a heartbeat does. In Kafka 4.3.1 it does not, and a member that was just told
//! what it has, or to join again, may be removed while it consumes.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::rebalance::Step;
use super::{Phase, Rules, Undo};
use crate::coordinator::group::outcome::{
    Answer, LeaveAnswer, Now, Outcome, SyncAnswer, Ticket, Timers,
};
use crate::coordinator::group::{Groups, Kind, consumer};
use crate::error_code::ErrorCode;

/// A SyncGroup request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The group.
    pub group: Arc<str>,
    /// Member id.
    pub member_id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The generation joined.
    pub generation: i32,
    /// The protocol type, where the member says it.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen, where the member says it.
    pub protocol: Option<Arc<str>>,
    /// What the leader assigns, by member id.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// A Heartbeat request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The group.
    pub group: Arc<str>,
    /// Member id.
    pub member_id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The generation joined.
    pub generation: i32,
}

/// A LeaveGroup request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leave {
    /// The group.
    pub group: Arc<str>,
    /// Who is to leave, by member id, or by instance id where that is empty.
    pub members: Vec<(Arc<str>, Option<Arc<str>>)>,
}

impl Groups {
    /// A member asks for what it is assigned. Answered when the leader has assigned.
    pub fn sync(
        &mut self,
        sync: &Sync,
        ticket: Ticket,
        rules: &Rules,
        of_consumers: &consumer::Rules<'_>,
    ) -> Outcome {
        if let Some(outcome) = self.sync_consumers(sync, ticket, of_consumers) {
            return outcome;
        }
        let refuse = |code| Outcome::answer(ticket, Answer::Sync(SyncAnswer::failed(code)));
        let classic = self.groups.get_mut(&sync.group).and_then(|group| group.kind.classic_mut());
        let Some(classic) = classic.filter(|classic| !classic.is_empty()) else {
            return refuse(ErrorCode::UnknownMemberId);
        };
        let live = &mut classic.live;
        if let Err(code) = live.check_member(&sync.member_id, sync.instance_id.as_deref()) {
            return refuse(code);
        }
        if sync.generation != live.generation {
            return refuse(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<Arc<str>>, known: &Option<Arc<str>>| {
            asked.is_some() && known.is_some() && asked != known
        };
        if differs(&sync.protocol_type, &live.protocol_type)
            || differs(&sync.protocol, &live.protocol)
        {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        let mut step = Step::new(live, &sync.group, rules, of_consumers.now);
        step.sync(sync, ticket);
        step.outcome
    }

    /// A member says that it is there. Sets timers only in rare cases.
    pub fn heartbeat(&mut self, beat: &Heartbeat, now: Now, timers: &mut Timers) -> ErrorCode {
        let classic = match self.groups.get_mut(&beat.group).map(|group| &mut group.kind) {
            Some(Kind::Classic(classic)) => classic,
            Some(Kind::Consumer(consumer)) => return consumer.heartbeat_classic(beat, now, timers),
            Some(Kind::Simple) | None => return ErrorCode::UnknownMemberId,
        };
        let live = &mut classic.live;
        if let Err(code) = live.check_member(&beat.member_id, beat.instance_id.as_deref()) {
            return code;
        }
        if beat.generation != live.generation {
            return ErrorCode::IllegalGeneration;
        }
        live.touch(&beat.member_id, now, timers);
        match live.phase {
            Phase::Empty => ErrorCode::UnknownMemberId,
            Phase::Preparing(_) => ErrorCode::RebalanceInProgress,
            Phase::Completing | Phase::Stable => ErrorCode::None,
        }
    }

    /// Members leave.
    pub fn leave(
        &mut self,
        leave: &Leave,
        ticket: Ticket,
        rules: &Rules,
        of_consumers: &consumer::Rules<'_>,
    ) -> Outcome {
        if let Some(outcome) = self.leave_consumers(leave, ticket, of_consumers) {
            return outcome;
        }
        let classic = self.groups.get_mut(&leave.group).and_then(|group| group.kind.classic_mut());
        let Some(classic) = classic else {
            let members = leave.members.iter();
            let answers = members.map(|member| left(member, ErrorCode::UnknownMemberId)).collect();
            return Outcome::answer(ticket, Answer::Leave(Ok(answers)));
        };
        let now = of_consumers.now;
        let mut step = Step::new(&mut classic.live, &leave.group, rules, now);
        let answers: Vec<LeaveAnswer> = leave
            .members
            .iter()
            .map(|member| left(member, step.leave(member).err().unwrap_or(ErrorCode::None)))
            .collect();
        let any = answers.iter().any(|answer| answer.error == ErrorCode::None);
        step.answer(ticket, Answer::Leave(Ok(answers)));
        if any && step.live.phase != Phase::Empty {
            step.rebalance_or_complete();
        }
        step.outcome
    }
}

impl Step<'_> {
    fn sync(&mut self, sync: &Sync, ticket: Ticket) {
        match self.live.phase {
            Phase::Empty => {}
            Phase::Preparing(_) => {
                self.touch(&sync.member_id);
                let answer = SyncAnswer::failed(ErrorCode::RebalanceInProgress);
                self.answer(ticket, Answer::Sync(answer));
            }
            Phase::Completing => {
                self.note_synced(&sync.member_id);
                let member = self.live.members.get_mut(&sync.member_id);
                let displaced = member.and_then(|member| member.sync.replace(ticket));
                if let Some(displaced) = displaced {
                    // It has come again on another connection; nobody reads this one.
                    let answer = SyncAnswer::failed(ErrorCode::RebalanceInProgress);
                    self.answer(displaced, Answer::Sync(answer));
                }
                if self.live.leads(&sync.member_id) {
                    self.assign(&sync.assignments);
                }
            }
            Phase::Stable => {
                self.note_synced(&sync.member_id);
                self.touch(&sync.member_id);
                let member = self.live.members.get(&sync.member_id);
                let assignment = member.map(|member| member.assignment.clone());
                self.answer_sync(ticket, assignment.unwrap_or_default());
            }
        }
    }

    fn note_synced(&mut self, id: &str) {
        let Some(member) = self.live.members.get_mut(id) else { return };
        if !std::mem::replace(&mut member.has_synced, true) {
            self.live.unsynced -= 1;
        }
        if self.live.unsynced == 0 {
            self.stop_sync_timer();
        }
    }

    /// The leader has assigned: that is written, and told to all that wait for it.
    fn assign(&mut self, assignments: &[(Arc<str>, Bytes)]) {
        let mut by_id: HashMap<&str, &Bytes> = HashMap::with_capacity(assignments.len());
        by_id.extend(assignments.iter().map(|(id, assignment)| (&**id, assignment)));
        // Not as slices of the request, which would be kept whole.
        let of = |id: &str| by_id.get(id).map(|bytes| Bytes::copy_from_slice(bytes));
        self.write(|member| of(&member.id).unwrap_or_default());
        let waiting: Vec<_> = self
            .live
            .members
            .values_mut()
            .filter_map(|member| Some((Arc::clone(&member.id), member.sync.take()?)))
            .collect();
        for (id, ticket) in waiting {
            self.touch(&id);
            self.answer_sync(ticket, of(&id).unwrap_or_default());
        }
        self.live.undo = Some(Undo::Assignment);
    }

    fn answer_sync(&mut self, ticket: Ticket, assignment: Bytes) {
        let answer = SyncAnswer {
            error: ErrorCode::None,
            protocol_type: self.live.protocol_type.clone(),
            protocol: self.live.protocol.clone(),
            assignment,
        };
        self.answer(ticket, Answer::Sync(answer));
    }

    fn leave(&mut self, (id, instance_id): &(Arc<str>, Option<Arc<str>>)) -> Result<(), ErrorCode> {
        if id.is_empty() {
            let known = instance_id.as_ref().and_then(|instance| self.live.statics.get(instance));
            let id = known.cloned().ok_or(ErrorCode::UnknownMemberId)?;
            self.drop_member(&id);
            return Ok(());
        }
        if !self.live.pending.contains_key(id) {
            self.live.check_member(id, instance_id.as_deref())?;
        }
        self.drop_member(id);
        Ok(())
    }
}

pub(in crate::coordinator::group) fn left(
    (id, instance_id): &(Arc<str>, Option<Arc<str>>),
    error: ErrorCode,
) -> LeaveAnswer {
    LeaveAnswer { member_id: Arc::clone(id), instance_id: instance_id.clone(), error }
}
