//! Members of KIP-848: heartbeats that join, give up, take and leave. In a group of both protocols a
//! process may speak the classic one instead ([`eager`]), and the next in its place the other.
//!
//! Owns what a member's process knows, which outlives the broker. A partition is given up when a
//! heartbeat that says so is sent, and no earlier. After an answer that did not come the next
//! heartbeat says everything. A heartbeat that names what the member has, and may still be under
//! way, may be taken for a later one: what such a member has is not sure until the broker is
//! another. Must never hold a borrow over an await.

mod eager;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId,
};
use ringlog::ids::TopicId;

use super::member::{Client, Credentials, Sense, Stale, sense};
use super::owners::{Interval, Place as Partition, Who};
use super::{MIXED, TOPICS, topic_with_id};
use crate::support::offsets::text;
use crate::support::requests::Topic;

/// Topics that a member wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    First,
    Both,
    Pattern,
}

/// One process.
#[derive(Clone)]
pub struct Process {
    pub instance: Option<String>,
    pub member_id: String,
    /// 0 before it has joined.
    pub epoch: i32,
    pub wanted: Wanted,
    /// What it has, and how often each had been given to somebody then.
    pub owned: BTreeMap<(TopicId, i32), u64>,
    /// What it has is not what it last said.
    must_say: bool,
    /// It is not sure what it was told.
    must_say_all: bool,
    /// A heartbeat that says what it has may still be under way.
    doubtful: bool,
    /// The coordinator keeps it at least as long.
    sure_until_ns: u64,
    stale: Vec<Stale>,
    /// It speaks the classic protocol.
    eager: Option<eager::Eager>,
}

/// A process, whether alive or dead, in its place.
pub type Place = Rc<RefCell<Process>>;

/// Whoever runs a member.
pub struct Member {
    pub client: Client,
    pub place: Place,
    /// Its place was taken by another process; it goes on for so many steps.
    pub zombie_steps: Option<u64>,
    /// How long the coordinator lets it be silent.
    pub session_ms: u64,
}

impl Process {
    /// A new process.
    pub fn of(instance: Option<String>, member_id: String, wanted: Wanted) -> Process {
        Process {
            instance,
            member_id,
            epoch: 0,
            wanted,
            owned: BTreeMap::new(),
            must_say: false,
            must_say_all: false,
            doubtful: false,
            sure_until_ns: 0,
            stale: Vec::new(),
            eager: None,
        }
    }

    /// The broker is another: what was under way to the one before is not any more, and what it
    /// has answered last may not have come.
    pub fn boot(&mut self) {
        self.doubtful = false;
        self.must_say_all = true;
    }

    fn who(&self) -> Who {
        Who { member_id: self.member_id.clone(), instance: self.instance.clone() }
    }

    fn credentials(&self) -> Credentials {
        Credentials { who: self.who(), epoch: self.epoch, is_classic: self.eager.is_some() }
    }

    fn hold(&self, client: &Client, (id, partition): (TopicId, i32)) -> Option<Stale> {
        Some(Stale {
            by: self.credentials(),
            topic: topic_with_id(&client.caller.cluster, id)?,
            place: (client.group.clone(), id, partition),
            times_given: self.owned.get(&(id, partition)).copied()?,
            is_gone: false,
        })
    }

    fn remember(&mut self, client: &Client, lost: &[(TopicId, i32)], is_gone: bool) {
        for place in lost {
            let hold = self.hold(client, *place);
            self.owned.remove(place);
            self.stale.extend(hold.map(|hold| Stale { is_gone, ..hold }));
        }
        let too_many = self.stale.len().saturating_sub(STALE_MAX);
        self.stale.drain(..too_many);
    }

    /// It has nothing any more, and knows it.
    fn abandon(&mut self, client: &Client) {
        let all: Vec<_> = self.owned.keys().copied().collect();
        // A copy of its joining that comes late makes it a member again, perhaps in the same epoch:
        // a new target is not made at every join. In its epoch it may commit whatever it likes.
        self.remember(client, &all, !self.doubtful);
        let who = self.who();
        let mut oracle = client.around.oracle.borrow_mut();
        oracle.owners.keeps(&client.group, &who, &|_, _| false);
        self.epoch = 0;
        self.must_say_all = false;
        self.sure_until_ns = 0;
    }
}

