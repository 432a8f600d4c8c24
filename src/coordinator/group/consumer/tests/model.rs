//! Random members, topics, losses and time against one promise: no partition has two owners.
//!
//! A client consumes what it was told to, from the answer on, until it has given it up; giving up
//! takes as long as it likes. Answers get lost, members stop without a word, come back, change
//! what they subscribe to. After every step no partition is consumed by two; at the end, when all
//! behave, everyone gets its target and everything is consumed.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Default, Debug)]
struct Client {
    epoch: i32,
    names: Vec<&'static str>,
    /// What it reads from now.
    consumes: BTreeSet<(TopicId, i32)>,
    /// What it was last told to have.
    told: BTreeSet<(TopicId, i32)>,
    is_in: bool,
    /// Whether the last answer was lost, so that it says all it knows.
    is_unsure: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Join(usize, usize),
    Beat { client: usize, lost: bool, says_owned: bool },
    GiveUp(usize),
    Leave(usize),
    Resubscribe(usize, usize),
    Grow(i32),
    Recreate(u8),
    Sleep(i64),
}

const SUBSCRIPTIONS: [&[&str]; 4] = [&["t1"], &["t1", "t2"], &["t2"], &["t1", "t2", "t3"]];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 0_usize..5;
    let step = prop_oneof![
        3 => (client.clone(), 0_usize..4).prop_map(|(client, names)| Step::Join(client, names)),
        12 => (client.clone(), prop::bool::weighted(0.15), any::<bool>())
            .prop_map(|(client, lost, says_owned)| Step::Beat { client, lost, says_owned }),
        6 => client.clone().prop_map(Step::GiveUp),
        1 => client.clone().prop_map(Step::Leave),
        1 => (client, 0_usize..4).prop_map(|(client, names)| Step::Resubscribe(client, names)),
        1 => (1_i32..9).prop_map(Step::Grow),
        1 => (10_u8..20).prop_map(Step::Recreate),
        3 => prop_oneof![Just(500), Just(5_000), Just(40_000)].prop_map(Step::Sleep),
    ];
    prop::collection::vec(step, 1..80)
}

struct Play {
    world: World,
    clients: Vec<Client>,
}

impl Play {
    fn request(&self, place: usize, says_owned: bool) -> Heartbeat {
        let client = &self.clients[place];
        let id = format!("m{place}");
        let mut request = if client.is_unsure || client.epoch == 0 {
            join(&id, &client.names)
        } else {
            beat(&id, client.epoch)
        };
        request.member_epoch = client.epoch;
        if client.epoch > 0 && (says_owned || client.is_unsure) {
            let mut owned = Partitions::new();
            for (id, partition) in &client.consumes {
                owned.entry(*id).or_default().insert(*partition);
            }
            request.owned = Some(owned);
        }
        request
    }

    fn beat(&mut self, place: usize, lost: bool, says_owned: bool) {
        if !self.clients[place].is_in {
            return;
        }
        let request = self.request(place, says_owned);
        let answer = self.world.send(&request);
        let client = &mut self.clients[place];
        match answer {
            _ if lost => client.is_unsure = true,
            Ok(answer) => {
                client.is_unsure = false;
                client.epoch = answer.member_epoch;
                if let Some(assignment) = answer.assignment {
                    let told = assignment.iter().flat_map(|(id, partitions)| {
                        partitions.iter().map(|partition| (*id, *partition))
                    });
                    client.told = told.collect();
                }
                client.consumes.extend(&client.told);
            }
            Err(_) => {
                // Fenced: it drops everything and starts again.
                client.epoch = 0;
                client.is_unsure = false;
                client.consumes.clear();
                client.told.clear();
            }
        }
    }

    fn give_up(&mut self, place: usize) {
        let client = &mut self.clients[place];
        client.consumes.retain(|place| client.told.contains(place));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Join(place, names) => {
                let client = &mut self.clients[place];
                if !client.is_in {
                    client.names = SUBSCRIPTIONS[names].to_vec();
                    client.is_in = true;
                    self.beat(place, false, true);
                }
            }
            Step::Beat { client, lost, says_owned } => self.beat(client, lost, says_owned),
            Step::GiveUp(place) => self.give_up(place),
            Step::Leave(place) => {
                if self.clients[place].is_in {
                    self.clients[place] = Client::default();
                    let _ = self.world.send(&beat(&format!("m{place}"), -1));
                }
            }
            Step::Resubscribe(place, names) => {
                if self.clients[place].is_in {
                    self.clients[place].names = SUBSCRIPTIONS[names].to_vec();
                    self.clients[place].is_unsure = true;
                    self.beat(place, false, true);
                }
            }
            Step::Grow(more) => {
                let partitions = self.world.catalog.topics["t1"].partitions.max(more);
                self.world.catalog.set("t1", 1, partitions);
            }
            Step::Recreate(number) => self.world.catalog.set("t3", number, 2),
            Step::Sleep(ms) => {
                self.world.sleep(ms);
                // A member that was thrown out stops by its own clock.
                for (place, client) in self.clients.iter_mut().enumerate() {
                    let id = format!("m{place}");
                    if client.is_in && !self.world.group.members.contains_key(id.as_str()) {
                        client.epoch = 0;
                        client.consumes.clear();
                        client.told.clear();
                    }
                }
            }
        }
    }

    fn check(&self) {
        let mut owned = BTreeSet::new();
        for client in &self.clients {
            for place in &client.consumes {
                assert!(owned.insert(*place), "{place:?} is consumed twice: {:?}", self.clients);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..12 {
            // Who is thrown out meanwhile stops here as well.
            self.step(&Step::Sleep(2_000));
            for place in 0..self.clients.len() {
                self.beat(place, false, true);
                self.check();
                self.give_up(place);
            }
        }
        let is_in = self.clients.iter().any(|client| client.is_in);
        assert_eq!(self.world.state(), if is_in { "Stable" } else { "Empty" });
        for (place, client) in self.clients.iter().enumerate().filter(|(_, client)| client.is_in) {
            let id = format!("m{place}");
            let target = &self.world.group.targets[id.as_str()];
            let target = target.iter().flat_map(|(id, of)| of.iter().map(|it| (*id, *it)));
            assert_eq!(client.consumes, target.collect(), "{id}");
        }
        let subscribed: BTreeSet<&str> = self
            .clients
            .iter()
            .flat_map(|client| client.names.iter().copied().filter(|_| client.is_in))
            .collect();
        let counts = subscribed.iter().filter_map(|name| self.world.catalog.by_name(name));
        let total: i32 = counts.map(|topic| topic.partitions).sum();
        let consumed: usize = self.clients.iter().map(|client| client.consumes.len()).sum();
        assert_eq!(i32::try_from(consumed), Ok(total));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_partition_has_two_owners(steps in steps(), interval in any::<bool>()) {
        let mut world = World::new();
        world.assignment_interval_ms = if interval { 1_000 } else { 0 };
        let mut play = Play { world, clients: vec![Client::default(); 5] };
        for step in &steps {
            play.step(step);
            play.check();
        }
        play.settle();
        // Any prefix of the log makes a group, whatever it is cut off from.
        let log = play.world.log.clone();
        let mut replayed = ConsumerGroup::new("g".into());
        for change in &log {
            replayed.apply(change);
            let _ = replayed.state();
        }
        prop_assert_eq!(replayed, play.world.group);
    }
}
