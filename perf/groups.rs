//! What groups cost: an OffsetCommit beside a durable produce, and a rebalance of many members.
//!
//! Owns members of the classic protocol, a connection each, all driven by one thread: their
//! JoinGroups are parked by the broker, so they are all sent before the first is answered. The
//! leader assigns here, range by range: that is its time, not the broker's.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use clap::Args;
use hdrhistogram::Histogram;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest,
    SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::calibrate::Floors;
use super::client::{Client, Coordinator, Fault, accept, frame_of, produce_error, produce_frame};
use super::load::{self, Load};
use super::measure::{Usage, median};
use super::metrics::JOURNAL_COMMITS;
use super::report::{Report, figures, number};
use super::target::{Server, Target};

/// Options of `run groups`.
#[derive(Args, Clone, Debug)]
pub struct GroupsArguments {
    #[command(flatten)]
    target: Target,
    /// Members, a group for each; growth shows when they double
    #[arg(long, value_delimiter = ',', default_value = "250,500,1000")]
    members: Vec<usize>,
    /// Partitions that a member is to have
    #[arg(long, default_value_t = 10)]
    partitions_per_member: usize,
    /// Rebalances of each group
    #[arg(long, default_value_t = 7)]
    rebalances: usize,
    /// Length of the comparison of commits
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Size of a group.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub members: usize,
    /// Partitions that they share.
    pub partitions: i32,
    pub rebalances: usize,
}

/// Takes all figures and prints the report.
pub fn run(arguments: &GroupsArguments) -> Result<(), Fault> {
    let server = arguments.target.server()?;
    let mut report = Report::new("groups");
    report.add_all(Floors::take(&arguments.target.own.data_dir, server.core)?.figures());
    let (commit, produce) = commit_and_produce(&server, Duration::from_secs(arguments.seconds))?;
    for (name, times) in [("offset_commit", &commit), ("produce", &produce)] {
        let us = |quantile| number(times.value_at_quantile(quantile) as f64 / 1e3);
        report.add(&format!("{name}_p50_us"), us(0.5));
        report.add(&format!("{name}_p99_us"), us(0.99));
    }
    for &members in &arguments.members {
        let partitions = i32::try_from(members * arguments.partitions_per_member)?;
        let size = Size { members, partitions, rebalances: arguments.rebalances };
        let rebalanced = rebalance(&server, size)?;
        report.row(figures([
            ("members", members.into()),
            ("partitions", partitions.into()),
            ("rebalance_median_ms", number(median(&rebalanced.wall_ms))),
            ("rebalance_slowest_ms", number(rebalanced.slowest_ms())),
            ("join_median_ms", number(median(&rebalanced.join_ms))),
            ("broker_cpu_median_ms", number(median(&rebalanced.cpu_ms))),
            ("heartbeat_journal_commits", number(rebalanced.heartbeat_commits)),
            ("heartbeat_cpu_us", number(rebalanced.heartbeat_cpu_us)),
        ]));
    }
    report.print(arguments.json);
    Ok(())
}

/// Times of OffsetCommits and of durable produces, in turns, nanoseconds each.
pub fn commit_and_produce(
    server: &Server,
    time: Duration,
) -> Result<(Histogram<u64>, Histogram<u64>), Fault> {
    let address = server.address.clone();
    let core = server.core;
    let run = move || -> Result<_, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let mut client = Client::connect(&address)?;
        let leaders = client.leaders("commits", 1)?;
        let mut producer = Client::connect(&leaders[0])?;
        let frame = produce_frame("commits", 0, -1, &load::batch(&Load::one("commits", 0)));
        let mut committer = client.coordinator(Coordinator::Group, "perf")?;
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(1);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(text("commits")))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text("perf")))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        let code = |answer: &kafka_protocol::messages::OffsetCommitResponse| {
            answer
                .topics
                .first()
                .and_then(|topic| topic.partitions.first())
                .map_or(-1, |it| it.error_code)
        };
        accept("OffsetCommit", code(&committer.ask_loaded(8, &request, code)?))?;
        let (mut commits, mut produces) = (Histogram::new(3)?, Histogram::new(3)?);
        let begun = Instant::now();
        while begun.elapsed() < time {
            let sent = Instant::now();
            producer.send(&frame)?;
            accept("Produce", produce_error(producer.receive()?, "commits"))?;
            produces.record(sent.elapsed().as_nanos() as u64)?;
            let sent = Instant::now();
            accept("OffsetCommit", code(&committer.ask(8, &request)?))?;
            commits.record(sent.elapsed().as_nanos() as u64)?;
        }
        Ok((commits, produces))
    };
    std::thread::spawn(run).join().map_err(|_| "the committer's thread failed")?
}

