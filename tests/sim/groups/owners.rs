//! Who holds which partition, by what coordinators have told members.
//!
//! Owns, for the classic protocol, each generation's assignment; for KIP-848, what each member was
//! given and has not given back. A member surely holds what it was given until it says that it has
//! given it up, leaves, or could have been silent for its session: the coordinator heard from it
//! no earlier than the request was sent that it has answered.

use std::collections::{BTreeMap, BTreeSet};

use ringlog::ids::TopicId;

/// A member as coordinators know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    pub member_id: String,
    pub instance: Option<String>,
}

impl Who {
    fn is_same(&self, other: &Who) -> bool {
        self.member_id == other.member_id
            || (self.instance.is_some() && self.instance == other.instance)
    }
}

/// Group, topic and partition.
pub type Place = (String, TopicId, i32);

struct Hold {
    who: Who,
    sure_until_ns: u64,
}

/// The assignment of a classic generation.
struct Generation {
    nonce: i64,
    owners: BTreeMap<i32, Who>,
}

/// How far a group is, as was told.
#[derive(Default)]
struct Known {
    epoch: i32,
    generation: i32,
}

/// All members' partitions.
#[derive(Default)]
pub struct Owners {
    holds: BTreeMap<Place, Vec<Hold>>,
    /// How often each was given to somebody, and to whom last.
    given: BTreeMap<Place, (u64, Who)>,
    generations: BTreeMap<(String, i32), Generation>,
    /// Who assigned each generation.
    leaders: BTreeMap<(String, i32), Who>,
    known: BTreeMap<String, Known>,
    /// The newest epoch that each member of a group was told.
    epochs: BTreeMap<(String, String), i32>,
    /// Member ids of static members that others have taken over from.
    retired: BTreeSet<(String, String)>,
}

/// When a heartbeat was sent and answered.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    pub sent_ns: u64,
    pub answered_ns: u64,
    pub session_ns: u64,
}

impl Owners {
    /// The highest epoch of a group by now.
    pub fn epoch(&self, group: &str) -> i32 {
        self.known.get(group).map_or(0, |known| known.epoch)
    }

    /// The highest generation of a group that an assignment was told of.
    pub fn generation(&self, group: &str) -> i32 {
        self.known.get(group).map_or(0, |known| known.generation)
    }

    /// A member of KIP-848 was answered with this epoch.
    pub fn heard(&mut self, group: &str, who: &Who, epoch: i32, at: Interval) {
        let known = self.known.entry(group.to_owned()).or_default();
        known.epoch = known.epoch.max(epoch);
        self.epochs.insert((group.to_owned(), who.member_id.clone()), epoch);
        let sure_until_ns = at.sent_ns + at.session_ns;
        for ((of, _, _), holds) in &mut self.holds {
            for hold in holds.iter_mut().filter(|hold| of == group && hold.who == *who) {
                hold.sure_until_ns = hold.sure_until_ns.max(sure_until_ns);
            }
        }
    }

    /// It was given a partition.
    pub fn given(&mut self, place: &Place, who: &Who, at: Interval) -> Result<(), String> {
        let holds = self.holds.entry(place.clone()).or_default();
        let is_fresh = at.answered_ns - at.sent_ns < at.session_ns;
        let other = holds
            .iter()
            .find(|hold| !hold.who.is_same(who) && is_fresh && hold.sure_until_ns > at.answered_ns);
        if let Some(other) = other {
            return Err(format!("{place:?} was given to {who:?} while {:?} has it", other.who));
        }
        if !holds.iter().any(|hold| hold.who == *who) {
            holds.push(Hold { who: who.clone(), sure_until_ns: at.sent_ns + at.session_ns });
            let given = self.given.entry(place.clone()).or_insert((0, who.clone()));
            *given = (given.0 + 1, who.clone());
        }
        Ok(())
    }

    /// It says, or is told, that it has nothing but this.
    pub fn keeps(&mut self, group: &str, who: &Who, kept: &dyn Fn(TopicId, i32) -> bool) {
        for ((of, topic, partition), holds) in &mut self.holds {
            if of == group && !kept(*topic, *partition) {
                holds.retain(|hold| hold.who != *who);
            }
        }
    }

    /// How often a partition was given to somebody.
    pub fn times_given(&self, place: &Place) -> u64 {
        self.given.get(place).map_or(0, |(times, _)| *times)
    }

