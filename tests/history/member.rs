//! Members of groups, of both protocols: they join, are given partitions, show that they are there,
//! give partitions up, and note for each from when to when it was surely theirs.
//!
//! A member who does not know whether a commit was taken joins anew under another id, so that
//! the one on its way cannot come after a later one of its own.

use std::collections::BTreeMap;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId, JoinGroupResponse,
};

use crate::history::{Commit, Group, Log, Ns, Operation, Outcome, Own, Process, What};
use crate::link::{Link, Node};
use crate::plain::LATER;
use crate::run::{TOPICS, logs_of, now};
use crate::support::groups;
use crate::support::offsets::{self, text};
use crate::support::requests::Topic;

/// One member of a group that reads one topic.
pub struct Member {
    pub group: Group,
    topic: u8,
    is_classic: bool,
    process: Process,
    pub id: String,
    /// The generation, or the member's epoch.
    pub generation: i32,
    held: BTreeMap<Log, Held>,
    is_joined: bool,
    beaten: Instant,
    /// The broker has to be told what is held.
    is_untold: bool,
    /// What the broker wants it to hold.
    target: Option<Vec<Log>>,
}

#[derive(Clone, Copy)]
struct Held {
    since: Ns,
    until: Ns,
}

impl Member {
    pub fn new(link: &Link<'_>, group: Group, topic: u8, is_classic: bool) -> Member {
        Member {
            group,
            topic,
            is_classic,
            process: link.run.process(),
            id: String::new(),
            generation: -1,
            held: BTreeMap::new(),
            is_joined: false,
            beaten: Instant::now(),
            is_untold: false,
            target: None,
        }
    }

    /// What it has now, and since when: who regains a partition begins anew.
    pub fn held(&self) -> Vec<(Log, Ns)> {
        self.held.iter().map(|(log, held)| (*log, held.since)).collect()
    }

