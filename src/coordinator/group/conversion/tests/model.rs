//! Random members of both protocols against one promise: no partition has two owners.
//!
//! Clients behave as real ones do, at their own pace: they consume what they were told to have, of
//! the classic protocol cooperatively or eagerly; they stop when they are fenced or their own
//! session is over. They join by either protocol, leave, vanish and come back by the other one, and
//! the broker restarts. After every step no partition is consumed by two; at the end, when all
//! behave, the group is stable and everything is consumed.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speaks {
    Eager,
    Cooperative,
    Consumer,
}

#[derive(Clone, Debug)]
struct Client {
    speaks: Speaks,
    /// Empty before it has one.
    id: String,
    is_static: bool,
    /// Generation or member epoch.
    epoch: i32,
    consumes: BTreeSet<i32>,
    /// A join or sync that is not answered.
    waits: Option<Ticket>,
    /// It is to join; otherwise to sync, or it is in.
    phase: Phase,
    heard_ms: i64,
    /// When it was told to give something up, until it has said that it did so.
    revokes_since_ms: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Out,
    Joining,
    Syncing,
    In,
}

#[derive(Clone, Debug)]
enum Step {
    Start(usize, Speaks, bool),
    Act(usize),
    Leave(usize),
    Vanish(usize),
    Sleep(i64),
    Restart,
    Fail(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 0..CLIENTS;
    let speaks =
        prop_oneof![Just(Speaks::Eager), Just(Speaks::Cooperative), Just(Speaks::Consumer)];
    let step = prop_oneof![
        4 => (client.clone(), speaks, any::<bool>())
            .prop_map(|(client, speaks, is_static)| Step::Start(client, speaks, is_static)),
        20 => client.clone().prop_map(Step::Act),
        1 => client.clone().prop_map(Step::Leave),
        1 => client.prop_map(Step::Vanish),
        4 => prop_oneof![Just(100), Just(3_000), Just(8_000)].prop_map(Step::Sleep),
        1 => Just(Step::Restart),
        1 => prop::bool::weighted(0.2).prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..120)
}

struct Play {
    mixed: Mixed,
    clients: Vec<Client>,
    /// How often each place was taken, so that member ids are new.
    lives: usize,
}

const OUT: Client = Client {
    speaks: Speaks::Eager,
    id: String::new(),
    is_static: false,
    epoch: 0,
    consumes: BTreeSet::new(),
    waits: None,
    phase: Phase::Out,
    heard_ms: 0,
    revokes_since_ms: None,
};

impl Play {
    fn instance(&self, place: usize) -> Option<String> {
        self.clients[place].is_static.then(|| format!("i{place}"))
    }

    fn start(&mut self, place: usize, speaks: Speaks, is_static: bool) {
        if self.clients[place].phase != Phase::Out {
            return;
        }
        self.lives += 1;
        let id = match speaks {
            Speaks::Consumer => format!("m{}", self.lives),
            Speaks::Eager | Speaks::Cooperative => String::new(),
        };
        let heard_ms = self.mixed.now_ms;
        self.clients[place] =
            Client { speaks, id, is_static, phase: Phase::Joining, heard_ms, ..OUT };
        self.act(place);
    }

    /// One request of a client, or what comes of the last one.
    fn act(&mut self, place: usize) {
        self.look(place);
        let client = &self.clients[place];
        match (client.phase, client.speaks) {
            (Phase::Out, _) => {}
            (_, Speaks::Consumer) => self.beat_consumer(place),
            _ if client.waits.is_some() => {}
            (Phase::Joining, _) => self.join(place),
            (Phase::Syncing, _) => self.sync(place),
            (Phase::In, _) => {
                let instance = self.instance(place);
                let code =
                    self.mixed.beat_as(&client.id.clone(), instance.as_deref(), client.epoch);
                match code {
                    NONE => self.clients[place].heard_ms = self.mixed.now_ms,
                    code => self.refused(place, code),
                }
            }
        }
    }

