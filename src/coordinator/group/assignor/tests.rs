//! Assignors: exact answers of small questions, and properties of random ones.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;

use super::{Assignor, Partitions, Subscriber};
use crate::ids::TopicId;

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

/// A question: partitions per topic, and members with instance, topics and what they had.
#[derive(Clone, Debug)]
struct Question {
    counts: Vec<i32>,
    members: BTreeMap<String, Member>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    instance: Option<String>,
    topics: BTreeSet<u8>,
    before: Partitions,
}

impl Question {
    fn ask(&self, assignor: Assignor) -> Vec<Partitions> {
        let subscribers: Vec<Subscriber<'_>> = self
            .members
            .iter()
            .map(|(id, member)| Subscriber {
                member_id: id,
                instance_id: member.instance.as_deref(),
                topics: Rc::new(member.topics.iter().map(|&number| topic(number)).collect()),
                before: &member.before,
            })
            .collect();
        let counts: BTreeMap<TopicId, i32> =
            (0..).zip(&self.counts).map(|(number, &count)| (topic(number), count)).collect();
        assignor.assign(&subscribers, &counts)
    }

    /// The answer becomes what they had.
    fn settle(&mut self, assignor: Assignor) {
        let answer = self.ask(assignor);
        for (member, partitions) in self.members.values_mut().zip(answer) {
            member.before = partitions;
        }
    }

    fn outline(&self, assignor: Assignor) -> Vec<String> {
        let text = |partitions: Partitions| {
            let topics = partitions.iter().map(|(id, partitions)| {
                let numbers: Vec<String> = partitions.iter().map(ToString::to_string).collect();
                format!("{}:{}", id.0[0], numbers.join(","))
            });
            topics.collect::<Vec<_>>().join(" ")
        };
        self.ask(assignor).into_iter().map(text).collect()
    }
}

fn question(counts: &[i32], members: &[(&str, Option<&str>, &[u8])]) -> Question {
    let members = members.iter().map(|(id, instance, topics)| {
        let member = Member {
            instance: instance.map(ToOwned::to_owned),
            topics: topics.iter().copied().collect(),
            before: Partitions::new(),
        };
        ((*id).to_owned(), member)
    });
    Question { counts: counts.to_vec(), members: members.collect() }
}

fn size(partitions: &Partitions) -> usize {
    partitions.values().map(BTreeSet::len).sum()
}

fn moved(before: &[Partitions], after: &[Partitions]) -> usize {
    let kept = before.iter().zip(after).map(|(before, after)| {
        let common = before.iter().map(|(id, partitions)| {
            after.get(id).map_or(0, |after| after.intersection(partitions).count())
        });
        common.sum::<usize>()
    });
    before.iter().map(size).sum::<usize>() - kept.sum::<usize>()
}

#[test]
fn ranges_are_contiguous_and_alike_in_topics_of_one_size() {
    let asked = question(&[5, 5], &[("a", None, &[0, 1]), ("b", None, &[0, 1])]);
    assert_eq!(asked.outline(Assignor::Range), ["0:0,1,2 1:0,1,2", "0:3,4 1:3,4"]);
    // Static members first, by instance; topics are divided among their own subscribers.
    let asked =
        question(&[3, 2], &[("a", None, &[0]), ("b", Some("y"), &[0, 1]), ("c", Some("x"), &[0])]);
    assert_eq!(asked.outline(Assignor::Range), ["0:2", "0:1 1:0,1", "0:0"]);
    let asked = question(&[1], &[("a", None, &[0]), ("b", None, &[0]), ("c", None, &[])]);
    assert_eq!(asked.outline(Assignor::Range), ["0:0", "", ""]);
}

#[test]
fn uniform_moves_what_a_change_of_members_needs() {
    let mut asked = question(&[6], &[("a", None, &[0]), ("b", None, &[0])]);
    assert_eq!(asked.outline(Assignor::Uniform), ["0:0,2,4", "0:1,3,5"]);
    asked.settle(Assignor::Uniform);
    asked.members.insert("c".to_owned(), Member { topics: [0].into(), ..Member::default() });
    assert_eq!(asked.outline(Assignor::Uniform), ["0:0,2", "0:1,3", "0:4,5"]);
    asked.settle(Assignor::Uniform);
    asked.members.remove("a");
    assert_eq!(asked.outline(Assignor::Uniform), ["0:0,1,3", "0:2,4,5"]);
}

#[test]
fn uniform_passes_partitions_on_along_a_chain() {
    // "a" can only give to "b", and "b" only to "c".
    let mut asked =
        question(&[3, 1], &[("a", None, &[0]), ("b", None, &[0, 1]), ("c", None, &[1])]);
    asked.members.get_mut("a").expect("a").before = [(topic(0), [0, 1, 2].into())].into();
    asked.members.get_mut("b").expect("b").before = [(topic(1), [0].into())].into();
    assert_eq!(asked.outline(Assignor::Uniform), ["0:0,1", "0:2", "1:0"]);
}

