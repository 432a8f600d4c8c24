//! What a single fault of the disk does to clients: who is refused, who goes on, and that nothing
//! acknowledged is lost once the fault is gone.

use std::rc::Rc;

use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, TopicPartition};
use ringlog::log::layout;
use ringlog::shard::Shard;
use ringlog::shard::endpoint::Endpoint;
use ringlog::shard::message::{Operation, Reply};
use ringlog::shard::partition::Availability;
use ringlog::sim::Operation as DiskOperation;

use crate::machine::Cluster;
use crate::oracle;
use crate::scenario::Machine;

/// A machine with topics and records, and no faults yet.
fn prepared(seed: u64) -> (Machine, Rc<Cluster>) {
    let mut machine = Machine::new(seed);
    machine.durability = "power-loss";
    machine.mix.topic_changes = 0;
    machine.mix.deletions = false;
    machine.mix.large_bytes_max = 5_000;
    let cluster = machine.boot().expect("a boot");
    machine.check(&cluster).expect("a sound boot");
    for _ in 0..4 {
        let front = Rc::clone(&cluster.shards[0]);
        let mut client = machine.client(&cluster);
        machine.world.run_until(client.create(&front)).expect("no stall").expect("created");
    }
    machine.start_clients(&cluster, &Rc::default(), 20);
    machine.world.run_for(1_000).expect("no stall");
    machine.oracle.borrow().check().expect("no violation");
    (machine, cluster)
}

/// Appends one record; the answer.
fn append(
    machine: &mut Machine,
    cluster: &Rc<Cluster>,
    tp: TopicPartition,
) -> Result<(), ErrorCode> {
    let mut client = machine.client(cluster);
    machine.world.run_until(client.append_one(&cluster.shards[0], tp)).expect("no stall")
}

fn read_code(machine: &Machine, front: &Rc<Shard>, tp: TopicPartition) -> ErrorCode {
    let read = oracle::read(front, tp, Offset(0), 1_000);
    machine.world.run_until(read).expect("no stall").expect("an answer").error
}

fn checkpoint(machine: &Machine, shard: &Rc<Shard>) -> bool {
    let asked = shard.ask(shard.id, Operation::Checkpoint);
    matches!(machine.world.run_until(asked).expect("no stall"), Reply::Done(true))
}

/// Restarts without faults: everything acknowledged is there.
fn restart_and_check(machine: &mut Machine) -> Rc<Cluster> {
    machine.disk.plan(|plan| {
        plan.rules.clear();
        plan.full = false;
    });
    machine.crash();
    let cluster = machine.boot().expect("a boot");
    machine.check(&cluster).expect("nothing is lost");
    cluster
}

/// What a probe of the metrics endpoint is told.
fn readiness(machine: &Machine, front: &Rc<Shard>) -> Result<(), &'static str> {
    let endpoint = Endpoint::new(Rc::clone(&front.runtime));
    let deadline = front.runtime.now().plus_ms(5_000);
    let asked = async {
        assert_eq!(endpoint.readiness(deadline).await, Err("starting\n"));
        endpoint.attach(front);
        assert_eq!(endpoint.readiness(deadline).await, Err("starting\n"));
        endpoint.serve_from_now_on();
        endpoint.readiness(deadline).await
    };
    machine.world.run_until(asked).expect("no stall")
}

#[test]
fn a_failed_journal_write_ends_appends_of_its_shard_and_nothing_else() {
    for seed in 0..5 {
        let (mut machine, cluster) = prepared(seed);
        let tp = machine.oracle.borrow().usable()[0];
        let front = Rc::clone(&cluster.shards[0]);
        assert_eq!(readiness(&machine, &front), Ok(()));
        let owner = front.owner(tp).expect("an owner");
        machine.disk.plan(|plan| {
            plan.fail_once(DiskOperation::Write, &format!("journal/rings/{owner}."), 0);
        });
        assert_eq!(append(&mut machine, &cluster, tp), Err(ErrorCode::KafkaStorageError));
        let failed = Err("the storage has failed: records are refused\n");
        assert_eq!(readiness(&machine, &front), failed, "seed {seed}");
        let usable = machine.oracle.borrow().usable();
        for other in usable {
            let broken = front.owner(other) == Some(owner);
            let expected = if broken { Err(ErrorCode::KafkaStorageError) } else { Ok(()) };
            assert_eq!(append(&mut machine, &cluster, other), expected, "seed {seed}");
            assert_eq!(read_code(&machine, &front, other), ErrorCode::None, "seed {seed}");
        }
        let cluster = restart_and_check(&mut machine);
        assert_eq!(append(&mut machine, &cluster, tp), Ok(()));
    }
}