    fn refused(&mut self, place: usize, code: ErrorCode) {
        let client = &mut self.clients[place];
        match code {
            // It joins again with what it has, or after it has given that up.
            REBALANCE => {
                client.heard_ms = self.mixed.now_ms;
                client.phase = Phase::Joining;
                if client.speaks == Speaks::Eager {
                    client.consumes.clear();
                }
            }
            ErrorCode::IllegalGeneration | ErrorCode::UnknownMemberId => {
                client.phase = Phase::Joining;
                client.consumes.clear();
                if code == ErrorCode::UnknownMemberId {
                    client.id.clear();
                }
            }
            // Another has its place, or it cannot be written now.
            ErrorCode::FencedInstanceId => *client = OUT,
            ErrorCode::CoordinatorNotAvailable => client.phase = Phase::Joining,
            ErrorCode::InconsistentGroupProtocol | ErrorCode::UnreleasedInstanceId => *client = OUT,
            other => panic!("{other:?}: {client:?}"),
        }
    }

    fn join(&mut self, place: usize) {
        let client = &self.clients[place];
        let owned: Vec<i32> = client.consumes.iter().copied().collect();
        let join = Join { version: 5, ..owning(join(&client.id), &owned) };
        let join = Join { instance_id: self.instance(place).map(Into::into), ..join };
        let ticket = self.mixed.join(join);
        self.clients[place].waits = Some(ticket);
        self.look(place);
    }

    fn sync(&mut self, place: usize) {
        let (id, epoch) = (self.clients[place].id.clone(), self.clients[place].epoch);
        let sync = Sync {
            instance_id: self.instance(place).map(Into::into),
            assignments: self.assigned_by(place),
            ..sync_of(&id, epoch)
        };
        let ticket = self.mixed.sync_with(sync);
        self.clients[place].waits = Some(ticket);
        self.look(place);
    }

    /// What a leader assigns: everything to those that are in its generation, as evenly as possible
    /// and to nobody what another still says that he has.
    fn assigned_by(&self, place: usize) -> Vec<(Arc<str>, Bytes)> {
        let described = self.mixed.groups.describe("g");
        let members: Vec<Arc<str>> = described.map_or_else(
            |_| Vec::new(),
            |group| group.members.iter().map(|member| Arc::clone(&member.id)).collect(),
        );
        if members.is_empty() || self.clients[place].speaks == Speaks::Consumer {
            return Vec::new();
        }
        let mut assigned: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for partition in 0..PARTITIONS {
            let has = |client: &&Client| client.consumes.contains(&partition);
            let owner = self.clients.iter().find(has).map(|client| Arc::from(&*client.id));
            let next = &members[partition as usize % members.len()];
            let to = owner.filter(|id| members.contains(id)).unwrap_or_else(|| Arc::clone(next));
            assigned.entry(to).or_default().push(partition);
        }
        let each = assigned.into_iter().map(|(id, of)| (id, assignment_of(&of)));
        each.collect()
    }

    /// Takes an answer that has come.
    fn look(&mut self, place: usize) {
        let Some(ticket) = self.clients[place].waits else { return };
        let Some(answer) = self.mixed.answers.remove(&ticket) else { return };
        let now_ms = self.mixed.now_ms;
        let client = &mut self.clients[place];
        client.waits = None;
        match answer {
            Answer::Join(answer) if answer.error == NONE => {
                client.id = answer.member_id.to_string();
                client.epoch = answer.generation;
                client.phase = Phase::Syncing;
                client.heard_ms = now_ms;
            }
            Answer::Join(answer) if answer.error == ErrorCode::MemberIdRequired => {
                client.id = answer.member_id.to_string();
            }
            Answer::Join(answer) => self.refused(place, answer.error),
            Answer::Sync(answer) if answer.error == NONE => {
                let read = Assignment::read(&answer.assignment).expect("an assignment");
                client.consumes =
                    read.partitions.into_iter().flat_map(|(_, partitions)| partitions).collect();
                client.phase = Phase::In;
                client.heard_ms = now_ms;
            }
            Answer::Sync(answer) => self.refused(place, answer.error),
            other => panic!("{other:?}"),
        }
    }