/// What rebalances took.
#[derive(Default)]
pub struct Rebalanced {
    /// From the first JoinGroup sent to the last SyncGroup answered.
    pub wall_ms: Vec<f64>,
    /// From the first JoinGroup sent to the last one answered.
    pub join_ms: Vec<f64>,
    /// CPU time of the broker.
    pub cpu_ms: Vec<f64>,
    /// Journal blocks that a heartbeat of every member has cost.
    pub heartbeat_commits: f64,
    /// CPU time of the broker for one heartbeat.
    pub heartbeat_cpu_us: f64,
}

impl Rebalanced {
    pub fn slowest_ms(&self) -> f64 {
        self.wall_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// Has a group of many members rebalance a few times.
pub fn rebalance(server: &Server, size: Size) -> Result<Rebalanced, Fault> {
    let address = server.address.clone();
    let core = server.core;
    let pid = server.pid;
    let name = format!("members-{}", size.members);
    let run = move || -> Result<(Vec<Member>, Rebalanced), Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let mut client = Client::connect(&address)?;
        client.leaders(&name, size.partitions)?;
        let mut members = gather(&mut client, &name, size)?;
        let mut rebalanced = Rebalanced::default();
        for round in 0..size.rebalances {
            let (begun, before) = (Instant::now(), Usage::of(pid));
            let leader = members.iter().position(|member| member.leads).ok_or("no leader")?;
            members.swap(0, leader);
            rejoin_all(&mut members)?;
            rebalanced.join_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            sync_all(&mut members, size.partitions)?;
            rebalanced.wall_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            rebalanced.cpu_ms.push(Usage::of(pid).since(&before).cpu_seconds * 1e3);
            eprintln!("rebalance {}/{}", round + 1, size.rebalances);
        }
        Ok((members, rebalanced))
    };
    let (mut members, mut rebalanced) =
        std::thread::spawn(run).join().map_err(|_| "the members' thread failed")??;
    let (metrics, before) = (server.scrape()?, server.usage());
    for member in &mut members {
        member.send_heartbeat()?;
    }
    for member in &mut members {
        accept(
            "Heartbeat",
            member.client.answer::<HeartbeatRequest>(HEARTBEAT_VERSION)?.error_code,
        )?;
    }
    let used = server.usage().since(&before);
    rebalanced.heartbeat_cpu_us = used.cpu_seconds * 1e6 / members.len() as f64;
    rebalanced.heartbeat_commits = server.scrape()?.since(&metrics, JOURNAL_COMMITS);
    Ok(rebalanced)
}

/// One member and its connection.
struct Member {
    client: Client,
    /// Name of its group and of the topic.
    group: StrBytes,
    id: StrBytes,
    generation: i32,
    leads: bool,
    /// Of the leader: who else there is.
    others: Vec<StrBytes>,
}

impl Member {
    fn send_join(&mut self) -> Result<(), Fault> {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(subscription(&self.group));
        let request = JoinGroupRequest::default()
            .with_group_id(GroupId(self.group.clone()))
            .with_session_timeout_ms(45_000)
            .with_rebalance_timeout_ms(60_000)
            .with_member_id(self.id.clone())
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.client.send(&frame_of(JOIN_VERSION, &request)?)
    }

    fn receive_join(&mut self) -> Result<(), Fault> {
        let joined: JoinGroupResponse = self.client.answer::<JoinGroupRequest>(JOIN_VERSION)?;
        accept("JoinGroup", joined.error_code)?;
        self.leads = joined.leader == joined.member_id;
        self.generation = joined.generation_id;
        self.others = joined.members.into_iter().map(|member| member.member_id).collect();
        Ok(())
    }

