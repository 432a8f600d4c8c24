//! Whoever is no member: readers of committed offsets, tools that commit and delete by hand, also
//! in transactions, and an admin under whom topics grow.

use std::rc::Rc;

use kafka_protocol::messages::CreatePartitionsRequest;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;

use super::member::{Client, Credentials, PATIENCE_MS, Sense, sense};
use super::offsets::WriteNo;
use super::owners::Who;
use super::{BY_HAND, FIRST_TOPIC, GROUPS, TOPICS, partitions_of, topic_of};
use crate::support::groups::delete as delete_groups;
use crate::support::offsets::{delete, fetch};
use crate::support::requests::create_topic;

/// Somebody who uses groups without being a member of any.
pub struct Tool {
    pub client: Client,
}

impl Tool {
    /// Goes on for ever.
    pub async fn run(mut self) {
        loop {
            let is_calm = self.client.is_calm();
            match self.client.caller.random.below(if is_calm { 40 } else { 100 }) {
                0..20 => self.fetch_any().await,
                20..30 => self.client.caller.pause(30).await,
                30..40 => self.client.caller.pause(100).await,
                40..55 => self.commit_by_hand().await,
                55..62 => self.delete_offset().await,
                62..64 => self.delete_group().await,
                64..74 => self.commit_in_transaction().await,
                74..77 => self.grow().await,
                _ => self.fetch_any().await,
            }
        }
    }

    async fn fetch_any(&mut self) {
        let random = &mut self.client.caller.random;
        let group = GROUPS[random.index(GROUPS.len())].to_owned();
        let topic = TOPICS[usize::from(random.chance(1, 5))];
        let count = partitions_of(&self.client.caller.cluster, topic);
        let partition = self.client.caller.random.below(u64::try_from(count.max(1)).unwrap_or(1));
        let stable = self.client.caller.random.chance(2, 3);
        self.fetch(&(group, topic.to_owned(), partition as i32), stable).await;
    }

    /// The committed offset of one partition: whether it was told.
    pub async fn fetch(&mut self, key: &(String, String, i32), stable: bool) -> bool {
        let (group, topic, partition) = key;
        let topic = topic_of(&self.client.caller.cluster, topic);
        let version = [7, 8, 9][self.client.caller.random.index(3)];
        let mut request = fetch(version, group, &topic, &[*partition]);
        request.0.require_stable = stable;
        let began = self.client.around.oracle.borrow_mut().offsets.moment();
        self.client.group.clone_from(group);
        let Some(answer) = self.client.ask(version, &request).await else { return false };
        let (code, told) = if version >= 8 {
            let group = &answer.groups[0];
            let partition = group.topics.first().map(|topic| &topic.partitions[0]);
            let code = partition.map_or(group.error_code, |partition| partition.error_code);
            (code, partition.map_or(-1, |partition| partition.committed_offset))
        } else {
            let partition = answer.topics.first().map(|topic| &topic.partitions[0]);
            let code = partition.map_or(answer.error_code, |partition| partition.error_code);
            (code, partition.map_or(-1, |partition| partition.committed_offset))
        };
        self.client.say(|| format!("offset of {key:?}: {told}, code {code}"));
        let mut oracle = self.client.around.oracle.borrow_mut();
        oracle.counts.fetches += 1;
        oracle.counts.loading += u64::from(code == LOADING);
        oracle.counts.unstable += u64::from(code == UNSTABLE);
        match code {
            0 => {
                let told = (told >= 0).then_some(told);
                let judged = oracle.offsets.told(key, began, told, stable);
                oracle.judge("a reader", judged);
                return true;
            }
            UNSTABLE if stable => {}
            _ if sense(code) == Sense::Unknown || self.client.around.may_fail.get() => {}
            _ => oracle.trace.violated(format!("the offset of {key:?} is answered {code}")),
        }
        false
    }

    async fn commit_by_hand(&mut self) {
        self.client.group = BY_HAND.to_owned();
        let topic = topic_of(&self.client.caller.cluster, FIRST_TOPIC);
        let partition = self.client.caller.random.index(2) as i32;
        if let Sense::Refused(code) = self.client.commit(&nobody(), &topic, partition).await {
            self.client.violated(format!("a commit by hand is refused with {code}"));
        }
    }

