//! Uniform: numbers of partitions that differ by one at most, and as few moves as that allows.
//!
//! Members with equal subscriptions are given quotas: who had more keeps more, and what is left
//! over goes round among those below their quota. With unequal subscriptions each partition without
//! an owner goes to the subscriber that has least, topics with few subscribers first; then, from
//! the member that has most, one partition at a time is passed on along the shortest chain of
//! members, each handing on one of a topic that the next subscribes to, that ends at a member with
//! two fewer. When there is no such chain no other assignment is more even. A member from which no
//! chain leads anywhere, and all that its chains reach, need not be looked at again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Partitions, Subscriber};
use crate::ids::TopicId;

/// See [`super::Assignor::assign`].
pub(super) fn assign(
    members: &[Subscriber<'_>],
    counts: &BTreeMap<TopicId, i32>,
) -> Vec<Partitions> {
    let Some(first) = members.first() else { return Vec::new() };
    let mut division = Division::keep(members, counts);
    if members.iter().all(|member| member.topics == first.topics) {
        division.fill_to_quota();
    } else {
        division.fill_the_least();
        division.even_out();
    }
    division.finish()
}

/// An assignment in the making. Topics are numbered.
struct Division {
    ids: Vec<TopicId>,
    /// Who subscribes to a topic.
    subscribers: Vec<Vec<usize>>,
    /// What a member has, by topic.
    held: Vec<BTreeMap<usize, BTreeSet<i32>>>,
    /// How many a member has.
    loads: Vec<usize>,
    /// What nobody has.
    free: Vec<(usize, i32)>,
}

impl Division {
    /// Everyone keeps what it had, as far as it exists and is subscribed to.
    fn keep(members: &[Subscriber<'_>], counts: &BTreeMap<TopicId, i32>) -> Division {
        let ids: BTreeSet<TopicId> =
            members.iter().flat_map(|member| member.topics.iter().copied()).collect();
        let ids: Vec<TopicId> = ids.into_iter().collect();
        let number = |id: &TopicId| ids.binary_search(id).ok();
        let mut taken: Vec<Vec<bool>> = Vec::with_capacity(ids.len());
        for id in &ids {
            let count = counts.get(id).copied().unwrap_or(0);
            taken.push(vec![false; usize::try_from(count).unwrap_or(0)]);
        }
        let mut subscribers = vec![Vec::new(); ids.len()];
        let mut held = vec![BTreeMap::new(); members.len()];
        let mut loads = vec![0; members.len()];
        for (place, member) in members.iter().enumerate() {
            for topic in member.topics.iter().filter_map(number) {
                subscribers[topic].push(place);
            }
            for (id, partitions) in member.before {
                let Some(topic) = number(id).filter(|_| member.topics.contains(id)) else {
                    continue;
                };
                let mut kept = BTreeSet::new();
                for &partition in partitions {
                    let slot = usize::try_from(partition).ok();
                    let slot = slot.and_then(|index| taken[topic].get_mut(index));
                    if slot.is_some_and(|taken| !std::mem::replace(taken, true)) {
                        kept.insert(partition);
                    }
                }
                loads[place] += kept.len();
                if !kept.is_empty() {
                    held[place].insert(topic, kept);
                }
            }
        }
        let mut free = Vec::new();
        for (topic, taken) in taken.iter().enumerate() {
            let of_topic = (0_i32..).zip(taken).filter(|(_, taken)| !**taken);
            free.extend(of_topic.map(|(partition, _)| (topic, partition)));
        }
        Division { ids, subscribers, held, loads, free }
    }

    /// Everyone may have anything.
    fn fill_to_quota(&mut self) {
        let members = self.loads.len();
        let total = self.free.len() + self.loads.iter().sum::<usize>();
        let (least, mut with_more) = (total / members, total % members);
        let mut order: Vec<usize> = (0..members).collect();
        order.sort_by_key(|&place| (std::cmp::Reverse(self.loads[place]), place));
        let mut short = VecDeque::new();
        for place in order {
            let quota = least + usize::from(with_more > 0);
            with_more = with_more.saturating_sub(1);
            while self.loads[place] > quota {
                let released = self.release_last(place);
                self.free.push(released);
            }
            if self.loads[place] < quota {
                short.push_back((place, quota));
            }
        }
        let mut free = std::mem::take(&mut self.free);
        free.sort_unstable();
        for (topic, partition) in free {
            let Some((place, quota)) = short.pop_front() else {
                unreachable!("the quotas add up to all partitions")
            };
            self.give(place, topic, partition);
            if self.loads[place] < quota {
                short.push_back((place, quota));
            }
        }
    }

    fn release_last(&mut self, place: usize) -> (usize, i32) {
        let mut entry = self.held[place].last_entry().expect("invariant: it has a partition");
        let topic = *entry.key();
        let last = entry.get_mut().pop_last().expect("invariant: no topic without partitions");
        if entry.get().is_empty() {
            entry.remove();
        }
        self.loads[place] -= 1;
        (topic, last)
    }

    fn give(&mut self, place: usize, topic: usize, partition: i32) {
        self.held[place].entry(topic).or_default().insert(partition);
        self.loads[place] += 1;
    }

    /// Each free partition goes to the subscriber that has least.
    fn fill_the_least(&mut self) {
        let mut free = std::mem::take(&mut self.free);
        free.sort_unstable_by_key(|&(topic, partition)| {
            (self.subscribers[topic].len(), topic, partition)
        });
        let mut by_load: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut of_topic = None;
        for (topic, partition) in free {
            if of_topic != Some(topic) {
                by_load = self.subscribers[topic].iter().map(|&at| (self.loads[at], at)).collect();
                of_topic = Some(topic);
            }
            let Some((load, place)) = by_load.pop_first() else { continue };
            self.give(place, topic, partition);
            by_load.insert((load + 1, place));
        }
    }

    fn even_out(&mut self) {
        let mut by_load: BTreeSet<(usize, usize)> =
            self.loads.iter().enumerate().map(|(place, &load)| (load, place)).collect();
        let mut settled = vec![false; self.ids.len()];
        while let Some(&(load, from)) = by_load.last() {
            match self.chain(from, &settled) {
                Ok(chain) => {
                    let to = chain[0].1;
                    by_load.remove(&(self.loads[from], from));
                    by_load.remove(&(self.loads[to], to));
                    self.pass_on(&chain);
                    by_load.insert((self.loads[from], from));
                    by_load.insert((self.loads[to], to));
                }
                Err(reached) => {
                    by_load.remove(&(load, from));
                    for topic in reached {
                        settled[topic] = true;
                        for &place in &self.subscribers[topic] {
                            by_load.remove(&(self.loads[place], place));
                        }
                    }
                }
            }
        }
    }

    /// Steps `(giver, taker, topic)`, the last first, or the topics that were reached in vain.
    fn chain(
        &self,
        from: usize,
        settled: &[bool],
    ) -> Result<Vec<(usize, usize, usize)>, Vec<usize>> {
        let mut seen_topics = settled.to_vec();
        let mut reached_by: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut topics = Vec::new();
        let mut next = VecDeque::from([from]);
        while let Some(giver) = next.pop_front() {
            for &topic in self.held[giver].keys() {
                if std::mem::replace(&mut seen_topics[topic], true) {
                    continue;
                }
                topics.push(topic);
                for &taker in &self.subscribers[topic] {
                    if taker == from || reached_by.contains_key(&taker) {
                        continue;
                    }
                    reached_by.insert(taker, (giver, topic));
                    if self.loads[taker] + 2 <= self.loads[from] {
                        return Ok(steps(&reached_by, from, taker));
                    }
                    next.push_back(taker);
                }
            }
        }
        Err(topics)
    }

    fn pass_on(&mut self, chain: &[(usize, usize, usize)]) {
        for &(giver, taker, topic) in chain {
            let partitions =
                self.held[giver].get_mut(&topic).expect("invariant: a giver holds the topic");
            let last = partitions.pop_last().expect("invariant: no topic without partitions");
            if partitions.is_empty() {
                self.held[giver].remove(&topic);
            }
            self.loads[giver] -= 1;
            self.give(taker, topic, last);
        }
    }

    fn finish(self) -> Vec<Partitions> {
        let named = self.held.into_iter().map(|held| {
            held.into_iter().map(|(topic, partitions)| (self.ids[topic], partitions)).collect()
        });
        named.collect()
    }
}

fn steps(
    reached_by: &BTreeMap<usize, (usize, usize)>,
    from: usize,
    to: usize,
) -> Vec<(usize, usize, usize)> {
    let mut steps = Vec::new();
    let mut taker = to;
    while taker != from {
        let (giver, topic) = reached_by[&taker];
        steps.push((giver, taker, topic));
        taker = giver;
    }
    steps
}