    fn send_sync(&mut self, partitions: i32) -> Result<(), Fault> {
        let mut request = SyncGroupRequest::default()
            .with_group_id(GroupId(self.group.clone()))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")));
        let count = self.others.len() as i32;
        for (place, id) in self.others.drain(..).enumerate() {
            let share = |place: i32| place * (partitions / count) + place.min(partitions % count);
            let (first, end) = (share(place as i32), share(place as i32 + 1));
            request.assignments.push(
                SyncGroupRequestAssignment::default()
                    .with_member_id(id)
                    .with_assignment(assignment(&self.group, first..end)),
            );
        }
        self.client.send(&frame_of(SYNC_VERSION, &request)?)
    }

    fn send_heartbeat(&mut self) -> Result<(), Fault> {
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(self.group.clone()))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone());
        self.client.send(&frame_of(HEARTBEAT_VERSION, &request)?)
    }
}

/// The members, all in one generation.
fn gather(client: &mut Client, name: &str, size: Size) -> Result<Vec<Member>, Fault> {
    // Only so long does a coordinator that is new take.
    let probe = HeartbeatRequest::default().with_group_id(GroupId(text(name)));
    let mut coordinator = client.coordinator(Coordinator::Group, name)?;
    coordinator.ask_loaded(HEARTBEAT_VERSION, &probe, |answer| answer.error_code)?;
    let mut members = Vec::with_capacity(size.members);
    for _ in 0..size.members {
        let client = client.coordinator(Coordinator::Group, name)?;
        client.wait_at_most(Duration::from_secs(60))?;
        let (group, id) = (text(name), StrBytes::default());
        let others = Vec::new();
        members.push(Member { client, group, id, generation: -1, leads: false, others });
    }
    // The first join gives out member ids.
    for member in &mut members {
        member.send_join()?;
    }
    for member in &mut members {
        member.id = member.client.answer::<JoinGroupRequest>(JOIN_VERSION)?.member_id;
    }
    join_all(&mut members)?;
    sync_all(&mut members, size.partitions)?;
    Ok(members)
}

/// The leader joins, the others learn of it by a heartbeat, and join.
fn rejoin_all(members: &mut [Member]) -> Result<(), Fault> {
    let (leader, others) = members.split_first_mut().ok_or("a group has members")?;
    leader.send_join()?;
    if let Some(first) = others.first_mut() {
        loop {
            first.send_heartbeat()?;
            match first.client.answer::<HeartbeatRequest>(HEARTBEAT_VERSION)?.error_code {
                REBALANCE_IN_PROGRESS => break,
                code => accept("Heartbeat", code)?,
            }
        }
    }
    others.iter_mut().try_for_each(Member::send_join)?;
    members.iter_mut().try_for_each(Member::receive_join)
}

fn join_all(members: &mut [Member]) -> Result<(), Fault> {
    for member in members.iter_mut() {
        member.send_join()?;
    }
    members.iter_mut().try_for_each(Member::receive_join)
}

fn sync_all(members: &mut [Member], partitions: i32) -> Result<(), Fault> {
    for member in members.iter_mut() {
        member.send_sync(partitions)?;
    }
    for member in members {
        accept("SyncGroup", member.client.answer::<SyncGroupRequest>(SYNC_VERSION)?.error_code)?;
    }
    Ok(())
}

/// A consumer's metadata that names one topic.
fn subscription(topic: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_i16(topic.len() as i16);
    bytes.put_slice(topic.as_bytes());
    bytes.put_i32(-1);
    bytes.put_i32(0);
    bytes.into()
}

/// A consumer's assignment of some partitions of one topic.
fn assignment(topic: &str, partitions: std::ops::Range<i32>) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_i16(topic.len() as i16);
    bytes.put_slice(topic.as_bytes());
    bytes.put_i32(partitions.end - partitions.start);
    partitions.for_each(|partition| bytes.put_i32(partition));
    bytes.put_i32(-1);
    bytes.into()
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

const JOIN_VERSION: i16 = 7;
const SYNC_VERSION: i16 = 5;
const HEARTBEAT_VERSION: i16 = 4;
const REBALANCE_IN_PROGRESS: i16 = 27;