    async fn commit_in_transaction(&mut self) {
        self.client.group = BY_HAND.to_owned();
        let topic = topic_of(&self.client.caller.cluster, FIRST_TOPIC);
        let partition = self.client.caller.random.index(2) as i32;
        self.client.commit_in_transaction(&nobody(), &topic, partition).await;
    }

    async fn delete_offset(&mut self) {
        self.client.group = BY_HAND.to_owned();
        let partition = self.client.caller.random.index(2) as i32;
        let key = (BY_HAND.to_owned(), FIRST_TOPIC.to_owned(), partition);
        let no = self.deleting(&[key])[0];
        let request = delete(BY_HAND, FIRST_TOPIC, &[partition]);
        self.client.say(|| format!("deletes the offset of {partition}"));
        let Some(answer) = self.client.ask(0, &request).await else { return };
        let partition = answer.topics.first().map(|topic| &topic.partitions[0]);
        let code = partition.map_or(answer.error_code, |partition| partition.error_code);
        self.deleted(&[no], code);
    }

    async fn delete_group(&mut self) {
        self.client.group = BY_HAND.to_owned();
        let keys: Vec<_> = (0..2)
            .map(|partition| (BY_HAND.to_owned(), FIRST_TOPIC.to_owned(), partition))
            .collect();
        let nos = self.deleting(&keys);
        self.client.say(|| "deletes the group".to_owned());
        let Some(answer) = self.client.ask(2, &delete_groups(&[BY_HAND])).await else { return };
        self.deleted(&nos, answer.results[0].error_code);
    }

    fn deleting(&mut self, keys: &[(String, String, i32)]) -> Vec<WriteNo> {
        self.client.caller.toss();
        let mut oracle = self.client.around.oracle.borrow_mut();
        let nos: Vec<_> = keys.iter().map(|key| oracle.offsets.deleting(key.clone())).collect();
        for &no in nos.iter().filter(|_| self.client.caller.copied) {
            oracle.offsets.doubled(no);
        }
        nos
    }

    fn deleted(&mut self, nos: &[WriteNo], code: i16) {
        self.client.say(|| format!("the deletion is answered {code}"));
        let mut oracle = self.client.around.oracle.borrow_mut();
        match sense(code) {
            Sense::Good => {
                oracle.counts.deletions += 1;
                nos.iter().for_each(|&no| oracle.offsets.acked(no));
            }
            Sense::Unknown => {}
            // There is none of it.
            Sense::Refused(GROUP_ID_NOT_FOUND) => {
                nos.iter().for_each(|&no| oracle.offsets.refused(no));
            }
            Sense::Refused(code) => {
                oracle.trace.violated(format!("a deletion is refused with {code}"));
            }
        }
    }

    /// The first topic gets more partitions, or the second is created.
    async fn grow(&mut self) {
        let cluster = Rc::clone(&self.client.caller.cluster);
        self.client.caller.aim = None;
        let second = TOPICS[1];
        let count = partitions_of(&cluster, FIRST_TOPIC);
        let grown = if partitions_of(&cluster, second) == 0 {
            let request = create_topic(second, 2);
            let answer = self.client.caller.ask(7, &request, PATIENCE_MS).await;
            answer.is_some_and(|answer| answer.topics[0].error_code == 0)
        } else if count < PARTITIONS_MAX {
            let topic = CreatePartitionsTopic::default()
                .with_name(topic_of(&cluster, FIRST_TOPIC).wire_name())
                .with_count(count + 1)
                .with_assignments(None);
            let request =
                CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
            let answer = self.client.caller.ask(3, &request, PATIENCE_MS).await;
            answer.is_some_and(|answer| answer.results[0].error_code == 0)
        } else {
            false
        };
        self.client.say(|| format!("grows topics: {grown}"));
        self.client.around.oracle.borrow_mut().counts.grown += u64::from(grown);
    }
}

fn nobody() -> Credentials {
    let who = Who { member_id: String::new(), instance: None };
    Credentials { who, epoch: -1, is_classic: true }
}

/// Most partitions of the first topic.
const PARTITIONS_MAX: i32 = 6;

const LOADING: i16 = 14;
const GROUP_ID_NOT_FOUND: i16 = 69;
const UNSTABLE: i16 = 88;