    /// Whether it is to give something up, once it has committed what it has read.
    pub fn is_asked_to_give_up(&self) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| self.held.keys().any(|log| !target.contains(log)))
    }

    /// Joins if it has to; shows that it is there if it is time; takes what it is given.
    pub fn tick(&mut self, link: &mut Link<'_>) {
        if self.is_classic {
            if !self.is_joined || self.target.is_some() {
                self.give_up(link, |_| true);
                self.target = None;
                self.is_joined = self.join(link).unwrap_or(false);
            } else if self.beaten.elapsed() >= BEAT {
                self.beat(link);
            }
        } else {
            self.settle(link);
            if !self.is_joined || self.is_untold || self.beaten.elapsed() >= BEAT {
                self.beat_with_epoch(link);
                if !self.is_asked_to_give_up() {
                    self.settle(link);
                }
            }
        }
    }

    /// Something that only the owner is granted was asked for at this time, and granted.
    pub fn confirm(&mut self, log: Log, asked: Ns) {
        if let Some(held) = self.held.get_mut(&log) {
            held.until = held.until.max(asked);
        }
    }

    /// It is no member any more, or does not know.
    pub fn lose(&mut self, link: &Link<'_>) {
        self.give_up(link, |_| true);
        self.is_joined = false;
        self.target = None;
        self.id.clear();
        self.process = link.run.process();
    }

    /// Tells the broker that it goes.
    pub fn leave(&mut self, link: &mut Link<'_>) {
        if self.is_classic {
            let request = groups::leave(5, &self.group.name(), &self.id, None);
            let _ = link.attempt(Node::OfGroup(self.group), 5, &request);
        } else {
            let request = self.heartbeat(-1);
            let _ = link.attempt(Node::OfGroup(self.group), 1, &request);
        }
        self.lose(link);
    }

    /// What a code in answer to a commit says about its membership.
    pub fn hear(&mut self, link: &Link<'_>, code: i16) {
        match code {
            REBALANCE_IN_PROGRESS => self.target = Some(Vec::new()),
            // The next heartbeat brings the new epoch.
            STALE_MEMBER_EPOCH => self.is_untold = true,
            code if LOST.contains(&code) => self.lose(link),
            _ => {}
        }
    }

    fn give_up(&mut self, link: &Link<'_>, which: impl Fn(Log) -> bool) {
        let (process, group) = (self.process, self.group);
        let generation = self.is_classic.then_some(self.generation);
        let mut left = BTreeMap::new();
        for (log, Held { since, until }) in std::mem::take(&mut self.held) {
            if !which(log) {
                left.insert(log, Held { since, until });
                continue;
            }
            let what = What::Own(Own { group, log, generation, until });
            link.run.note_all([Operation { process, invoked: since, done: since, what }]);
        }
        self.held = left;
    }

    fn take(&mut self, log: Log) {
        let since = now();
        self.held.entry(log).or_insert(Held { since, until: since });
    }

    /// One round of a classic rebalance; whether it came to an assignment.
    fn join(&mut self, link: &mut Link<'_>) -> io::Result<bool> {
        let name = self.group.name();
        let mut request = groups::join(9, &name, &self.id);
        request.session_timeout_ms = SESSION_MS;
        request.rebalance_timeout_ms = REBALANCE_MS;
        let topic = TOPICS[usize::from(self.topic)].0;
        request.protocols[0].metadata = groups::subscription(topic);
        let joined = link.attempt(Node::OfGroup(self.group), 9, &request)?;
        match joined.error_code {
            0 => {}
            MEMBER_ID_REQUIRED => {
                self.id = joined.member_id.to_string();
                return Ok(false);
            }
            code => {
                self.refused(link, "JoinGroup", code);
                return Ok(false);
            }
        }
        self.id = joined.member_id.to_string();
        self.generation = joined.generation_id;
        let mut request = groups::sync(5, &name, (&self.id, self.generation), &[]);
        if joined.leader == joined.member_id {
            request.assignments = self.divide(&joined);
        }
        let synced = link.attempt(Node::OfGroup(self.group), 5, &request)?;
        if synced.error_code != 0 {
            self.refused(link, "SyncGroup", synced.error_code);
            return Ok(false);
        }
        for partition in partitions_of(synced.assignment) {
            self.take(Log { topic: self.topic, partition });
        }
        self.beaten = Instant::now();
        Ok(true)
    }

    /// Partitions in turn to members, as a leader does it.
    fn divide(&self, joined: &JoinGroupResponse) -> Vec<SyncGroupRequestAssignment> {
        let count = joined.members.len();
        let members = joined.members.iter().enumerate().map(|(place, member)| {
            let own = logs_of(self.topic).filter(|log| usize::from(log.partition) % count == place);
            let own: Vec<i32> = own.map(Log::index).collect();
            SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(assignment(TOPICS[usize::from(self.topic)].0, &own))
        });
        members.collect()
    }

    fn beat(&mut self, link: &mut Link<'_>) {
        let request = groups::heartbeat(&self.group.name(), &self.id, self.generation);
        let invoked = now();
        self.beaten = Instant::now();
        let Ok(answer) = link.attempt(Node::OfGroup(self.group), 4, &request) else { return };
        match answer.error_code {
            0 => self.held.values_mut().for_each(|held| held.until = invoked),
            code => self.refused(link, "Heartbeat", code),
        }
    }

    fn refused(&mut self, link: &mut Link<'_>, what: &'static str, code: i16) {
        link.run.code(what, code);
        if LATER.contains(&code) {
            link.later(code);
        } else if code == REBALANCE_IN_PROGRESS || LOST.contains(&code) {
            self.hear(link, code);
        } else {
            link.run.fault(format!("{what} of {:?}: {code}", self.group));
        }
    }

    /// A heartbeat of the consumer protocol.
    fn heartbeat(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.group.name())))
            .with_member_id(text(&self.id))
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None)
    }

    fn beat_with_epoch(&mut self, link: &mut Link<'_>) {
        let name = TOPICS[usize::from(self.topic)].0;
        let Some(topic_id) = link.topic_id(name) else { return };
        if !self.is_joined && self.id.is_empty() {
            self.id = format!("member-{}", self.process.0);
        }
        let mut request = self.heartbeat(if self.is_joined { self.generation } else { 0 });
        if !self.is_joined || self.is_untold {
            let own = TopicPartitions::default()
                .with_topic_id(topic_id)
                .with_partitions(self.held.keys().map(|log| log.index()).collect());
            let own = if self.held.is_empty() { Vec::new() } else { vec![own] };
            request = request
                .with_rebalance_timeout_ms(REBALANCE_MS)
                .with_subscribed_topic_names(Some(vec![Topic::named(name).wire_name()]))
                .with_topic_partitions(Some(own));
        }
        let invoked = now();
        self.beaten = Instant::now();
        let answer = link.attempt(Node::OfGroup(self.group), 1, &request);
        // Whatever was told in an answer that is lost, is told again to who tells all.
        self.is_untold = answer.is_err();
        let Ok(answer) = answer else { return };
        match answer.error_code {
            0 => self.told(&answer, invoked),
            code => self.refused(link, "ConsumerGroupHeartbeat", code),
        }
    }

    fn told(&mut self, answer: &ConsumerGroupHeartbeatResponse, invoked: Ns) {
        self.is_joined = true;
        self.generation = answer.member_epoch;
        self.held.values_mut().for_each(|held| held.until = invoked);
        if let Some(assignment) = &answer.assignment {
            let given = assignment.topic_partitions.iter().flat_map(|topic| &topic.partitions);
            let topic = self.topic;
            let given = given.map(|&index| Log { topic, partition: index as u8 });
            self.target = Some(given.collect());
        }
    }

    /// Holds what the broker wants it to hold.
    fn settle(&mut self, link: &Link<'_>) {
        let Some(target) = self.target.take() else { return };
        self.is_untold |= self.held.keys().any(|log| !target.contains(log));
        self.give_up(link, |log| !target.contains(&log));
        self.is_untold |= target.iter().any(|log| !self.held.contains_key(log));
        target.into_iter().for_each(|log| self.take(log));
    }

    /// Commits the offset of a partition that it holds.
    pub fn commit(&mut self, link: &mut Link<'_>, log: Log, offset: i64) {
        let topic = Topic::named(log.name());
        let mut request = offsets::commit(9, &self.group.name(), &topic, log.index(), offset);
        request.0.member_id = text(&self.id);
        request.0.generation_id_or_member_epoch = self.generation;
        let invoked = now();
        let answer = link.attempt(Node::OfGroup(self.group), 9, &request);
        let code = answer.ok().map(|answer| answer.topics[0].partitions[0].error_code);
        let outcome = match code {
            None => Outcome::Unknown,
            Some(0) => Outcome::Ok,
            Some(_) => Outcome::Refused,
        };
        let (group, transaction) = (self.group, None);
        let commit = Commit { group, log, offset, transaction, outcome };
        link.run.note(self.process, invoked, What::Commit(commit));
        match code {
            None => self.lose(link),
            Some(0) => self.confirm(log, invoked),
            Some(STALE_MEMBER_EPOCH) => self.is_untold = true,
            Some(code) => self.refused(link, "OffsetCommit", code),
        }
    }
}

