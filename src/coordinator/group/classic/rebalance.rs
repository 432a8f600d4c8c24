//! From one generation to the next.
//!
//! Owns [`Step`], one operation on one group: when a rebalance begins, how long it waits for
//! members, what the next generation is, and what happens when timers come. Who did not join in
//! time is dropped, but for static members.

use std::sync::Arc;

use bytes::Bytes;

use super::{InitialDelay, Live, Member, Phase, Rules, Undo};
use crate::coordinator::group::outcome::{
    Answer, JoinAnswer, Now, Outcome, SyncAnswer, Ticket, TimerKey, Timers,
};
use crate::coordinator::group::record::GroupRecord;
use crate::coordinator::group::{Groups, Kind};
use crate::error_code::ErrorCode;

/// One operation on one group.
pub(super) struct Step<'a> {
    pub live: &'a mut Live,
    pub group: &'a Arc<str>,
    pub rules: &'a Rules,
    pub now: Now,
    pub outcome: Outcome,
}

impl Groups {
    /// A timer of a group has come.
    pub fn timer(&mut self, group: &Arc<str>, key: &TimerKey, rules: &Rules, now: Now) -> Outcome {
        let classic = self.groups.get_mut(group).and_then(|group| group.kind.classic_mut());
        let Some(classic) = classic else { return Outcome::default() };
        let mut step = Step::new(&mut classic.live, group, rules, now);
        match key {
            TimerKey::Session(member) => step.session_due(member),
            TimerKey::Join => step.join_due(),
            TimerKey::Sync => step.sync_due(),
            TimerKey::Consumer(_) => {}
        }
        step.outcome
    }

    /// The records of an operation on this group could not be appended, for `code`. Its answers
    /// are told that by the shell; here the group takes back what it began. One that is not in the
    /// log at all is no longer there.
    pub fn not_written(
        &mut self,
        id: &Arc<str>,
        code: ErrorCode,
        rules: &Rules,
        now: Now,
    ) -> Outcome {
        let Some(group) = self.groups.get_mut(id) else { return Outcome::default() };
        let Some(classic) = group.kind.classic_mut() else { return Outcome::default() };
        let before = classic.before.take();
        let is_new = classic.stored.is_none() && (group.topics.is_empty() || before.is_some());
        let mut step = Step::new(&mut classic.live, id, rules, now);
        if is_new {
            step.end(code);
        } else {
            match step.live.undo.take() {
                Some(Undo::Assignment) => step.prepare_rebalance(),
                Some(Undo::Replacement { new_id, old }) => step.take_back(&new_id, *old),
                None => {}
            }
        }
        let outcome = step.outcome;
        match before {
            Some(before) => group.kind = Kind::Consumer(before),
            None if is_new => drop(self.groups.remove(id)),
            None => {}
        }
        outcome
    }
}

impl<'a> Step<'a> {
    pub fn new(live: &'a mut Live, group: &'a Arc<str>, rules: &'a Rules, now: Now) -> Step<'a> {
        Step { live, group, rules, now, outcome: Outcome::default() }
    }

    pub fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.outcome.answers.push((ticket, answer));
    }

    pub fn set_timer(&mut self, key: TimerKey, due_ms: Option<i64>) {
        self.outcome.timers.push((key, due_ms));
    }

    pub fn touch(&mut self, id: &str) {
        self.live.touch(id, self.now, &mut self.outcome.timers);
    }

    /// Writes the group as it is, with these assignments.
    pub fn write(&mut self, assignment_of: impl Fn(&Member) -> Bytes) {
        let metadata = Arc::new(self.live.metadata(assignment_of));
        self.outcome.records.push(GroupRecord::Classic(Arc::clone(self.group), metadata));
    }

    /// A member, or who was to become one, is no longer there. Whoever waits for it is told to
    /// begin anew.
    pub fn drop_member(&mut self, id: &str) {
        if let Some((id, _)) = self.live.pending.remove_entry(id) {
            self.set_timer(TimerKey::Session(id), None);
        }
        if let Some(mut member) = self.live.remove(id) {
            self.outcome.answers.extend(member.take_answers(ErrorCode::UnknownMemberId));
            self.set_timer(TimerKey::Session(member.id), None);
        }
    }

    pub fn rebalance_or_complete(&mut self) {
        match self.live.phase {
            Phase::Preparing(_) => self.complete_if_joined(),
            Phase::Empty | Phase::Completing | Phase::Stable => self.prepare_rebalance(),
        }
    }

    /// The next generation begins if all have joined, unless more are waited for anyway.
    pub fn complete_if_joined(&mut self) {
        if self.live.phase == Phase::Preparing(None) && self.live.have_all_joined() {
            self.complete_join();
        }
    }

