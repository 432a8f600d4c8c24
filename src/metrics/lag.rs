//! How far consumer groups are behind the ends of what they read.
//!
//! Owns the join of what shards know: one keeps a group's offsets, another one a partition's end.
//! Names and labels are those of the exporters that ask a broker for the same from outside. So
//! many offsets of one shard are told, by whole groups, so that sums are true; those of the groups
//! that are left out are counted. Must never be told as less than it is: a lag is 0 at least, and
//! where the partition, or the topic that the offset was of, is gone there is none.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Samples, families};
use crate::coordinator::group::progress::Progress;
use crate::ids::{Offset, PartitionIndex, TopicId, TopicPartition};
use crate::limits::METRICS_GROUP_OFFSETS_MAX;

/// Groups, their offsets, and where partitions end.
#[derive(Default, Debug)]
pub struct Lag {
    groups: Vec<(Arc<str>, usize)>,
    offsets: Vec<CommittedOffset>,
    ends: HashMap<TopicPartition, Offset, foldhash::fast::RandomState>,
    left_out: u64,
}

/// An offset that a group has committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    group: Arc<str>,
    topic: Arc<str>,
    topic_id: TopicId,
    partition: i32,
    offset: Offset,
}

impl Lag {
    /// Whether a group with so many offsets is told beside those that are told already. One that
    /// is not is counted.
    pub fn has_room(&mut self, offsets: usize) -> bool {
        // A group without offsets takes a place too.
        let taken = self.offsets.len() + self.groups.len();
        let has_room = taken + offsets < METRICS_GROUP_OFFSETS_MAX;
        if !has_room {
            self.left_out += offsets.max(1) as u64;
        }
        has_room
    }