impl Member {
    /// Goes on for ever, or as long as a zombie does.
    pub async fn run(mut self) {
        loop {
            if let Some(steps) = &mut self.zombie_steps {
                if *steps == 0 || self.client.is_calm() {
                    return;
                }
                *steps -= 1;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let process = self.place.borrow().clone();
        if let Some(eager) = &process.eager {
            return self.step_eagerly(&process, eager).await;
        }
        if process.epoch == 0 {
            return self.heartbeat(&process).await;
        }
        if self.client.is_calm() {
            self.client.caller.pause(100).await;
            return match self.client.caller.random.below(8) {
                0 => self.commit(&process).await,
                _ => self.heartbeat(&process).await,
            };
        }
        match self.client.caller.random.below(100) {
            0..22 => self.heartbeat(&process).await,
            22..30 => self.commit(&process).await,
            30..60 => self.client.caller.pause(60).await,
            60..68 => self.commit_stale(&process).await,
            68..72 => self.leave(&process).await,
            72..75 => self.be_silent().await,
            75..78 => self.die(),
            78..82 => self.change(|process, _| {
                process.wanted = match process.wanted {
                    Wanted::First => Wanted::Both,
                    Wanted::Both => Wanted::First,
                    Wanted::Pattern => Wanted::Pattern,
                };
                process.must_say_all = true;
            }),
            _ => self.client.caller.pause(30).await,
        }
    }

    async fn heartbeat(&mut self, process: &Process) {
        let joins = process.epoch == 0;
        let says_all = joins || process.must_say_all;
        let says = says_all || process.must_say || self.client.caller.random.chance(1, 4);
        let request = self.request(process, says_all, says);
        self.client.caller.toss();
        let mut known_epoch = process.epoch;
        {
            let mut oracle = self.client.around.oracle.borrow_mut();
            let owners = &mut oracle.owners;
            if joins {
                known_epoch = owners.epoch(&self.client.group);
            }
            if says {
                let owned =
                    |id: TopicId, partition: i32| process.owned.contains_key(&(id, partition));
                owners.keeps(&self.client.group, &process.who(), &owned);
            }
        }
        // From now on it may be taken at any time, even if its answer is lost.
        let copied = self.client.caller.copied;
        let sent_ns = self.client.caller.runtime.now().0;
        let answer = self.client.ask(1, &request).await;
        let answered_ns = self.client.caller.runtime.now().0;
        if says && (answer.is_none() || copied) {
            self.change(|process, _| process.doubtful = true);
        }
        let Some(answer) = answer else {
            self.change(|process, _| process.must_say_all = true);
            return self.client.caller.pause(20).await;
        };
        // The coordinator counts whole milliseconds.
        let session_ns = (self.session_ms - 1) * 1_000_000;
        let at = Interval { sent_ns, answered_ns, session_ns };
        match sense(answer.error_code) {
            Sense::Good => self.told(&answer, at, known_epoch, says).await,
            Sense::Unknown => {
                self.change(|process, _| process.must_say_all = true);
                self.client.caller.pause(20).await;
            }
            Sense::Refused(code) => self.refused(code, "a heartbeat").await,
        }
    }

    fn request(
        &self,
        process: &Process,
        says_all: bool,
        says: bool,
    ) -> ConsumerGroupHeartbeatRequest {
        let mut request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.client.group)))
            .with_member_id(text(&process.member_id))
            .with_member_epoch(process.epoch)
            .with_instance_id(process.instance.as_deref().map(text))
            .with_rebalance_timeout_ms(-1)
            .with_subscribed_topic_names(None)
            .with_topic_partitions(None);
        if says_all {
            request.rebalance_timeout_ms = REBALANCE_MS;
            let names = match process.wanted {
                Wanted::First => &TOPICS[..1],
                Wanted::Both => &TOPICS[..],
                Wanted::Pattern => &[],
            };
            let names = names.iter().map(|name| Topic::named(name).wire_name());
            request.subscribed_topic_names = Some(names.collect());
            if process.wanted == Wanted::Pattern {
                request.subscribed_topic_regex = Some(text("data-.*"));
            }
        }
        if says {
            let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
            for (id, partition) in process.owned.keys() {
                topics.entry(*id).or_default().push(*partition);
            }
            let topics = topics.into_iter().map(|(id, partitions)| {
                TopicPartitions::default().with_topic_id(id.into()).with_partitions(partitions)
            });
            request.topic_partitions = Some(topics.collect());
        }
        request
    }

    async fn told(
        &mut self,
        answer: &ConsumerGroupHeartbeatResponse,
        at: Interval,
        known_epoch: i32,
        said: bool,
    ) {
        let epoch = answer.member_epoch;
        self.client.say(|| format!("is in epoch {epoch}: {:?}", answer.assignment));
        if epoch < known_epoch {
            self.client.violated(format!("epoch {epoch} comes after {known_epoch}"));
        }
        let assigned = answer.assignment.as_ref().map(|assigned| {
            let topics = assigned.topic_partitions.iter();
            let places = topics.flat_map(|topic| {
                let id = TopicId::from(topic.topic_id);
                topic.partitions.iter().map(move |&partition| (id, partition))
            });
            places.collect::<BTreeSet<_>>()
        });
        let before = self.place.borrow().clone();
        if let Some(assigned) = &assigned {
            let lost: Vec<_> =
                before.owned.keys().filter(|place| !assigned.contains(*place)).copied().collect();
            if !lost.is_empty() && self.client.caller.random.chance(1, 2) {
                self.commit(&before).await;
            }
            self.client.around.oracle.borrow_mut().counts.revoked += lost.len() as u64;
            self.change(|process, client| process.remember(client, &lost, false));
            self.take(&before, assigned, at);
        }
        let changed = self.place.borrow().owned.len() != before.owned.len()
            || !self.place.borrow().owned.keys().eq(before.owned.keys());
        let sure = !before.doubtful;
        let mut oracle = self.client.around.oracle.borrow_mut();
        let session_ns = if sure { at.session_ns } else { 0 };
        let heard = Interval { session_ns, ..at };
        oracle.owners.heard(&self.client.group, &before.who(), epoch, heard);
        drop(oracle);
        self.change(|process, _| {
            process.epoch = epoch;
            process.must_say = changed || (process.must_say && !said);
            process.must_say_all = false;
            process.sure_until_ns = at.sent_ns + session_ns;
        });
    }

    /// Takes what it did not have.
    fn take(&mut self, before: &Process, assigned: &BTreeSet<(TopicId, i32)>, at: Interval) {
        let session_ns = if before.doubtful { 0 } else { at.session_ns };
        let gained: Vec<_> =
            assigned.iter().filter(|place| !before.owned.contains_key(*place)).copied().collect();
        for (id, partition) in gained {
            let place: Partition = (self.client.group.clone(), id, partition);
            let mut oracle = self.client.around.oracle.borrow_mut();
            oracle.counts.given += 1;
            let judged = oracle.owners.given(&place, &before.who(), Interval { session_ns, ..at });
            oracle.judge(&self.client.name, judged);
            let times = oracle.owners.times_given(&place);
            drop(oracle);
            self.change(|process, _| {
                process.owned.insert((id, partition), times);
            });
        }
    }

    async fn commit(&mut self, process: &Process) {
        let owned: Vec<_> = process.owned.keys().copied().collect();
        if owned.is_empty() {
            return;
        }
        let place = owned[self.client.caller.random.index(owned.len())];
        let Some(hold) = process.hold(&self.client, place) else { return };
        // Who has it as far as it knows has not given it up.
        let outcome = self.client.commit_as(&Stale { is_gone: !process.doubtful, ..hold }).await;
        let Sense::Refused(code) = outcome else { return };
        let now_ns = self.client.caller.runtime.now().0;
        let is_sure = now_ns < process.sure_until_ns && !self.client.around.may_fail.get();
        if is_sure {
            self.client.violated(format!("a commit of a member in its epoch is refused: {code}"));
        }
        self.change(|process, _| process.must_say_all = true);
    }

    async fn commit_stale(&mut self, process: &Process) {
        if process.stale.is_empty() {
            return;
        }
        let stale = &process.stale[self.client.caller.random.index(process.stale.len())];
        self.client.commit_as_of_old(stale).await;
    }

    /// Leaves, for good or for a while, and comes back as another process.
    async fn leave(&mut self, process: &Process) {
        let for_a_while = process.instance.is_some() && self.client.caller.random.chance(3, 4);
        let epoch = if for_a_while { -2 } else { -1 };
        let request = self.request(process, false, false).with_member_epoch(epoch);
        self.change(|process, client| process.abandon(client));
        self.client.say(|| format!("leaves with {epoch}"));
        let answer = self.client.ask(1, &request).await;
        let left = answer.is_some_and(|answer| answer.error_code == 0);
        self.client.around.oracle.borrow_mut().counts.left += u64::from(left);
        self.begin_anew();
        self.client.caller.pause(100).await;
    }

    async fn be_silent(&mut self) {
        self.client.around.oracle.borrow_mut().counts.silences += 1;
        self.client.say(|| "is silent".to_owned());
        let longer_ms = self.client.caller.random.below(300);
        let runtime = Rc::clone(&self.client.caller.runtime);
        runtime.sleep_until(runtime.now().plus_ms(self.session_ms + longer_ms)).await;
    }

    /// The process dies; it may go on all the same, as a zombie beside the one that replaces it.
    fn die(&mut self) {
        if self.zombie_steps.is_some() {
            self.zombie_steps = Some(0);
            return;
        }
        let old = self.begin_anew();
        self.client.caller.hang_up();
        self.client.say(|| "dies".to_owned());
        let name = format!("{}, dead", self.client.name);
        let zombie = Member {
            client: self.client.fork(name),
            place: Rc::new(RefCell::new(old)),
            zombie_steps: Some(self.client.caller.random.below(12)),
            session_ms: self.session_ms,
        };
        let runtime = Rc::clone(&self.client.caller.runtime);
        runtime.spawn(Box::pin(zombie.run()));
    }

    /// Another process in the same place; the one before.
    fn begin_anew(&mut self) -> Process {
        let old = self.place.borrow().clone();
        let id = self.client.around.oracle.borrow_mut().name("member");
        let mut next = Process::of(old.instance.clone(), id, old.wanted);
        if self.client.group == MIXED && self.client.caller.random.chance(1, 2) {
            next = next.speaking_classic();
        }
        let has_turned = next.eager.is_some() != old.eager.is_some();
        self.client.around.oracle.borrow_mut().counts.turned += u64::from(has_turned);
        let stale = old.stale.clone();
        self.place.replace(Process { stale, ..next })
    }

    async fn refused(&mut self, code: i16, what: &str) {
        self.client.say(|| format!("{what} is refused with {code}"));
        match code {
            UNKNOWN_MEMBER_ID | FENCED_MEMBER_EPOCH | GROUP_ID_NOT_FOUND => {
                self.client.around.oracle.borrow_mut().counts.fenced += 1;
                self.change(|process, client| process.abandon(client));
                if self.place.borrow().doubtful {
                    self.begin_anew();
                }
            }
            UNRELEASED_INSTANCE_ID => self.client.caller.pause(100).await,
            FENCED_INSTANCE_ID => {
                self.client.around.oracle.borrow_mut().counts.replaced += 1;
                self.change(|process, client| process.abandon(client));
                self.begin_anew();
                if self.zombie_steps.is_some() {
                    self.zombie_steps = Some(0);
                }
            }
            _ => self.client.violated(format!("{what} is refused with {code}")),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Process, &Client)) {
        change(&mut self.place.borrow_mut(), &self.client);
    }
}

/// How long a member may take to give up a partition; longer than any session.
const REBALANCE_MS: i32 = 2_000;

/// Credentials of old that a process remembers.
const STALE_MAX: usize = 6;

const UNKNOWN_MEMBER_ID: i16 = 25;
const GROUP_ID_NOT_FOUND: i16 = 69;
const FENCED_INSTANCE_ID: i16 = 82;
const FENCED_MEMBER_EPOCH: i16 = 110;
const UNRELEASED_INSTANCE_ID: i16 = 111;
