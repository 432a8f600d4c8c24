//! JoinGroup.
//!
//! Owns who may join, with which member id, and what joining means in each phase of the group. A
//! client without a member id gets one and comes again (KIP-394); one with an instance id takes
//! the place of whoever had that (KIP-345), without a rebalance if nothing else changes.

use std::sync::Arc;

use super::rebalance::Step;
use super::{Member, NEW_MEMBER_JOIN_MS, Phase, Protocol, Rules, Session, Undo};
use crate::coordinator::group::outcome::{Answer, JoinAnswer, Outcome, Ticket, TimerKey};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::record::classic::ClassicMetadata;
use crate::coordinator::group::{Groups, consumer};
use crate::error_code::ErrorCode;

/// A JoinGroup request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The group.
    pub group: Arc<str>,
    /// Member id, empty for none yet.
    pub member_id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub client_id: Arc<str>,
    /// Where it connects from.
    pub client_host: Arc<str>,
    /// How long it may take to join again.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// What kind of group this is.
    pub protocol_type: Arc<str>,
    /// What it supports, in the order of its preference.
    pub protocols: Vec<Protocol>,
    /// Version of the request.
    pub version: i16,
    /// What a new member id ends in: nobody else's.
    pub unique: Arc<str>,
}

impl Groups {
    /// A client wants to join. The answer comes when the group's next generation begins.
    pub fn join(
        &mut self,
        join: Join,
        ticket: Ticket,
        rules: &Rules,
        of_consumers: &consumer::Rules<'_>,
    ) -> Outcome {
        let now = of_consumers.now;
        let refuse = |code| {
            let answer = JoinAnswer::failed(code, Arc::clone(&join.member_id));
            Outcome::answer(ticket, Answer::Join(Box::new(answer)))
        };
        if !(rules.session_ms_min..=rules.session_ms_max).contains(&join.session_timeout_ms) {
            return refuse(ErrorCode::InvalidSessionTimeout);
        }
        let is_new = !self.groups.contains_key(&join.group);
        if is_new && !join.member_id.is_empty() {
            return refuse(ErrorCode::UnknownMemberId);
        }
        if join.longest_id_bytes() > MEMBER_ID_BYTES_MAX {
            return refuse(ErrorCode::UnknownServerError);
        }
        if let Some(outcome) = self.join_consumers(&join, ticket, of_consumers) {
            return outcome;
        }
        let group = Arc::clone(&join.group);
        let ended = self.end_consumer_group(&group, now);
        let live = self.groups.entry(Arc::clone(&group)).or_default().as_classic(now);
        let mut step = Step::new(live, &group, rules, now);
        step.join(join, ticket);
        let mut outcome = step.outcome;
        if (is_new || !ended.is_empty()) && outcome.records.is_empty() {
            let metadata = ClassicMetadata {
                protocol_type: "".into(),
                generation: 0,
                protocol: None,
                leader: None,
                since_ms: Some(now.wall_ms),
                members: Vec::new(),
            };
            outcome.records.push(GroupRecord::Classic(group, Arc::new(metadata)));
        }
        outcome.records.splice(0..0, ended);
        outcome
    }
}

impl Join {
    fn new_member_id(&self) -> Arc<str> {
        let first = self.instance_id.as_ref().unwrap_or(&self.client_id);
        format!("{first}-{}", self.unique).into()
    }

    /// Records have no room for longer ones.
    fn longest_id_bytes(&self) -> usize {
        let instance = self.instance_id.as_ref().map_or(0, |id| id.len());
        self.client_id.len().max(instance) + 1 + self.unique.len()
    }

    fn into_member(self, id: Arc<str>, ticket: Ticket) -> Member {
        Member {
            id,
            instance_id: self.instance_id,
            client_id: self.client_id,
            client_host: self.client_host,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            protocols: self.protocols,
            assignment: bytes::Bytes::new(),
            join: Some(ticket),
            sync: None,
            is_new: true,
            has_synced: true,
            session: Session::default(),
        }
    }
}