    pub fn prepare_rebalance(&mut self) {
        if self.live.phase == Phase::Completing {
            self.cancel_syncs();
        }
        self.stop_sync_timer();
        let initial = self.live.phase == Phase::Empty;
        if initial {
            let delay_ms = self.rules.initial_delay_ms;
            let remaining_ms = (self.live.rebalance_timeout_ms() - delay_ms).max(0);
            let delay = InitialDelay { delay_ms, remaining_ms, has_new: false };
            self.enter(Phase::Preparing(Some(delay)));
            self.start_join_timer(delay_ms);
            return;
        }
        self.enter(Phase::Preparing(None));
        if self.live.have_all_joined() {
            self.complete_join();
        } else {
            self.start_join_timer(self.live.rebalance_timeout_ms());
        }
    }

    /// Waiting is over: the next generation begins with those that have joined.
    pub fn complete_join(&mut self) {
        self.stop_join_timer();
        let is_late = |member: &&Member| member.join.is_none() && member.instance_id.is_none();
        let late: Vec<Arc<str>> = self
            .live
            .members
            .values()
            .filter(is_late)
            .map(|member| Arc::clone(&member.id))
            .collect();
        for id in late {
            self.drop_member(&id);
        }
        if !self.live.elect_leader() && !self.live.members.is_empty() {
            // Only static members that have not come back: on until their sessions end.
            self.start_join_timer(self.live.rebalance_timeout_ms());
            return;
        }
        self.live.generation = self.live.generation.checked_add(1).unwrap_or(0);
        self.live.protocol = self.live.choose_protocol();
        self.live.subscribed = self.live.read_subscriptions();
        if self.live.members.is_empty() {
            self.enter(Phase::Empty);
            self.write(|_| Bytes::new());
        } else {
            self.enter(Phase::Completing);
            self.answer_joins();
            let timeout_ms = self.live.rebalance_timeout_ms();
            self.live.sync_due_ms = Some(self.now.ms + timeout_ms);
            self.set_timer(TimerKey::Sync, self.live.sync_due_ms);
        }
    }

    fn answer_joins(&mut self) {
        let ids: Vec<Arc<str>> = self.live.members.keys().cloned().collect();
        self.live.unsynced = ids.len();
        for id in ids {
            let mut answer = self.live.current_answer(&id);
            if self.live.leads(&id) {
                answer.members = self.live.joined_members();
            }
            self.touch(&id);
            let Some(member) = self.live.members.get_mut(&id) else { continue };
            member.is_new = false;
            member.has_synced = false;
            if let Some(ticket) = member.join.take() {
                self.live.joined -= 1;
                self.answer(ticket, Answer::Join(Box::new(answer)));
            }
        }
    }

    /// Whoever waits for an assignment has to join again.
    fn cancel_syncs(&mut self) {
        let mut told = Vec::new();
        for member in self.live.members.values_mut() {
            member.assignment = Bytes::new();
            if let Some(ticket) = member.sync.take() {
                let answer = SyncAnswer::failed(ErrorCode::RebalanceInProgress);
                self.outcome.answers.push((ticket, Answer::Sync(answer)));
                told.push(Arc::clone(&member.id));
            }
        }
        for id in told {
            self.touch(&id);
        }
    }

    fn take_back(&mut self, new_id: &str, old: Member) {
        let leads = self.live.leads(new_id);
        self.drop_member(new_id);
        let id = Arc::clone(&old.id);
        self.live.add(Member { session: super::Session::default(), ..old });
        if leads {
            self.live.leader = Some(Arc::clone(&id));
        }
        self.touch(&id);
    }

