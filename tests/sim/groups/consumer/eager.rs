//! Processes of a group of both protocols that speak the classic one, and give up all that they
//! have before they join.
//!
//! Owns what such a process does instead of heartbeats of KIP-848: while nobody speaks that, one of
//! them leads and assigns the first topic, and otherwise the broker assigns. What they have is told
//! to the oracle as what members of KIP-848 have is, so that nobody is given what one of the other
//! protocol surely has.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{GroupId, JoinGroupResponse, SyncGroupRequest};
use ringlog::coordinator::group::classic::subscription::{Assignment, assignment};
use ringlog::ids::TopicId;

use super::{Interval, Member, Process, Sense, UNKNOWN_MEMBER_ID, sense};
use crate::groups::classic::SESSION_MS;
use crate::groups::member::Client;
use crate::groups::{FIRST_TOPIC, partitions_of, topic_of};
use crate::support::groups::{heartbeat, join, leave, subscription};
use crate::support::offsets::text;

/// What a process knows of its generation, besides what it has.
#[derive(Clone, Default)]
pub(super) struct Eager {
    has_synced: bool,
    /// It has synced with the broker that there is now. One that is loading answers every heartbeat
    /// as if its sender were a member, as Kafka does.
    is_known: bool,
    /// What the leader assigns.
    to_assign: Vec<(String, Bytes)>,
    /// How many partitions there were when it joined as the leader.
    led: Option<i32>,
    /// A join of it could still be under way when it joined. Taken after its sync, that may have
    /// given it more; it is asked to sync again then, or removed, unless a crash forgets it.
    may_have_more: bool,
    tries: u32,
}

impl Process {
    /// The same process, speaking the classic protocol: its member id is given to it.
    pub fn speaking_classic(self) -> Process {
        Process { member_id: String::new(), eager: Some(Eager::default()), ..self }
    }

    /// The broker is another.
    pub(super) fn boot_eagerly(&mut self) {
        if let Some(eager) = &mut self.eager {
            eager.is_known = false;
        }
    }

    /// Whether it does.
    pub fn speaks_classic(&self) -> bool {
        self.eager.is_some()
    }

    /// Whether the broker may have given it more than it knows of, without anybody at fault.
    pub fn may_have_more(&self) -> bool {
        self.eager.as_ref().is_some_and(|eager| eager.may_have_more)
    }

    /// It has nothing any more, though it may still be in its generation.
    fn give_up(&mut self, client: &Client) {
        let all: Vec<_> = self.owned.keys().copied().collect();
        self.remember(client, &all, false);
        let who = self.who();
        client.around.oracle.borrow_mut().owners.keeps(&client.group, &who, &|_, _| false);
        self.epoch = 0;
        self.sure_until_ns = 0;
        self.eager = Some(Eager::default());
    }
}

impl Member {
    pub(super) async fn step_eagerly(&mut self, process: &Process, eager: &Eager) {
        if process.epoch == 0 {
            return self.join(process).await;
        }
        if !eager.has_synced {
            return self.sync(process, eager).await;
        }
        if self.client.is_calm() {
            self.client.caller.pause(100).await;
            return match self.client.caller.random.below(8) {
                0 => self.commit(process).await,
                _ => self.beat(process, eager).await,
            };
        }
        match self.client.caller.random.below(100) {
            0..25 => self.beat(process, eager).await,
            25..35 => self.commit(process).await,
            35..60 => self.client.caller.pause(60).await,
            60..68 => self.commit_stale(process).await,
            68..72 => self.leave_eagerly(process).await,
            72..75 => self.be_silent().await,
            75..78 => self.die(),
            _ => self.client.caller.pause(30).await,
        }
    }