    /// Whether somebody else was given it since it was given for that time.
    pub fn is_taken_over(&self, place: &Place, times: u64, who: &Who) -> bool {
        self.given.get(place).is_some_and(|(now, last)| *now > times && !last.is_same(who))
    }

    /// The newest epoch that a member was told.
    pub fn epoch_of(&self, group: &str, who: &Who) -> i32 {
        let epoch = self.epochs.get(&(group.to_owned(), who.member_id.clone()));
        epoch.copied().unwrap_or(0)
    }

    /// A member was told its assignment in a generation of a classic group.
    pub fn assigned(
        &mut self,
        group: &str,
        generation: i32,
        who: &Who,
        (nonce, partitions): (i64, &[i32]),
    ) -> Result<(), String> {
        // An answer to one that is retired may be delivered after that to its successor.
        let is_late = self.is_retired(group, &who.member_id);
        let known = self.known.entry(group.to_owned()).or_default();
        known.generation = known.generation.max(generation);
        let of = self
            .generations
            .entry((group.to_owned(), generation))
            .or_insert_with(|| Generation { nonce, owners: BTreeMap::new() });
        if of.nonce != nonce {
            return Err(format!("generation {generation} of {group} was assigned twice"));
        }
        for partition in partitions {
            let owner = of.owners.entry(*partition).or_insert_with(|| who.clone());
            if !owner.is_same(who) {
                return Err(format!(
                    "{partition} is {owner:?}'s and {who:?}'s in generation {generation} of {group}"
                ));
            }
            if owner.member_id != who.member_id && !is_late {
                let old = std::mem::replace(owner, who.clone());
                self.retired.insert((group.to_owned(), old.member_id));
            }
        }
        Ok(())
    }

    /// A member was told that it is to assign a generation.
    pub fn leads(&mut self, group: &str, generation: i32, who: Who) {
        self.leaders.insert((group.to_owned(), generation), who);
    }

    /// Whether this member has come back as the static one that assigned a generation.
    pub fn is_leader_again(&self, group: &str, generation: i32, who: &Who) -> bool {
        let leader = self.leaders.get(&(group.to_owned(), generation));
        leader.is_some_and(|leader| leader.is_same(who) && leader.member_id != who.member_id)
    }

    /// Whether a static member's place is another's by now.
    pub fn is_retired(&self, group: &str, member_id: &str) -> bool {
        self.retired.contains(&(group.to_owned(), member_id.to_owned()))
    }
}

#[test]
fn two_owners_are_found() {
    let who = |id: &str| Who { member_id: id.to_owned(), instance: None };
    let place: Place = ("g".to_owned(), TopicId([1; 16]), 0);
    let at = |sent_ns| Interval { sent_ns, answered_ns: sent_ns + 1, session_ns: 100 };
    let mut owners = Owners::default();
    assert!(owners.given(&place, &who("a"), at(0)).is_ok());
    assert!(owners.given(&place, &who("b"), at(50)).is_err(), "a has it");
    owners.heard("g", &who("a"), 1, at(50));
    assert!(owners.given(&place, &who("b"), at(120)).is_err(), "a was heard of");
    assert!(owners.given(&place, &who("b"), at(150)).is_ok(), "a may be gone");
    assert!(owners.is_taken_over(&place, 1, &who("a")));
    owners.keeps("g", &who("b"), &|_, _| false);
    assert!(owners.given(&place, &who("c"), at(160)).is_ok(), "b has given it up");
    assert!(owners.assigned("g", 1, &who("a"), (7, &[0, 1])).is_ok());
    assert!(owners.assigned("g", 1, &who("b"), (7, &[1])).is_err(), "a has it");
    assert!(owners.assigned("g", 1, &who("b"), (8, &[2])).is_err(), "another assignment");
    assert!(owners.assigned("g", 2, &who("b"), (8, &[1])).is_ok());
}

#[test]
fn a_late_answer_retires_nobody() {
    let who = |id: &str| Who { member_id: id.to_owned(), instance: Some("i".to_owned()) };
    let mut owners = Owners::default();
    for id in ["old", "new", "old"] {
        assert!(owners.assigned("g", 1, &who(id), (7, &[0])).is_ok());
    }
    assert!(owners.is_retired("g", "old") && !owners.is_retired("g", "new"));
}