#[test]
fn nothing_is_assigned_twice_or_to_nobody_else() {
    // What members claim to have had is not trusted: twice, of no topic, out of bounds.
    let mut asked = question(&[2], &[("a", None, &[0]), ("b", None, &[0])]);
    let claim: Partitions = [(topic(0), [-1, 0, 1, 7].into()), (topic(9), [0].into())].into();
    asked.members.values_mut().for_each(|member| member.before = claim.clone());
    assert_eq!(asked.outline(Assignor::Uniform), ["0:0", "0:1"]);
    assert_eq!(question(&[3], &[]).ask(Assignor::Uniform), []);
    assert_eq!(question(&[3], &[]).ask(Assignor::Range), []);
}

fn questions(mixed: bool) -> impl Strategy<Value = Question> {
    let counts = prop::collection::vec(0_i32..12, 1..6);
    let members = prop::collection::btree_map(
        "[a-z]{1,4}",
        (prop::option::of("[a-z]{1,3}"), prop::collection::btree_set(0_u8..6, 0..6)),
        1..12,
    );
    (counts, members).prop_map(move |(counts, members)| {
        let topics: BTreeSet<u8> = (0..).take(counts.len()).collect();
        let known = |chosen: BTreeSet<u8>| chosen.intersection(&topics).copied().collect();
        let member = |(id, (instance, chosen))| {
            let topics = if mixed { known(chosen) } else { topics.clone() };
            (id, Member { instance, topics, before: Partitions::new() })
        };
        Question { counts, members: members.into_iter().map(member).collect() }
    })
}

/// Every partition of a subscribed topic has exactly one owner, a subscriber.
fn check_owners(question: &Question, answer: &[Partitions]) {
    let mut owned = BTreeSet::new();
    for (member, partitions) in question.members.values().zip(answer) {
        for (id, partitions) in partitions {
            assert!(member.topics.contains(&id.0[0]), "not subscribed");
            assert!(!partitions.is_empty(), "a topic without partitions");
            for partition in partitions {
                assert!(owned.insert((*id, *partition)), "two owners");
            }
        }
    }
    let subscribed: BTreeSet<u8> =
        question.members.values().flat_map(|member| member.topics.iter().copied()).collect();
    let expected: usize = subscribed
        .iter()
        .map(|&number| usize::try_from(question.counts[usize::from(number)]).expect("a count"))
        .sum();
    assert_eq!(owned.len(), expected, "without an owner");
}

/// Nobody could hand a partition to someone with two fewer.
fn check_even(question: &Question, answer: &[Partitions]) {
    for giver in answer {
        for id in giver.keys() {
            for (taker, member) in answer.iter().zip(question.members.values()) {
                let may = member.topics.contains(&id.0[0]);
                assert!(!may || size(taker) + 1 >= size(giver), "{answer:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn everything_has_one_owner_and_loads_are_even(
        mut asked in any::<bool>().prop_flat_map(questions),
        leaving in 0_usize..12,
    ) {
        for assignor in [Assignor::Range, Assignor::Uniform] {
            let answer = asked.ask(assignor);
            check_owners(&asked, &answer);
            prop_assert_eq!(&answer, &asked.ask(assignor), "another answer to the same question");
        }
        check_even(&asked, &asked.ask(Assignor::Uniform));
        asked.settle(Assignor::Uniform);
        let settled: Vec<_> = asked.members.values().map(|member| member.before.clone()).collect();
        prop_assert_eq!(moved(&settled, &asked.ask(Assignor::Uniform)), 0);
        if let Some(id) = asked.members.keys().nth(leaving).cloned() {
            asked.members.remove(&id);
            let answer = asked.ask(Assignor::Uniform);
            check_owners(&asked, &answer);
            check_even(&asked, &answer);
        }
    }

    #[test]
    fn with_equal_subscriptions_a_change_moves_the_least_it_can(
        mut asked in questions(false),
        leaves in any::<bool>(),
    ) {
        asked.settle(Assignor::Uniform);
        let total: usize = asked.members.values().map(|member| size(&member.before)).sum();
        let number = asked.members.len();
        if leaves && number > 1 {
            let gone = asked.members.pop_first().expect("a member");
            let before: Vec<_> = asked.members.values().map(|of| of.before.clone()).collect();
            prop_assert_eq!(moved(&before, &asked.ask(Assignor::Uniform)), 0, "left {:?}", gone);
        } else {
            let topics = asked.members.values().next().expect("a member").topics.clone();
            asked.members.insert("~".to_owned(), Member { topics, ..Member::default() });
            let before: Vec<_> = asked.members.values().map(|of| of.before.clone()).collect();
            let after = asked.ask(Assignor::Uniform);
            prop_assert_eq!(moved(&before, &after), total / (number + 1));
        }
    }
}