    async fn join(&mut self, process: &Process) {
        let version = [3, 4, 6, 9][self.client.caller.random.index(4)];
        let mut request = join(version, &self.client.group, &process.member_id)
            .with_session_timeout_ms(SESSION_MS as i32)
            .with_rebalance_timeout_ms(REBALANCE_MS);
        request.protocols[0].metadata = subscription(FIRST_TOPIC);
        self.client.caller.toss();
        let copied = self.client.caller.copied;
        let answer = self.client.ask(version, &request).await;
        // A copy that comes later says that it has nothing, when it has something again.
        if (answer.is_none() || copied) && !process.member_id.is_empty() {
            self.change(|process, _| process.doubtful = true);
        }
        let Some(answer) = answer else { return self.client.caller.pause(20).await };
        let code = answer.error_code;
        self.client
            .say(|| format!("joined, {code}: {} in {}", answer.member_id, answer.generation_id));
        match sense(code) {
            Sense::Good => self.joined(&answer),
            Sense::Refused(MEMBER_ID_REQUIRED) => {
                let id = answer.member_id.to_string();
                self.change(|process, _| process.member_id = id);
            }
            Sense::Refused(UNKNOWN_MEMBER_ID) => self.is_unknown(),
            Sense::Refused(REBALANCE_IN_PROGRESS) | Sense::Unknown => {
                self.client.caller.pause(20).await;
            }
            Sense::Refused(_) => self.client.violated(format!("a join is refused with {code}")),
        }
    }

    fn joined(&mut self, answer: &JoinGroupResponse) {
        let leads = answer.leader == answer.member_id;
        let partitions = partitions_of(&self.client.caller.cluster, FIRST_TOPIC);
        let count = answer.members.len();
        let mut eager = Eager {
            led: leads.then_some(partitions),
            may_have_more: self.place.borrow().doubtful,
            ..Eager::default()
        };
        for (at, member) in answer.members.iter().enumerate() {
            let own = (0..partitions).filter(|partition| *partition as usize % count == at);
            let own =
                assignment(&subscription(FIRST_TOPIC), &vec![(FIRST_TOPIC.into(), own.collect())]);
            eager.to_assign.push((member.member_id.to_string(), own));
        }
        let (id, generation) = (answer.member_id.to_string(), answer.generation_id);
        self.change(|process, _| {
            process.member_id = id;
            process.epoch = generation;
            process.eager = Some(eager);
        });
    }