    fn beat_consumer(&mut self, place: usize) {
        let client = &self.clients[place];
        let mut request = join_consumer(&client.id);
        request.member_epoch = client.epoch;
        request.instance_id = self.instance(place).map(Into::into);
        let mut owned = Partitions::new();
        if !client.consumes.is_empty() {
            owned.insert(TopicId([1; 16]), client.consumes.clone());
        }
        request.owned = Some(owned);
        let answer = self.mixed.send(&request);
        let now_ms = self.mixed.now_ms;
        let client = &mut self.clients[place];
        match answer {
            Ok(answer) => {
                client.phase = Phase::In;
                client.heard_ms = now_ms;
                client.epoch = answer.member_epoch;
                client.revokes_since_ms = None;
                if let Some(assignment) = answer.assignment {
                    let assigned: BTreeSet<i32> = assignment.into_values().flatten().collect();
                    let revokes = !client.consumes.is_subset(&assigned);
                    client.revokes_since_ms = revokes.then_some(now_ms);
                    client.consumes = assigned;
                }
            }
            Err(ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId) => {
                client.epoch = 0;
                client.consumes.clear();
            }
            Err(ErrorCode::GroupIdNotFound) if client.epoch > 0 => {
                client.epoch = 0;
                client.consumes.clear();
            }
            Err(ErrorCode::CoordinatorNotAvailable) => {}
            Err(ErrorCode::FencedInstanceId | ErrorCode::UnreleasedInstanceId) => *client = OUT,
            Err(other) => panic!("{other:?}: {client:?}"),
        }
    }

    fn leave(&mut self, place: usize) {
        let client = std::mem::replace(&mut self.clients[place], OUT);
        if client.id.is_empty() {
            return;
        }
        let instance = client.is_static.then(|| format!("i{place}"));
        let fails = std::mem::take(&mut self.mixed.fails);
        if client.speaks == Speaks::Consumer {
            let mut request = beat_consumer(&client.id, if client.is_static { -2 } else { -1 });
            request.instance_id = instance.map(Into::into);
            let _ = self.mixed.send(&request);
        } else {
            self.mixed.leave(&[(&client.id, instance.as_deref())]);
        }
        self.mixed.fails = fails;
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Start(place, speaks, is_static) => self.start(place, speaks, is_static),
            Step::Act(place) => self.act(place),
            Step::Leave(place) => self.leave(place),
            Step::Vanish(place) => self.clients[place] = OUT,
            Step::Sleep(ms) => self.sleep(ms),
            Step::Fail(fails) => self.mixed.fails = fails,
            Step::Restart => {
                self.mixed.restart();
                for client in &mut self.clients {
                    // Its connection is gone, and so is what it waited for.
                    client.waits = None;
                }
            }
        }
    }

    /// A client that has not been heard of for its session stops by its own clock. So does one that
    /// has not said in its rebalance timeout that it gave up what it was told to, for it is removed
    /// then: that time is its poll interval, after which a client leaves and has lost everything.
    fn sleep(&mut self, ms: i64) {
        self.mixed.pass(ms);
        for client in &mut self.clients {
            let session_ms = match client.speaks {
                Speaks::Consumer => CONSUMER_SESSION_MS,
                Speaks::Eager | Speaks::Cooperative => SESSION_MS,
            };
            let is_over = |since_ms: i64, ms: i32| self.mixed.now_ms - since_ms >= i64::from(ms);
            let is_late = client.revokes_since_ms.is_some_and(|since| is_over(since, REBALANCE_MS));
            if is_late || is_over(client.heard_ms, session_ms) {
                client.consumes.clear();
                // A coordinator that began anew may still have it, with what it gave up.
                if client.phase == Phase::In && client.speaks != Speaks::Consumer {
                    client.phase = Phase::Joining;
                }
            }
        }
    }

    fn check(&self) {
        let mut consumed = BTreeSet::new();
        for client in &self.clients {
            for partition in &client.consumes {
                assert!(consumed.insert(*partition), "{partition} twice: {:#?}", self.clients);
            }
        }
    }