    /// Offsets, and groups without any, that are left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Takes a group in.
    pub fn add_group<'a>(
        &mut self,
        group: &Arc<str>,
        members: usize,
        offsets: impl Iterator<Item = Progress<'a>>,
    ) {
        self.groups.push((Arc::clone(group), members));
        let mut topic: Arc<str> = Arc::from("");
        for found in offsets {
            if *topic != *found.topic {
                topic = Arc::from(found.topic);
            }
            self.offsets.push(CommittedOffset {
                group: Arc::clone(group),
                topic: Arc::clone(&topic),
                topic_id: found.topic_id,
                partition: found.partition,
                offset: found.offset,
            });
        }
    }

    /// Takes in where a partition ends, for those who read all of it.
    pub fn add_end(&mut self, partition: TopicPartition, high_watermark: Offset) {
        self.ends.insert(partition, high_watermark);
    }

    /// Takes all of another shard's in.
    pub fn merge(&mut self, other: Lag) {
        self.groups.extend(other.groups);
        self.offsets.extend(other.offsets);
        self.ends.extend(other.ends);
        self.left_out += other.left_out;
    }

    /// Groups, with their number of members.
    pub fn groups(&self) -> impl Iterator<Item = &(Arc<str>, usize)> {
        self.groups.iter()
    }

    /// Offsets of all groups.
    pub fn offsets(&self) -> impl Iterator<Item = &CommittedOffset> {
        self.offsets.iter()
    }

    /// Tells of one offset; `id_of` knows the topics there are.
    pub fn tell(
        &self,
        of: &CommittedOffset,
        id_of: &dyn Fn(&str) -> Option<TopicId>,
        samples: &mut Samples,
    ) {
        let partition = of.partition.to_string();
        let sum = [("consumergroup", &*of.group), ("topic", &*of.topic)];
        let labels = [sum[0], sum[1], ("partition", &*partition)];
        samples.number(&families::GROUP_OFFSET, &labels, of.offset.0);
        samples.number(&families::GROUP_OFFSET_SUM, &sum, of.offset.0);
        if let Some(lag) = self.lag(of, id_of) {
            samples.number(&families::GROUP_LAG, &labels, lag);
            samples.number(&families::GROUP_LAG_SUM, &sum, lag);
        }
    }

    fn lag(&self, of: &CommittedOffset, id_of: &dyn Fn(&str) -> Option<TopicId>) -> Option<i64> {
        let topic = id_of(&of.topic)?;
        if of.topic_id != TopicId::ZERO && of.topic_id != topic {
            return None;
        }
        let id = TopicPartition { topic, partition: PartitionIndex(of.partition) };
        let end = self.ends.get(&id)?;
        // The end may have been looked at before the commit that is beyond it.
        Some((end.0 - of.offset.0).max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicId = TopicId([3; 16]);

    fn group(lag: &mut Lag, name: &str, members: usize, offsets: &[(&str, TopicId, i32, i64)]) {
        let progress = offsets.iter().map(|&(topic, topic_id, partition, offset)| Progress {
            topic,
            topic_id,
            partition,
            offset: Offset(offset),
        });
        lag.add_group(&name.into(), members, progress);
    }

    fn end(lag: &mut Lag, partition: i32, offset: i64) {
        let partition = PartitionIndex(partition);
        lag.add_end(TopicPartition { topic: TOPIC, partition }, Offset(offset));
    }

    fn lines(lag: &Lag) -> Vec<String> {
        let mut samples = Samples::default();
        let id_of = |name: &str| (name == "t").then_some(TOPIC);
        lag.offsets().for_each(|offset| lag.tell(offset, &id_of, &mut samples));
        let text: String = samples.pieces().collect();
        let wanted = text.lines().filter(|line| !line.starts_with('#'));
        wanted.map(|line| line.replace("kafka_consumergroup_", "")).collect()
    }

    #[test]
    fn offsets_of_one_shard_meet_the_ends_of_another() {
        let (mut one, mut two) = (Lag::default(), Lag::default());
        group(&mut one, "g", 2, &[("t", TOPIC, 0, 4), ("t", TopicId::ZERO, 1, 12)]);
        end(&mut two, 0, 10);
        end(&mut two, 1, 11);
        end(&mut one, 2, 99);
        one.merge(two);
        let at =
            |partition| format!("{{consumergroup=\"g\",topic=\"t\",partition=\"{partition}\"}}");
        let all = "{consumergroup=\"g\",topic=\"t\"}";
        let expected = [
            format!("current_offset{} 4", at(0)),
            format!("current_offset{} 12", at(1)),
            format!("current_offset_sum{all} 16"),
            format!("lag{} 6", at(0)),
            format!("lag{} 0", at(1)),
            format!("lag_sum{all} 6"),
        ];
        assert_eq!(lines(&one), expected);
        assert_eq!(one.groups().collect::<Vec<_>>(), [&("g".into(), 2)]);
    }

    #[test]
    fn what_is_gone_has_no_lag() {
        let mut lag = Lag::default();
        end(&mut lag, 0, 10);
        let older = TopicId([9; 16]);
        group(&mut lag, "g", 0, &[("gone", TOPIC, 0, 1), ("t", older, 0, 2), ("t", TOPIC, 5, 3)]);
        assert!(lines(&lag).iter().all(|line| !line.contains("lag")), "{:?}", lines(&lag));
        assert_eq!(lines(&lag).len(), 3 + 2);
    }

    #[test]
    fn groups_beyond_the_bound_are_left_out_whole_and_counted() {
        let mut lag = Lag::default();
        let all_but_one = METRICS_GROUP_OFFSETS_MAX - 2;
        assert!(lag.has_room(all_but_one));
        let offsets: Vec<_> =
            (0..all_but_one as i32).map(|partition| ("t", TOPIC, partition, 1)).collect();
        group(&mut lag, "large", 1, &offsets);
        assert!(!lag.has_room(1) && !lag.has_room(7), "it would be one too many");
        assert_eq!(lag.left_out(), 8);
        assert!(lag.has_room(0), "a group of members only");
        group(&mut lag, "members", 1, &[]);
        assert!(!lag.has_room(0));
        assert_eq!(lag.left_out(), 9);
        let mut other = Lag::default();
        other.merge(lag);
        assert_eq!((other.left_out(), other.groups().count()), (9, 2));
    }
}
