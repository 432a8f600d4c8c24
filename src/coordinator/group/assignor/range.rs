//! Ranges: of every topic each member gets a contiguous piece, in one order of all members.
//!
//! The first members get one partition more where a topic cannot be divided evenly. Members with
//! the same subscriptions get the same pieces of topics of the same size, so that these can be
//! joined by key. Static members come first, by instance id, so that who comes back under another
//! member id has the same place.

use std::collections::BTreeMap;

use super::{Partitions, Subscriber};
use crate::ids::TopicId;

/// See [`super::Assignor::assign`].
pub(super) fn assign(
    members: &[Subscriber<'_>],
    counts: &BTreeMap<TopicId, i32>,
) -> Vec<Partitions> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&place| {
        let member = &members[place];
        (member.instance_id.is_none(), member.instance_id, member.member_id)
    });
    let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for place in order {
        for topic in members[place].topics.iter() {
            subscribers.entry(*topic).or_default().push(place);
        }
    }
    let mut assigned = vec![Partitions::new(); members.len()];
    for (topic, places) in subscribers {
        let count = counts.get(&topic).copied().unwrap_or(0);
        let shared_by = i32::try_from(places.len()).unwrap_or(i32::MAX);
        let (each, mut more) = (count / shared_by, count % shared_by);
        let mut next = 0;
        for place in places {
            let end = next + each + i32::from(more > 0);
            more = (more - 1).max(0);
            if next < end {
                assigned[place].insert(topic, (next..end).collect());
            }
            next = end;
        }
    }
    assigned
}