    /// The group is no longer there: whoever waits is told `code`.
    fn end(&mut self, code: ErrorCode) {
        self.stop_join_timer();
        self.stop_sync_timer();
        for id in std::mem::take(&mut self.live.pending).into_keys() {
            self.set_timer(TimerKey::Session(id), None);
        }
        for (id, mut member) in std::mem::take(&mut self.live.members) {
            self.outcome.answers.extend(member.take_answers(code));
            self.set_timer(TimerKey::Session(id), None);
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.live.phase = phase;
        self.live.since_ms = Some(self.now.wall_ms);
    }

    fn start_join_timer(&mut self, delay_ms: i64) {
        self.live.join_due_ms = Some(self.now.ms + delay_ms);
        self.set_timer(TimerKey::Join, self.live.join_due_ms);
    }

    fn stop_join_timer(&mut self) {
        if self.live.join_due_ms.take().is_some() {
            self.set_timer(TimerKey::Join, None);
        }
    }

    pub fn stop_sync_timer(&mut self) {
        if self.live.sync_due_ms.take().is_some() {
            self.set_timer(TimerKey::Sync, None);
        }
    }

    fn join_due(&mut self) {
        if self.live.join_due_ms.is_none_or(|due_ms| due_ms > self.now.ms) {
            return;
        }
        match self.live.phase {
            // Another came while it waited: a little longer.
            Phase::Preparing(Some(delay)) if delay.has_new && delay.remaining_ms > 0 => {
                let next_ms = self.rules.initial_delay_ms.min(delay.remaining_ms);
                self.live.phase = Phase::Preparing(Some(InitialDelay {
                    delay_ms: next_ms,
                    remaining_ms: (delay.remaining_ms - delay.delay_ms).max(0),
                    has_new: false,
                }));
                self.start_join_timer(next_ms);
            }
            Phase::Preparing(_) => self.complete_join(),
            Phase::Empty | Phase::Completing | Phase::Stable => {}
        }
    }

    fn sync_due(&mut self) {
        if self.live.sync_due_ms.is_none_or(|due_ms| due_ms > self.now.ms) {
            return;
        }
        self.live.sync_due_ms = None;
        let missing = self.live.members.values().filter(|member| !member.has_synced);
        let missing: Vec<Arc<str>> = missing.map(|member| Arc::clone(&member.id)).collect();
        for id in &missing {
            self.drop_member(id);
        }
        if !missing.is_empty() {
            self.prepare_rebalance();
        }
    }

    fn session_due(&mut self, id: &Arc<str>) {
        let now_ms = self.now.ms;
        let pending = self.live.pending.get_mut(id);
        let member = self.live.members.get_mut(id);
        let is_satisfied = member.as_ref().is_some_and(|member| {
            !member.is_new && (member.join.is_some() || member.sync.is_some())
        });
        let session = pending.or(member.map(|member| &mut member.session));
        let Some(session) = session else { return };
        session.timer_ms = None;
        if session.due_ms > now_ms {
            let timer = session.set(session.due_ms);
            return self.set_timer(TimerKey::Session(Arc::clone(id)), timer);
        }
        if is_satisfied {
            // Its session begins again with the answer it waits for.
            return;
        }
        let was_member = self.live.members.contains_key(id);
        self.drop_member(id);
        match self.live.phase {
            Phase::Preparing(_) if self.live.have_all_joined() => self.complete_join(),
            Phase::Completing | Phase::Stable if was_member => self.prepare_rebalance(),
            _ => {}
        }
    }
}

impl Member {
    /// Whoever waits for this member is told `code`.
    pub fn take_answers(&mut self, code: ErrorCode) -> Vec<(Ticket, Answer)> {
        let id = match code {
            ErrorCode::FencedInstanceId | ErrorCode::RebalanceInProgress => Arc::clone(&self.id),
            _ => "".into(),
        };
        let join = self.join.take().map(|ticket| {
            (ticket, Answer::Join(Box::new(JoinAnswer::failed(code, Arc::clone(&id)))))
        });
        let sync = self.sync.take();
        let sync = sync.map(|ticket| (ticket, Answer::Sync(SyncAnswer::failed(code))));
        join.into_iter().chain(sync).collect()
    }
}

impl Live {
    pub fn have_all_joined(&self) -> bool {
        self.joined == self.members.len() && self.pending.is_empty()
    }

    /// Longest time that a member may take to join again.
    pub fn rebalance_timeout_ms(&self) -> i64 {
        let longest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        i64::from(longest.unwrap_or(0).max(0))
    }

    /// Keeps the leader if it has joined, or takes another; `false` if nobody has.
    fn elect_leader(&mut self) -> bool {
        let Some(leader) = self.leader.as_ref().and_then(|id| self.members.get(id)) else {
            return false;
        };
        if leader.join.is_some() {
            return true;
        }
        let first = self.members.values().find(|member| member.join.is_some());
        let Some(first) = first.map(|member| Arc::clone(&member.id)) else { return false };
        self.leader = Some(first);
        true
    }

    /// Waits for all members to join, without anybody having asked for that.
    pub fn wait_for_all(&mut self, now: Now, timers: &mut Timers) {
        self.phase = Phase::Preparing(None);
        self.join_due_ms = Some(now.ms + self.rebalance_timeout_ms());
        timers.push((TimerKey::Join, self.join_due_ms));
    }

    pub fn leader_id(&self) -> Arc<str> {
        self.leader.clone().unwrap_or_else(|| "".into())
    }

    /// The answer that says what generation there is now, without members.
    pub fn current_answer(&self, id: &Arc<str>) -> JoinAnswer {
        JoinAnswer {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader_id(),
            skip_assignment: false,
            member_id: Arc::clone(id),
            members: Vec::new(),
        }
    }
}
