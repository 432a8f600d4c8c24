//! What the rules of groups cost without a client: allocations of a heartbeat, and a rebalance of a
//! consumer group.
//!
//! The bars: a heartbeat of a stable member allocates nothing and has nothing written, whatever
//! protocol it speaks and whichever kind its group is; a target for 1,000 members over 10,000
//! partitions takes 50 ms, and the way of all members to it no more than n log n. The request of
//! one new member brings about the target ("target"); then all heartbeat until each has what it is
//! to have ("to rest"). Run with `cargo bench --bench groups`.

mod counting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use counting::Count;
use ringlog::coordinator::group::Groups;
use ringlog::coordinator::group::assignor::{Assignor, Partitions};
use ringlog::coordinator::group::classic::join::Join;
use ringlog::coordinator::group::classic::members::{Heartbeat as Beat, Sync};
use ringlog::coordinator::group::classic::{self, Protocol};
use ringlog::coordinator::group::consumer::{
    Heartbeat, HeartbeatAnswer, MigrationPolicy, Rules, TopicFacts, Topics,
};
use ringlog::coordinator::group::outcome::{Answer, Now, Ticket, TimerKey};
use ringlog::coordinator::group::record::GroupRecord;
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, TopicId};

fn main() {
    println!("{:<52} {:>12}", "heartbeat of a stable member", "allocations");
    heartbeats("classic protocol, classic group", World::classic());
    heartbeats("consumer protocol", World::consumer(false));
    heartbeats("classic protocol, consumer group", World::consumer(true));
    println!(
        "\n{:<10} {:>8} {:>11} {:>10} {:>11} {:>11}",
        "assignor", "members", "partitions", "target ms", "to rest ms", "heartbeats"
    );
    for assignor in [Assignor::Uniform, Assignor::Range] {
        for members in [250, 500, 1_000, 2_000] {
            rebalance(assignor, members);
        }
    }
}

/// The coordinator as the shell runs it, and its clock.
struct World {
    groups: Groups,
    topics: Catalog,
    assignors: [Assignor; 1],
    assignment_interval_ms: i32,
    at: i64,
    now_ms: i64,
}

/// How a stable member says that it is there.
enum Stable {
    Classic(Beat),
    Consumer(Heartbeat),
}

/// One topic.
struct Catalog {
    partitions: i32,
}

impl Topics for Catalog {
    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        (name == TOPIC).then_some(TopicFacts { id: TOPIC_ID, partitions: self.partitions })
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        (id == TOPIC_ID).then(|| TOPIC.into())
    }

    fn names(&self) -> Vec<Arc<str>> {
        vec![TOPIC.into()]
    }

    fn version(&self) -> i64 {
        1
    }
}

impl World {
    fn new(partitions: i32, assignor: Assignor) -> World {
        World {
            groups: Groups::default(),
            topics: Catalog { partitions },
            assignors: [assignor],
            assignment_interval_ms: 0,
            at: 0,
            now_ms: 1_000,
        }
    }

    /// A classic group of one member.
    fn classic() -> (World, Stable) {
        let mut world = World::new(6, Assignor::Uniform);
        let (id, generation) = world.join("");
        (world, Stable::Classic(beat(&id, generation)))
    }

    /// A consumer group of one member, which is what is measured, or of one more that speaks the
    /// classic protocol.
    fn consumer(of_classic: bool) -> (World, Stable) {
        let mut world = World::new(6, Assignor::Uniform);
        let epoch = world.send(&first("m")).member_epoch;
        if !of_classic {
            return (world, Stable::Consumer(heartbeat("m", epoch)));
        }
        let (id, _) = world.join("");
        // The consumer gives up what the newcomer is to have, and that joins again for it.
        let told = world.send(&heartbeat("m", epoch));
        world.send(&Heartbeat { owned: told.assignment, ..heartbeat("m", told.member_epoch) });
        let (id, generation) = world.join(&id);
        (world, Stable::Classic(beat(&id, generation)))
    }

    fn now(&self) -> Now {
        Now { ms: self.now_ms, wall_ms: 1_000_000 + self.now_ms }
    }