    fn settle(&mut self) {
        self.mixed.fails = false;
        for _ in 0..60 {
            self.sleep(1_000);
            for place in 0..CLIENTS {
                self.act(place);
                self.check();
            }
        }
        let are_in: Vec<&Client> =
            self.clients.iter().filter(|client| client.phase != Phase::Out).collect();
        if are_in.is_empty() {
            return;
        }
        let state = self.mixed.state();
        assert!(state.ends_with(" Stable"), "{state}: {are_in:#?}");
        let consumed: BTreeSet<i32> =
            are_in.iter().flat_map(|client| client.consumes.iter().copied()).collect();
        assert_eq!(consumed, (0..PARTITIONS).collect(), "{state}: {are_in:#?}");
        let has_consumers = are_in.iter().any(|client| client.speaks == Speaks::Consumer);
        assert!(!has_consumers || state.starts_with("consumer"), "{state}: {are_in:#?}");
    }
}

const CLIENTS: usize = 5;
const PARTITIONS: i32 = 6;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_partition_has_two_owners_whatever_its_owners_speak(steps in steps()) {
        play(&steps);
    }
}

/// Its sync is refused when its session is nearly over: it has to be there when it joins again.
#[test]
fn who_is_told_by_a_sync_to_join_again_has_the_time_to() {
    play(&[
        Step::Start(1, Speaks::Consumer, false),
        Step::Start(4, Speaks::Eager, true),
        Step::Start(3, Speaks::Cooperative, true),
        Step::Act(1),
        Step::Act(1),
        Step::Start(2, Speaks::Consumer, false),
        Step::Act(3),
        Step::Act(3),
        Step::Act(3),
        Step::Leave(4),
        Step::Act(1),
        Step::Act(3),
        Step::Act(3),
        Step::Sleep(3_000),
        Step::Start(4, Speaks::Eager, true),
        Step::Sleep(3_000),
        Step::Start(0, Speaks::Consumer, false),
        Step::Sleep(3_000),
        Step::Act(3),
    ]);
}

/// It waits for partitions of a static member whose successor ends the consumer group; the broker
/// restarts before they have joined again.
#[test]
fn what_a_member_waited_for_is_consumed_after_a_downgrade_and_a_restart() {
    play(&[
        Step::Start(1, Speaks::Consumer, true),
        Step::Start(0, Speaks::Eager, true),
        Step::Vanish(1),
        Step::Start(1, Speaks::Eager, true),
        Step::Restart,
    ]);
}

/// The group was a consumer group for a moment, in which it did not learn of its new target.
#[test]
fn what_a_member_has_is_its_own_after_a_downgrade_and_another_upgrade() {
    play(&[
        Step::Start(2, Speaks::Eager, false),
        Step::Act(2),
        Step::Sleep(3_000),
        Step::Act(2),
        Step::Start(4, Speaks::Consumer, false),
        Step::Leave(4),
        Step::Start(3, Speaks::Consumer, false),
    ]);
}

/// Nothing was assigned yet when a static member came back by the other protocol.
#[test]
fn a_static_member_that_upgrades_a_first_rebalance_leaves_nothing_unassigned() {
    play(&[
        Step::Start(0, Speaks::Eager, true),
        Step::Start(1, Speaks::Eager, true),
        Step::Vanish(1),
        Step::Start(1, Speaks::Consumer, true),
    ]);
}

/// It asks for its assignment two seconds after its join was answered, and consumes for as long as
/// a session lasts from then on.
#[test]
fn who_syncs_late_has_a_session_from_then_on() {
    play(&[
        Step::Start(2, Speaks::Eager, true),
        Step::Start(4, Speaks::Eager, true),
        Step::Restart,
        Step::Act(4),
        Step::Act(2),
        Step::Sleep(8_000),
        Step::Act(4),
        Step::Act(2),
        Step::Sleep(8_000),
        Step::Start(0, Speaks::Consumer, false),
    ]);
}

/// Takes all steps, and lets the group settle.
fn play(steps: &[Step]) {
    let mut play = Play { mixed: Mixed::new(), clients: vec![OUT; CLIENTS], lives: 0 };
    for step in steps {
        play.step(step);
        play.check();
    }
    play.settle();
}