#[test]
fn a_failed_segment_write_takes_one_partition_offline_and_loses_nothing() {
    for seed in 0..5 {
        let (mut machine, cluster) = prepared(seed);
        let usable = machine.oracle.borrow().usable();
        let tp = usable[0];
        let front = Rc::clone(&cluster.shards[0]);
        let owner = Rc::clone(&cluster.shards[usize::from(front.owner(tp).expect("owner").0)]);
        // Some of it is in segments and named by an image, some is not.
        assert!(checkpoint(&machine, &owner));
        let partition = owner.partition(tp).expect("a partition");
        assert_eq!(append(&mut machine, &cluster, tp), Ok(()));
        owner.write_behind.queue(&partition);
        machine.world.run_for(100).expect("no stall");
        assert_eq!(append(&mut machine, &cluster, tp), Ok(()));
        let topic = partition.topic.borrow().name.to_string();
        let data_dir = &owner.context.data_dir;
        let directory = layout::partition_directory(data_dir, &topic, tp.partition);
        let directory = format!("{}/", directory.display());
        machine.disk.plan(|plan| plan.fail_always(DiskOperation::Write, &directory));
        assert!(checkpoint(&machine, &owner), "the checkpoint goes on without it");
        assert!(matches!(*partition.availability.borrow(), Availability::Offline(_)));
        for &other in &usable {
            let expected = match other == tp {
                true => (Err(ErrorCode::KafkaStorageError), ErrorCode::KafkaStorageError),
                false => (Ok(()), ErrorCode::None),
            };
            let appended = append(&mut machine, &cluster, other);
            let read = read_code(&machine, &front, other);
            assert_eq!((appended, read), expected, "seed {seed}");
        }
        assert!(checkpoint(&machine, &owner));
        let cluster = restart_and_check(&mut machine);
        assert_eq!(append(&mut machine, &cluster, tp), Ok(()));
        restart_and_check(&mut machine);
    }
}

#[test]
fn a_full_disk_refuses_records_until_space_returns() {
    for seed in 0..5 {
        let (mut machine, cluster) = prepared(seed);
        let usable = machine.oracle.borrow().usable();
        let front = Rc::clone(&cluster.shards[0]);
        for &tp in &usable {
            assert_eq!(append(&mut machine, &cluster, tp), Ok(()));
        }
        machine.disk.plan(|plan| plan.full = true);
        for shard in &cluster.shards {
            shard.checkpoints.request();
        }
        machine.world.run_for(1_000).expect("no stall");
        let told: Vec<_> = usable.iter().map(|&tp| append(&mut machine, &cluster, tp)).collect();
        assert!(front.space.is_full(), "seed {seed}: a checkpoint needs space");
        assert_eq!(told, vec![Err(ErrorCode::KafkaStorageError); usable.len()], "seed {seed}");
        machine.disk.plan(|plan| plan.full = false);
        machine.world.run_for(1_000).expect("no stall");
        for &tp in &usable {
            assert_eq!(append(&mut machine, &cluster, tp), Ok(()), "seed {seed}");
            assert_eq!(read_code(&machine, &front, tp), ErrorCode::None);
        }
        let verified = oracle::verify_records(&cluster, &machine.oracle);
        machine.world.run_until(verified).expect("no stall").expect("nothing is lost");
        restart_and_check(&mut machine);
    }
}
