//! What members of both protocols and tools have in common: how they ask, commit and complain.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringlog::metadata::image::CONSUMER_OFFSETS;

use super::CLASSIC;
use super::oracle::Oracle;
use super::owners::{Place, Who};
use crate::caller::Caller;
use crate::support::offsets::{self as requests, text};
use crate::support::requests::Topic;

/// What all members of one boot share.
#[derive(Clone)]
pub struct Surroundings {
    pub oracle: Rc<RefCell<Oracle>>,
    /// The storage has a fault, or the broker is stopping: refusals are no surprise.
    pub may_fail: Rc<Cell<bool>>,
}

/// A process that talks to the coordinator of one group.
pub struct Client {
    pub around: Surroundings,
    pub caller: Caller,
    pub group: String,
    pub name: String,
}

/// As whom somebody commits.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub who: Who,
    /// Generation or epoch.
    pub epoch: i32,
    pub is_classic: bool,
}

/// Credentials of the past, with which nothing may be committed once somebody else has the place.
#[derive(Clone, Debug)]
pub struct Stale {
    pub by: Credentials,
    pub topic: Topic,
    pub place: Place,
    /// How often the partition had been given to somebody.
    pub times_given: u64,
    /// The member was told that it is none any more. One that has given up a partition, and is in
    /// its epoch still, may commit whatever it likes.
    pub is_gone: bool,
}

/// What to make of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sense {
    Good,
    /// It may have been done, or not.
    Unknown,
    Refused(i16),
}

/// What a code means.
pub fn sense(code: i16) -> Sense {
    match code {
        0 => Sense::Good,
        6 | 7 | 13..=16 | 19 | 20 | 51 | 56 => Sense::Unknown,
        code => Sense::Refused(code),
    }
}

impl Client {
    /// Another process of the same group.
    pub fn fork(&mut self, name: String) -> Client {
        let (around, group) = (self.around.clone(), self.group.clone());
        Client { around, caller: self.caller.fork(), group, name }
    }

    /// Sends a request to the group's coordinator.
    pub async fn ask<R: kafka_protocol::protocol::Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Option<R::Response> {
        self.caller.aim_at_keeper(CONSUMER_OFFSETS, &self.group);
        let answer = self.caller.ask(version, request, PATIENCE_MS).await;
        let mut oracle = self.around.oracle.borrow_mut();
        oracle.counts.lost_answers += u64::from(answer.is_none());
        oracle.counts.copies += u64::from(self.caller.copied);
        drop(oracle);
        if answer.is_none() {
            self.say(|| format!("has no answer to API {} v{version}", R::KEY));
        }
        answer
    }

    /// Whether an answer may be lost, or a request doubled.
    pub fn is_calm(&self) -> bool {
        self.caller.calm.get()
    }

    /// Commits the offset of one partition: what was answered.
    pub async fn commit(&mut self, by: &Credentials, topic: &Topic, partition: i32) -> Sense {
        let key = (self.group.clone(), topic.name.clone(), partition);
        self.caller.toss();
        let (no, value) = {
            let mut oracle = self.around.oracle.borrow_mut();
            let (no, value) = oracle.offsets.committing(key, false);
            if self.caller.copied {
                oracle.offsets.doubled(no);
            }
            (no, value)
        };
        let version = match by.is_classic {
            true => [2, 5, 7, 9, 10][self.caller.random.index(5)],
            false => [9, 10][self.caller.random.index(2)],
        };
        let version = if by.who.instance.is_some() { version.max(7) } else { version };
        let mut request = requests::commit(version, &self.group, topic, partition, value);
        request.0.member_id = text(&by.who.member_id);
        request.0.generation_id_or_member_epoch = by.epoch;
        request.0.group_instance_id = by.who.instance.as_deref().map(text);
        self.say(|| format!("commits {value} in {partition} as {by:?}"));
        let is_everywhere = self.is_everywhere(topic, partition);
        let Some(answer) = self.ask(version, &request).await else { return Sense::Unknown };
        let code = answer.topics[0].partitions[0].error_code;
        self.say(|| format!("{value} is answered {code}"));
        let mut oracle = self.around.oracle.borrow_mut();
        match sense(code) {
            Sense::Good => {
                oracle.counts.commits += 1;
                oracle.offsets.acked(no);
            }
            Sense::Unknown => {}
            Sense::Refused(_) => {
                oracle.counts.refusals += 1;
                oracle.offsets.refused(no);
            }
        }
        match code {
            // A shard that has not heard of it yet; whoever commits comes again, as with Kafka.
            UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_ID if !is_everywhere => Sense::Unknown,
            code => sense(code),
        }
    }

    /// Whether every shard knows of a partition, which the coordinator's may before the others.
    fn is_everywhere(&self, topic: &Topic, partition: i32) -> bool {
        let mut shards = self.caller.cluster.shards.iter();
        shards.all(|shard| {
            let image = shard.catalog();
            let known = image.topic(&topic.name);
            known.is_some_and(|known| known.partition_count() > partition)
        })
    }

    /// Commits with what it once had: to be refused if somebody else has it since.
    pub async fn commit_as_of_old(&mut self, stale: &Stale) {
        let outcome = self.commit_as(stale).await;
        let mut oracle = self.around.oracle.borrow_mut();
        oracle.counts.stale_refused += u64::from(matches!(outcome, Sense::Refused(_)));
    }

    /// Commits with what it has, as far as it knows: the same holds. So it does in a transaction.
    pub async fn commit_as(&mut self, stale: &Stale) -> Sense {
        let (by, topic) = (&stale.by, &stale.topic);
        let is_fenced = self.is_fenced(stale);
        let outcome = if self.caller.random.chance(1, 5) {
            self.commit_in_transaction(by, topic, stale.place.2).await
        } else {
            self.commit(by, topic, stale.place.2).await
        };
        if is_fenced && outcome == Sense::Good {
            self.violated(format!("a commit of {by:?}, who is fenced, is taken"));
        }
        outcome
    }

    fn is_fenced(&self, stale: &Stale) -> bool {
        let by = &stale.by;
        let oracle = self.around.oracle.borrow();
        let owners = &oracle.owners;
        if self.group == CLASSIC {
            return owners.generation(&self.group) > by.epoch
                || owners.is_retired(&self.group, &by.who.member_id);
        }
        let is_past = owners.epoch_of(&self.group, &by.who) > by.epoch;
        (stale.is_gone || is_past) && owners.is_taken_over(&stale.place, stale.times_given, &by.who)
    }

    pub fn violated(&self, what: impl AsRef<str>) {
        let what = format!("{} of {}: {}", self.name, self.group, what.as_ref());
        self.around.oracle.borrow_mut().trace.violated(what);
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        let at_us = self.caller.runtime.now().0 / 1_000;
        let line = format!("{at_us} {} {} {}", self.group, self.name, what());
        self.around.oracle.borrow_mut().trace.say(line);
    }
}

/// How long an answer is waited for.
pub const PATIENCE_MS: u64 = 8_000;

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;