impl Step<'_> {
    fn join(&mut self, join: Join, ticket: Ticket) {
        if !self.has_room(&join.member_id) {
            self.drop_member(&join.member_id);
            return self.refuse_join(ticket, ErrorCode::GroupMaxSizeReached, "");
        }
        if !self.live.accepts(&join.protocol_type, &join.protocols) {
            let code = ErrorCode::InconsistentGroupProtocol;
            return self.refuse_join(ticket, code, &join.member_id);
        }
        if !join.member_id.is_empty() {
            return self.join_known(join, ticket);
        }
        let new_id = join.new_member_id();
        let known = join.instance_id.as_ref().and_then(|id| self.live.statics.get(id)).cloned();
        match known {
            Some(old_id) => self.replace_static(join, ticket, &old_id, new_id),
            None if join.instance_id.is_none() && join.version >= KNOWN_ID_SINCE => {
                let mut session = Session::default();
                let timer = session.set(self.now.ms + i64::from(join.session_timeout_ms));
                self.live.pending.insert(Arc::clone(&new_id), session);
                self.set_timer(TimerKey::Session(Arc::clone(&new_id)), timer);
                self.refuse_join(ticket, ErrorCode::MemberIdRequired, &new_id);
            }
            None => self.add_member(join, new_id, ticket),
        }
    }

    /// Whether the group is not full, or full with this one. While members join, those count that
    /// have: so a group that has become too large loses the last.
    fn has_room(&self, id: &str) -> bool {
        let live = &*self.live;
        let known = live.members.get(id);
        match live.phase {
            Phase::Empty => true,
            Phase::Preparing(_) => {
                known.is_some_and(|member| member.join.is_some())
                    || live.joined < self.rules.members_max
            }
            Phase::Completing | Phase::Stable => {
                known.is_some() || live.members.len() < self.rules.members_max
            }
        }
    }

    fn refuse_join(&mut self, ticket: Ticket, code: ErrorCode, member_id: &str) {
        let answer = JoinAnswer::failed(code, member_id.into());
        self.answer(ticket, Answer::Join(Box::new(answer)));
    }

    fn join_known(&mut self, join: Join, ticket: Ticket) {
        let id = Arc::clone(&join.member_id);
        if self.live.pending.contains_key(&id) {
            if join.instance_id.is_some() {
                // A member id of this kind is never given to a static member.
                return self.refuse_join(ticket, ErrorCode::UnknownServerError, "");
            }
            return self.add_member(join, id, ticket);
        }
        if let Err(code) = self.live.check_member(&id, join.instance_id.as_deref()) {
            return self.refuse_join(ticket, code, &id);
        }
        let same = self.live.members.get(&id).is_some_and(|own| own.protocols == join.protocols);
        let leads = self.live.leads(&id);
        match self.live.phase {
            // Its answer was lost, or it has lost its own state: the generation stays.
            Phase::Completing if same => self.answer_current(ticket, &id, leads),
            Phase::Stable if same && !leads => self.answer_current(ticket, &id, false),
            // The leader joins again when what it assigns by has changed.
            _ => {
                self.update_member(&id, &join, Some(ticket));
                self.rebalance_or_complete();
            }
        }
    }

    fn add_member(&mut self, join: Join, id: Arc<str>, ticket: Ticket) {
        if let Phase::Preparing(Some(delay)) = &mut self.live.phase {
            delay.has_new = true;
        }
        if self.live.members.is_empty() {
            self.live.protocol_type = Some(Arc::clone(&join.protocol_type));
        }
        let pending = self.live.pending.remove(&id);
        let mut member = join.into_member(Arc::clone(&id), ticket);
        member.session = pending.unwrap_or_default();
        // It does not know its member id yet and cannot say that it is there.
        if let Some(timer_ms) = member.session.set(self.now.ms + NEW_MEMBER_JOIN_MS) {
            self.set_timer(TimerKey::Session(id), Some(timer_ms));
        }
        self.live.add(member);
        self.rebalance_or_complete();
    }

    /// Takes over what a member says of itself when it joins again.
    fn update_member(&mut self, id: &str, join: &Join, ticket: Option<Ticket>) {
        let Some(mut member) = self.live.members.remove(id) else { return };
        self.live.count_protocols(&member.protocols, false);
        self.live.joined -= usize::from(member.join.is_some());
        member.protocols.clone_from(&join.protocols);
        member.rebalance_timeout_ms = join.rebalance_timeout_ms;
        member.session_timeout_ms = join.session_timeout_ms;
        let displaced = std::mem::replace(&mut member.join, ticket);
        self.live.count_protocols(&member.protocols, true);
        self.live.joined += usize::from(member.join.is_some());
        self.live.members.insert(Arc::clone(&member.id), member);
        if let Some(displaced) = displaced {
            // It has come again on another connection; nobody reads this one.
            self.refuse_join(displaced, ErrorCode::RebalanceInProgress, id);
        }
    }

    /// Another client comes with the instance id of a member.
    fn replace_static(&mut self, join: Join, ticket: Ticket, old_id: &str, new_id: Arc<str>) {
        let Some(mut old) = self.live.members.remove(old_id) else { return };
        let led = self.live.leads(old_id);
        self.live.joined -= usize::from(old.join.is_some());
        for answer in old.take_answers(ErrorCode::FencedInstanceId) {
            self.outcome.answers.push(answer);
        }
        self.set_timer(TimerKey::Session(Arc::clone(&old.id)), None);
        let new = Member {
            id: Arc::clone(&new_id),
            session: Session::default(),
            is_new: false,
            ..old.clone()
        };
        if let Some(instance) = &new.instance_id {
            self.live.statics.insert(Arc::clone(instance), Arc::clone(&new_id));
        }
        self.live.members.insert(Arc::clone(&new_id), new);
        if led {
            self.live.leader = Some(Arc::clone(&new_id));
        }
        self.touch(&new_id);
        match self.live.phase {
            Phase::Stable => {
                self.update_member(&new_id, &join, None);
                if self.live.choose_protocol() != self.live.protocol {
                    self.update_member(&new_id, &join, Some(ticket));
                    return self.rebalance_or_complete();
                }
                let old_leader = if led { Arc::clone(&old.id) } else { self.live.leader_id() };
                let mut answer = self.live.current_answer(&new_id);
                if join.version < SKIP_SINCE {
                    // It would assign if it were told that it leads.
                    answer.leader = old_leader;
                } else if led {
                    answer.members = self.live.joined_members();
                    answer.skip_assignment = true;
                }
                self.answer(ticket, Answer::Join(Box::new(answer)));
                self.live.undo = Some(Undo::Replacement { new_id, old: Box::new(old) });
                self.write(|member| member.assignment.clone());
            }
            Phase::Completing => {
                self.update_member(&new_id, &join, Some(ticket));
                self.prepare_rebalance();
            }
            Phase::Empty | Phase::Preparing(_) => {
                self.update_member(&new_id, &join, Some(ticket));
                self.complete_if_joined();
            }
        }
    }

    fn answer_current(&mut self, ticket: Ticket, id: &Arc<str>, with_members: bool) {
        let mut answer = self.live.current_answer(id);
        if with_members {
            answer.members = self.live.joined_members();
        }
        self.answer(ticket, Answer::Join(Box::new(answer)));
    }
}

/// From here on a member joins with a member id that the coordinator has given it.
pub const KNOWN_ID_SINCE: i16 = 4;

/// From here on a leader can be told to keep the assignment.
const SKIP_SINCE: i16 = 9;

/// Longest text in a record.
const MEMBER_ID_BYTES_MAX: usize = i16::MAX as usize;
