//! How far groups are: what a scrape tells of their lag.
//!
//! Owns the walk over the committed offsets of one group. Pending ones are nobody's progress yet.

use super::Groups;
use crate::ids::{Offset, TopicId};

/// An offset that a group has committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Its id at the commit; zero if unknown.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// The offset to go on from.
    pub offset: Offset,
}

impl Groups {
    /// Number of a group's members.
    #[must_use]
    pub fn member_count(&self, id: &str) -> usize {
        let Some(group) = self.groups.get(id) else { return 0 };
        let classic = group.kind.classic().map_or(0, |classic| classic.member_count());
        group.kind.consumer().map_or(classic, |consumer| consumer.member_count())
    }

    /// At least the number of offsets that [`Groups::progress`] has, without a look at each.
    #[must_use]
    pub fn position_count(&self, id: &str) -> usize {
        let Some(group) = self.groups.get(id) else { return 0 };
        group.topics.values().map(|partitions| partitions.len()).sum()
    }

    /// The committed offsets of a group, by topic and partition.
    pub fn progress(&self, id: &str) -> impl Iterator<Item = Progress<'_>> {
        let topics = self.groups.get(id).into_iter().flat_map(|group| &group.topics);
        topics.flat_map(|(topic, partitions)| {
            partitions.iter().filter_map(move |(&partition, position)| {
                let value = &position.committed.as_ref()?.value;
                let offset = Offset(value.offset);
                Some(Progress { topic, topic_id: value.topic_id, partition, offset })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MarkerKind;
    use crate::coordinator::group::record::{GroupRecord, OffsetKey, OffsetValue};
    use crate::ids::ProducerId;

    fn commit(groups: &mut Groups, at: i64, producer: Option<i64>, partition: i32, offset: i64) {
        let key = OffsetKey { group: "g".into(), topic: "t".into(), partition };
        let value = OffsetValue {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
            commit_ms: 0,
            expire_ms: None,
            topic_id: TopicId([7; 16]),
        };
        groups.apply(Offset(at), producer.map(ProducerId), GroupRecord::Offset(key, Some(value)));
    }

    #[test]
    fn what_is_pending_is_no_progress() {
        let mut groups = Groups::default();
        commit(&mut groups, 0, None, 3, 30);
        commit(&mut groups, 1, Some(5), 3, 40);
        commit(&mut groups, 2, Some(5), 4, 50);
        let told = |groups: &Groups| -> Vec<(i32, i64)> {
            groups.progress("g").map(|found| (found.partition, found.offset.0)).collect()
        };
        assert_eq!((told(&groups), groups.position_count("g")), (vec![(3, 30)], 2));
        groups.marker(ProducerId(5), MarkerKind::Commit);
        assert_eq!(told(&groups), [(3, 40), (4, 50)]);
        let first = groups.progress("g").next().expect("an offset");
        assert_eq!((first.topic, first.topic_id), ("t", TopicId([7; 16])));
        assert_eq!(groups.progress("h").count(), 0);
        assert_eq!((groups.member_count("g"), groups.position_count("h")), (0, 0));
    }
}