/// What a group has committed in a partition; asks until it is told or the run ends.
pub fn committed(link: &mut Link<'_>, group: Group, log: Log, process: Process) -> Option<i64> {
    let topic = Topic::named(log.name());
    let mut request = offsets::fetch(9, &group.name(), &topic, &[log.index()]);
    request.0.require_stable = true;
    while !link.run.is_over() {
        let invoked = now();
        let Ok(answer) = link.attempt(Node::OfGroup(group), 9, &request) else {
            sleep(Duration::from_millis(20));
            continue;
        };
        let of_group = &answer.groups[0];
        let found = of_group.topics.first().map(|topic| &topic.partitions[0]);
        let code = match found {
            Some(found) if of_group.error_code == 0 => found.error_code,
            _ => of_group.error_code,
        };
        if code == 0 {
            let offset = found.map_or(-1, |found| found.committed_offset);
            link.run.note(process, invoked, What::Committed { group, log, offset });
            return Some(offset);
        }
        link.run.code("OffsetFetch", code);
        if code != UNSTABLE_OFFSET_COMMIT && !LATER.contains(&code) {
            link.run.fault(format!("OffsetFetch of {group:?}: {code}"));
            return None;
        }
        link.later(code);
    }
    None
}

/// A consumer's assignment of partitions of one topic.
fn assignment(topic: &str, partitions: &[i32]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_i16(i16::try_from(topic.len()).expect("short"));
    bytes.put_slice(topic.as_bytes());
    bytes.put_i32(partitions.len() as i32);
    partitions.iter().for_each(|&partition| bytes.put_i32(partition));
    bytes.put_i32(-1);
    bytes.into()
}

/// The partitions in it.
fn partitions_of(mut assignment: Bytes) -> Vec<u8> {
    if assignment.is_empty() {
        return Vec::new();
    }
    assert_eq!((assignment.get_i16(), assignment.get_i32()), (1, 1), "version and topics");
    let name = assignment.get_i16();
    assignment.advance(name as usize);
    (0..assignment.get_i32()).map(|_| assignment.get_i32() as u8).collect()
}

const BEAT: Duration = Duration::from_millis(200);
const SESSION_MS: i32 = 2_000;
/// A request waits no longer.
const REBALANCE_MS: i32 = 1_500;
const MEMBER_ID_REQUIRED: i16 = 79;
pub const REBALANCE_IN_PROGRESS: i16 = 27;
pub const STALE_MEMBER_EPOCH: i16 = 113;
const UNSTABLE_OFFSET_COMMIT: i16 = 88;
/// UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_MEMBER_EPOCH.
pub const LOST: &[i16] = &[25, 22, 110];