    fn apply(&mut self, records: Vec<GroupRecord>) {
        for record in records {
            self.groups.apply(Offset(self.at), None, record);
            self.at += 1;
        }
    }

    fn with_rules<T>(&mut self, act: impl FnOnce(&mut Groups, &Rules<'_>) -> T) -> T {
        let rules = Rules {
            now: Now { ms: self.now_ms, wall_ms: 1_000_000 + self.now_ms },
            session_timeout_ms: SESSION_MS,
            heartbeat_interval_ms: 5_000,
            assignment_interval_ms: self.assignment_interval_ms,
            members_max: usize::MAX,
            classic_members_max: usize::MAX,
            assignors: &self.assignors,
            regex_refresh_ms: 600_000,
            policy: MigrationPolicy::Bidirectional,
            topics: &self.topics,
        };
        act(&mut self.groups, &rules)
    }

    /// A heartbeat, all of it: what is planned is applied.
    fn send(&mut self, request: &Heartbeat) -> HeartbeatAnswer {
        let planned = self.with_rules(|groups, rules| groups.consumer_heartbeat(request, rules));
        self.apply(planned.records);
        planned.answer.expect("it is let in")
    }

    /// Somebody joins by the classic protocol and syncs; his member id and generation.
    fn join(&mut self, id: &str) -> (Arc<str>, i32) {
        let outcome = self
            .with_rules(|groups, rules| groups.join(join_of(id), Ticket(1), &CLASSIC_RULES, rules));
        self.apply(outcome.records);
        let mut answers = outcome.answers;
        if answers.is_empty() {
            let now = self.now();
            let due = self.groups.timer(&GROUP.into(), &TimerKey::Join, &CLASSIC_RULES, now);
            answers = due.answers;
        }
        let Some((_, Answer::Join(joined))) = answers.pop() else { panic!("no answer") };
        assert_eq!(joined.error, ErrorCode::None);
        let sync = Sync {
            group: GROUP.into(),
            member_id: Arc::clone(&joined.member_id),
            instance_id: None,
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: Vec::new(),
        };
        let synced =
            self.with_rules(|groups, rules| groups.sync(&sync, Ticket(2), &CLASSIC_RULES, rules));
        self.apply(synced.records);
        (joined.member_id, joined.generation)
    }
}

/// The same heartbeat again and again, a millisecond apart.
fn heartbeats(name: &str, (mut world, beat): (World, Stable)) {
    let mut timers = Vec::new();
    let mut before = Count::now();
    for number in 0..=HEARTBEATS {
        // The first may set a timer.
        if number == 1 {
            before = Count::now();
        }
        world.now_ms += 1;
        let now = world.now();
        match &beat {
            Stable::Classic(beat) => {
                let code = world.groups.heartbeat(beat, now, &mut timers);
                assert_eq!(code, ErrorCode::None);
            }
            Stable::Consumer(beat) => {
                let told = world.with_rules(|groups, rules| groups.consumer_heartbeat(beat, rules));
                assert_eq!(told.records, []);
                assert_eq!(told.answer.expect("it is a member").assignment, None);
            }
        }
    }
    let allocations = before.elapsed().allocations;
    println!("{name:<52} {:>12.3}", allocations as f64 / f64::from(HEARTBEATS));
    assert_eq!(allocations, 0, "a heartbeat has allocated");
}

/// One more member for a group at rest.
fn rebalance(assignor: Assignor, members: usize) {
    let partitions = i32::try_from(members * 10).expect("a count");
    let mut world = World::new(partitions, assignor);
    let mut all: Vec<Heartbeat> = (0..members - 1).map(|number| first(&member(number))).collect();
    // No more than two targets while they gather.
    world.assignment_interval_ms = i32::MAX;
    all.iter_mut().for_each(|beat| take(&mut world, beat));
    world.assignment_interval_ms = 0;
    world.now_ms += 1;
    to_rest(&mut world, &mut all);
    let mut times: Vec<(Duration, Duration, usize)> = Vec::new();
    for run in 0..RUNS {
        all.push(first(&member(members + run)));
        let begun = Instant::now();
        if let Some(newcomer) = all.last_mut() {
            take(&mut world, newcomer);
        }
        let target = begun.elapsed();
        let sent = to_rest(&mut world, &mut all);
        times.push((target, begun.elapsed(), sent));
        let leaves = all.swap_remove(run);
        world.send(&Heartbeat { member_epoch: -1, owned: None, ..leaves });
        to_rest(&mut world, &mut all);
    }
    let (target, rest, sent) = times.into_iter().min().expect("a run");
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    println!(
        "{:<10} {members:>8} {partitions:>11} {:>10.2} {:>11.2} {sent:>11}",
        assignor.name(),
        ms(target),
        ms(rest),
    );
}

/// Everybody heartbeats until nobody is told anything new; how many heartbeats that takes.
fn to_rest(world: &mut World, all: &mut [Heartbeat]) -> usize {
    let mut sent = 0;
    loop {
        let before: Vec<i32> = all.iter().map(|beat| beat.member_epoch).collect();
        let mut is_told = false;
        for beat in all.iter_mut() {
            let owned = beat.owned.clone();
            take(world, beat);
            is_told |= owned != beat.owned;
        }
        sent += all.len();
        let after = all.iter().map(|beat| beat.member_epoch);
        let is_even = all.iter().all(|beat| beat.member_epoch == all[0].member_epoch);
        if !is_told && is_even && after.eq(before) {
            let has = |beat: &Heartbeat| {
                let of = beat.owned.iter().flatten();
                of.map(|(_, partitions)| partitions.len()).sum::<usize>()
            };
            let count: usize = all.iter().map(has).sum();
            assert_eq!(count, world.topics.partitions as usize, "everything is somebody's");
            return sent;
        }
    }
}

/// One member's heartbeat, which says what it has, and what it learns by it.
fn take(world: &mut World, beat: &mut Heartbeat) {
    let told = world.send(beat);
    beat.member_epoch = told.member_epoch;
    if let Some(assigned) = told.assignment {
        beat.owned = Some(assigned);
    }
    beat.rebalance_timeout_ms = -1;
    beat.topic_names = None;
}

fn member(number: usize) -> String {
    format!("member-{number:06}")
}

/// What a member says when there is nothing new.
fn heartbeat(member_id: &str, member_epoch: i32) -> Heartbeat {
    Heartbeat {
        group: GROUP.into(),
        member_id: member_id.into(),
        member_epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: -1,
        topic_names: None,
        topic_regex: None,
        assignor: None,
        owned: None,
        client_id: "bench".into(),
        client_host: "/127.0.0.1".into(),
    }
}

/// What it says when it joins.
fn first(member_id: &str) -> Heartbeat {
    Heartbeat {
        rebalance_timeout_ms: 60_000,
        topic_names: Some(vec![TOPIC.into()]),
        owned: Some(Partitions::new()),
        ..heartbeat(member_id, 0)
    }
}

fn beat(member_id: &Arc<str>, generation: i32) -> Beat {
    let (group, member_id) = (GROUP.into(), Arc::clone(member_id));
    Beat { group, member_id, instance_id: None, generation }
}

fn join_of(member_id: &str) -> Join {
    // Version 1, one topic, no user data, and nothing that it has.
    let mut metadata = vec![0, 1, 0, 0, 0, 1, 0, TOPIC.len() as u8];
    metadata.extend_from_slice(TOPIC.as_bytes());
    metadata.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    Join {
        group: GROUP.into(),
        member_id: member_id.into(),
        instance_id: None,
        client_id: "bench".into(),
        client_host: "/127.0.0.1".into(),
        rebalance_timeout_ms: 60_000,
        session_timeout_ms: SESSION_MS,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol { name: "range".into(), metadata: metadata.into() }],
        // Before member ids were asked for.
        version: 3,
        unique: "1".into(),
    }
}

const GROUP: &str = "group";
const TOPIC: &str = "topic";
const TOPIC_ID: TopicId = TopicId([1; 16]);
const SESSION_MS: i32 = 45_000;
const HEARTBEATS: i32 = 10_000;
const RUNS: usize = 5;

const CLASSIC_RULES: classic::Rules = classic::Rules {
    session_ms_min: 1_000,
    session_ms_max: 60_000,
    initial_delay_ms: 0,
    members_max: usize::MAX,
};
