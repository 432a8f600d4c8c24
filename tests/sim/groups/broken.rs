//! What groups are told while the journal is broken: nothing that a restart takes back.

use std::cell::Cell;
use std::rc::Rc;

use ringlog::ids::ShardId;
use ringlog::metadata::image::CONSUMER_OFFSETS;
use ringlog::sim::{Network, Operation};

use super::member::PATIENCE_MS;
use super::{BY_HAND, FIRST_TOPIC, topic_of};
use crate::caller::Caller;
use crate::life::create_topics;
use crate::machine::Cluster;
use crate::scenario::Machine;
use crate::support::groups::delete as delete_groups;
use crate::support::offsets::{commit, delete, fetch};

/// A client beside a cluster, and what it asks of one group.
struct Asker<'a> {
    machine: &'a Machine,
    caller: Caller,
}

impl<'a> Asker<'a> {
    fn of(machine: &'a mut Machine, cluster: &Rc<Cluster>) -> Asker<'a> {
        let network = Network::of(&machine.world);
        let runtime = machine.world.runtime(ShardId(CLIENTS));
        let random = machine.random.fork();
        let calm = Rc::new(Cell::new(true));
        let mut caller = Caller::new(cluster, &network, runtime, random, &calm);
        caller.aim_at_keeper(CONSUMER_OFFSETS, BY_HAND);
        Asker { machine, caller }
    }

    fn ask<R: kafka_protocol::protocol::Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> R::Response {
        let asked = self.caller.ask(version, request, PATIENCE_MS);
        self.machine.world.run_until(asked).expect("no stall").expect("an answer")
    }

    fn commit(&mut self, at: i64) -> i16 {
        let topic = topic_of(&self.caller.cluster, FIRST_TOPIC);
        let answer = self.ask(9, &commit(9, BY_HAND, &topic, 0, at));
        answer.topics[0].partitions[0].error_code
    }

    /// Code and offset; of the whole group if there is nothing else.
    fn fetch(&mut self) -> (i16, i64) {
        let topic = topic_of(&self.caller.cluster, FIRST_TOPIC);
        let answer = self.ask(9, &fetch(9, BY_HAND, &topic, &[0]));
        let group = &answer.groups[0];
        let partition = group.topics.first().map(|topic| &topic.partitions[0]);
        let code = partition.map_or(group.error_code, |partition| partition.error_code);
        (code, partition.map_or(-1, |partition| partition.committed_offset))
    }

    fn delete_offset(&mut self) -> i16 {
        let answer = self.ask(0, &delete(BY_HAND, FIRST_TOPIC, &[0]));
        let partition = answer.topics.first().map(|topic| &topic.partitions[0]);
        partition.map_or(answer.error_code, |partition| partition.error_code)
    }

    fn delete_group(&mut self) -> i16 {
        self.ask(2, &delete_groups(&[BY_HAND])).results[0].error_code
    }

    /// Asks until the group is loaded.
    fn loaded(&mut self) -> (i16, i64) {
        for _ in 0..100 {
            let told = self.fetch();
            if told.0 != LOADING {
                return told;
            }
            self.machine.world.run_for(10).expect("no stall");
        }
        (LOADING, -1)
    }
}

/// A deletion that finds nothing, because one before it has taken it away, is as durable as that
/// one: with a broken journal it is none, whether the offset or the group is asked for.
#[test]
fn a_deletion_after_one_that_failed_is_not_done_either() {
    let mut is_back = [0, 0];
    for (seed, of_group) in (0..12).map(|seed| (seed, seed % 2 == 1)) {
        let mut machine = Machine::new(seed);
        machine.durability = "power-loss";
        let cluster = machine.boot().expect("a boot");
        create_topics(&machine, &cluster, &[(FIRST_TOPIC, 1)]).expect("topics");
        let disk = machine.disk.clone();
        let mut asker = Asker::of(&mut machine, &cluster);
        assert_eq!(asker.loaded(), (0, -1));
        assert_eq!(asker.commit(5), 0);
        let owner = asker.caller.aim.expect("a keeper");
        disk.plan(|plan| plan.fail_always(Operation::Write, &format!("journal/rings/{owner}.")));
        for _ in 0..3 {
            let code = if of_group { asker.delete_group() } else { asker.delete_offset() };
            assert_eq!(code, NOT_AVAILABLE, "seed {seed}");
        }
        disk.plan(|plan| plan.rules.clear());
        machine.crash();
        let cluster = machine.boot().expect("a boot");
        let mut asker = Asker::of(&mut machine, &cluster);
        // What a write has done that failed nobody knows; nobody was told.
        let told = asker.loaded();
        if told != (0, 5) {
            assert_eq!(told, (0, -1), "seed {seed}");
            continue;
        }
        is_back[usize::from(of_group)] += 1;
        let code = if of_group { asker.delete_group() } else { asker.delete_offset() };
        assert_eq!((code, asker.fetch()), (0, (0, -1)), "seed {seed}");
    }
    assert!(is_back.iter().all(|&count| count > 0), "{is_back:?}");
}

/// Clients are on a core of their own.
const CLIENTS: u16 = 100;

const LOADING: i16 = 14;
const NOT_AVAILABLE: i16 = 15;