    async fn sync(&mut self, process: &Process, eager: &Eager) {
        let version = self.client.caller.random.index(6) as i16;
        let assignments = eager.to_assign.iter().map(|(id, assignment)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(id))
                .with_assignment(assignment.clone())
        });
        let mut request = SyncGroupRequest::default()
            .with_group_id(GroupId(text(&self.client.group)))
            .with_generation_id(process.epoch)
            .with_member_id(text(&process.member_id))
            .with_assignments(assignments.collect());
        if version >= 5 {
            request.protocol_type = Some(text("consumer"));
            request.protocol_name = Some(text("range"));
        }
        let sent_ns = self.client.caller.runtime.now().0;
        let answer = self.client.ask(version, &request).await;
        let Some(answer) = answer else { return self.try_again_or_join().await };
        match sense(answer.error_code) {
            Sense::Good => self.synced(sent_ns, &answer.assignment),
            Sense::Unknown => self.try_again_or_join().await,
            Sense::Refused(code) => self.lost(code, "a sync"),
        }
    }

    fn synced(&mut self, sent_ns: u64, assignment: &Bytes) {
        let Some(read) = Assignment::read(assignment) else {
            return self.client.violated(format!("{assignment:?} is no assignment"));
        };
        let mut assigned: BTreeSet<(TopicId, i32)> = BTreeSet::new();
        for (name, partitions) in read.partitions {
            let id = TopicId::from(topic_of(&self.client.caller.cluster, &name).id);
            assigned.extend(partitions.into_iter().map(|partition| (id, partition)));
        }
        self.client.say(|| format!("has {assigned:?}"));
        self.client.around.oracle.borrow_mut().counts.given_eagerly += 1;
        let before = self.place.borrow().clone();
        self.take(&before, &assigned, self.interval(sent_ns));
        self.heard_of(sent_ns);
        self.change(|process, _| {
            if let Some(eager) = &mut process.eager {
                eager.has_synced = true;
                eager.is_known = true;
                eager.to_assign.clear();
            }
        });
    }

    /// When a request was sent that has just been answered.
    fn interval(&self, sent_ns: u64) -> Interval {
        let answered_ns = self.client.caller.runtime.now().0;
        Interval { sent_ns, answered_ns, session_ns: (SESSION_MS - 1) * 1_000_000 }
    }

    /// The coordinator has heard of it, and keeps it as long as a session lasts.
    fn heard_of(&mut self, sent_ns: u64) {
        let process = self.place.borrow().clone();
        let at = self.interval(sent_ns);
        let session_ns = if process.doubtful { 0 } else { at.session_ns };
        let mut oracle = self.client.around.oracle.borrow_mut();
        let heard = Interval { session_ns, ..at };
        oracle.owners.heard(&self.client.group, &process.who(), process.epoch, heard);
        drop(oracle);
        self.change(|process, _| process.sure_until_ns = sent_ns + session_ns);
    }

    async fn try_again_or_join(&mut self) {
        self.change(|process, client| {
            let tries = process.eager.as_mut().map_or(0, |eager| {
                eager.tries += 1;
                eager.tries
            });
            if tries > 3 {
                process.give_up(client);
            }
        });
        self.client.caller.pause(20).await;
    }

    async fn beat(&mut self, process: &Process, eager: &Eager) {
        let version = self.client.caller.random.index(5) as i16;
        let request = heartbeat(&self.client.group, &process.member_id, process.epoch);
        let sent_ns = self.client.caller.runtime.now().0;
        let Some(answer) = self.client.ask(version, &request).await else { return };
        let now = partitions_of(&self.client.caller.cluster, FIRST_TOPIC);
        match sense(answer.error_code) {
            // There are more partitions than it has assigned.
            Sense::Good if eager.led.is_some_and(|led| led != now) => {
                self.change(|process, client| process.give_up(client));
            }
            Sense::Good if eager.is_known => self.heard_of(sent_ns),
            Sense::Good => {}
            Sense::Unknown => {}
            Sense::Refused(code) => {
                let commits =
                    code == REBALANCE_IN_PROGRESS && self.client.caller.random.chance(1, 2);
                if commits {
                    self.commit(process).await;
                }
                self.lost(code, "a heartbeat");
            }
        }
    }

    async fn leave_eagerly(&mut self, process: &Process) {
        let version = self.client.caller.random.index(6) as i16;
        let request = leave(version, &self.client.group, &process.member_id, None);
        self.client.say(|| "leaves".to_owned());
        self.change(|process, client| process.abandon(client));
        let answer = self.client.ask(version, &request).await;
        let left = answer.is_some_and(|answer| answer.error_code == 0);
        self.client.around.oracle.borrow_mut().counts.left += u64::from(left);
        self.begin_anew();
        self.client.caller.pause(100).await;
    }

    /// A code that takes its generation from it.
    fn lost(&mut self, code: i16, what: &str) {
        self.client.say(|| format!("{what} is refused with {code}"));
        match code {
            ILLEGAL_GENERATION | REBALANCE_IN_PROGRESS => {
                self.change(|process, client| process.give_up(client));
            }
            UNKNOWN_MEMBER_ID => self.is_unknown(),
            _ => self.client.violated(format!("{what} is refused with {code}")),
        }
    }

    fn is_unknown(&mut self) {
        self.client.around.oracle.borrow_mut().counts.fenced += 1;
        self.change(|process, client| {
            process.abandon(client);
            process.give_up(client);
            // What is under way is of a member that is none.
            process.member_id.clear();
            process.doubtful = false;
        });
    }
}

/// How long a rebalance waits for those who have not joined; longer than a session.
const REBALANCE_MS: i32 = 500;

const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;
