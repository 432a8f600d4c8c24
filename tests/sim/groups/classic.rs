//! Members of classic groups: they join, sync, say that they are there, commit, leave, are silent,
//! die, and go on as zombies.
//!
//! Owns what a member's process knows, which outlives the broker. The leader assigns every
//! partition of the one topic, with a number that says which assignment it is. Must never hold a
//! borrow over an await.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{GroupId, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse};
use ringlog::ids::TopicId;

use super::member::{Client, Credentials, Sense, Stale, sense};
use super::owners::Who;
use super::{FIRST_TOPIC, partitions_of, topic_of};
use crate::support::groups::{heartbeat, join, leave, subscription};
use crate::support::offsets::text;

/// One process.
#[derive(Clone, Default)]
pub struct Process {
    pub instance: Option<String>,
    pub member_id: String,
    /// `None` before it has joined.
    pub generation: Option<i32>,
    /// What it has in this generation; `None` before it knows.
    pub assigned: Option<Vec<i32>>,
    /// What the leader assigns.
    to_assign: Vec<(String, Bytes)>,
    /// How many partitions were assigned to all members of this generation together.
    pub total: i32,
    /// How many partitions there were when it assigned, or when it came back as a leader whose
    /// assignment stands; `None` if it does not know that it leads.
    pub led: Option<i32>,
    stale: Vec<Stale>,
    tries: u32,
}

/// A process, whether alive or dead, in its place.
pub type Place = Rc<RefCell<Process>>;

/// Whoever runs a member.
pub struct Member {
    pub client: Client,
    pub place: Place,
    /// Its place was taken by another process; it goes on for so many steps.
    pub zombie_steps: Option<u64>,
}

impl Process {
    /// A new process.
    pub fn of(instance: Option<String>) -> Process {
        Process { instance, ..Process::default() }
    }

    /// As what coordinators know it.
    pub fn who(&self) -> Who {
        Who { member_id: self.member_id.clone(), instance: self.instance.clone() }
    }

    fn credentials(&self) -> Credentials {
        let epoch = self.generation.unwrap_or(-1);
        Credentials { who: self.who(), epoch, is_classic: true }
    }

    fn hold(&self, client: &Client, partition: i32) -> Stale {
        Stale {
            by: self.credentials(),
            topic: topic_of(&client.caller.cluster, FIRST_TOPIC),
            place: (client.group.clone(), TopicId::ZERO, partition),
            times_given: 0,
            is_gone: false,
        }
    }

    /// It is not in its generation any more.
    fn leave_generation(&mut self, client: &Client) {
        for partition in self.assigned.take().unwrap_or_default() {
            self.stale.push(self.hold(client, partition));
        }
        let too_many = self.stale.len().saturating_sub(STALE_MAX);
        self.stale.drain(..too_many);
        self.generation = None;
        self.to_assign.clear();
        self.led = None;
        self.tries = 0;
    }
}

impl Member {
    /// Goes on for ever, or as long as a zombie does.
    pub async fn run(mut self) {
        loop {
            if let Some(steps) = &mut self.zombie_steps {
                if *steps == 0 || self.client.is_calm() {
                    return;
                }
                *steps -= 1;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let process = self.place.borrow().clone();
        let (Some(_), joined) = (process.generation, process.assigned.is_some()) else {
            return self.join(&process).await;
        };
        if !joined {
            return self.sync(&process).await;
        }
        if self.client.is_calm() {
            self.client.caller.pause(100).await;
            return match self.client.caller.random.below(8) {
                0 => self.commit(&process).await,
                _ => self.heartbeat(&process).await,
            };
        }
        match self.client.caller.random.below(100) {
            0..20 => self.heartbeat(&process).await,
            20..30 => self.commit(&process).await,
            30..60 => self.client.caller.pause(60).await,
            60..68 => self.commit_stale(&process).await,
            68..71 => self.leave(&process).await,
            71..74 => self.be_silent().await,
            74..77 => self.die(),
            77..80 => self.change(|process, client| process.leave_generation(client)),
            _ => self.client.caller.pause(30).await,
        }
    }

    async fn join(&mut self, process: &Process) {
        let is_static = process.instance.is_some();
        let random = &mut self.client.caller.random;
        let version = match is_static {
            true => [5, 7, 9][random.index(3)],
            false => [1, 3, 4, 6, 9][random.index(5)],
        };
        let mut request = join(version, &self.client.group, &process.member_id)
            .with_session_timeout_ms(SESSION_MS as i32)
            .with_rebalance_timeout_ms(REBALANCE_MS)
            .with_group_instance_id(process.instance.as_deref().map(text));
        request.protocols[0].metadata = subscription(FIRST_TOPIC);
        let known = self.client.around.oracle.borrow().owners.generation(&self.client.group);
        let Some(answer) = self.client.ask(version, &request).await else {
            return self.client.caller.pause(20).await;
        };
        let code = answer.error_code;
        self.client.say(|| {
            let (id, generation) = (answer.member_id.as_str(), answer.generation_id);
            format!("joined as {:?}, {code}: {id} in {generation}", process.member_id)
        });
        match sense(code) {
            Sense::Good if answer.generation_id < known => {
                let told = answer.generation_id;
                self.client.violated(format!("generation {told} comes after {known}"));
            }
            Sense::Good => self.joined(&answer),
            Sense::Refused(MEMBER_ID_REQUIRED) => {
                let id = answer.member_id.to_string();
                self.change(|process, _| process.member_id = id);
            }
            Sense::Refused(UNKNOWN_MEMBER_ID) => self.is_unknown(),
            Sense::Refused(FENCED_INSTANCE_ID) => self.is_replaced(),
            Sense::Refused(REBALANCE_IN_PROGRESS) | Sense::Unknown => {
                self.client.caller.pause(20).await;
            }
            Sense::Refused(_) => self.client.violated(format!("a join is refused with {code}")),
        }
    }

    fn joined(&mut self, answer: &JoinGroupResponse) {
        let id = answer.member_id.to_string();
        // One that comes back keeps what was assigned, and watches from now on, as Java's client.
        let watches = answer.leader == answer.member_id;
        let leads = watches && !answer.skip_assignment;
        let partitions = partitions_of(&self.client.caller.cluster, FIRST_TOPIC);
        let nonce = self.client.caller.random.next().cast_signed();
        let count = answer.members.len();
        let mut to_assign = Vec::new();
        for (at, member) in answer.members.iter().enumerate().filter(|_| leads) {
            let own = (0..partitions).filter(|partition| *partition as usize % count == at);
            let own: Vec<i32> = own.collect();
            to_assign.push((member.member_id.to_string(), assignment(nonce, partitions, &own)));
        }
        let generation = answer.generation_id;
        self.change(|process, _| {
            process.member_id = id;
            process.generation = Some(generation);
            process.to_assign = to_assign;
            process.led = watches.then_some(partitions);
            process.tries = 0;
        });
        if leads {
            let who = self.place.borrow().who();
            let mut oracle = self.client.around.oracle.borrow_mut();
            oracle.owners.leads(&self.client.group, generation, who);
        }
    }

    async fn sync(&mut self, process: &Process) {
        let generation = process.generation.unwrap_or(-1);
        let least = if process.instance.is_some() { 3 } else { 0 };
        let version = (self.client.caller.random.index(6) as i16).max(least);
        let assignments = process.to_assign.iter().map(|(id, assignment)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(id))
                .with_assignment(assignment.clone())
        });
        let mut request = SyncGroupRequest::default()
            .with_group_id(GroupId(text(&self.client.group)))
            .with_generation_id(generation)
            .with_member_id(text(&process.member_id))
            .with_group_instance_id(process.instance.as_deref().map(text))
            .with_assignments(assignments.collect());
        if version >= 5 {
            request.protocol_type = Some(text("consumer"));
            request.protocol_name = Some(text("range"));
        }
        let Some(answer) = self.client.ask(version, &request).await else {
            return self.try_again_or_join().await;
        };
        match sense(answer.error_code) {
            Sense::Good => self.synced(process, generation, &answer),
            Sense::Unknown => self.try_again_or_join().await,
            Sense::Refused(code) => self.lost(code, "a sync"),
        }
    }

    fn synced(&mut self, process: &Process, generation: i32, answer: &SyncGroupResponse) {
        let (nonce, total, partitions) = read_assignment(&answer.assignment);
        self.client.say(|| format!("has {partitions:?} in {generation}"));
        let group = self.client.group.clone();
        let mut oracle = self.client.around.oracle.borrow_mut();
        oracle.counts.synced += 1;
        if let Some(nonce) = nonce {
            let told = (nonce, &partitions[..]);
            let judged = oracle.owners.assigned(&group, generation, &process.who(), told);
            oracle.judge(&self.client.name, judged);
        }
        drop(oracle);
        self.change(|process, _| {
            process.assigned = Some(partitions);
            process.total = total;
            process.to_assign.clear();
            process.tries = 0;
        });
    }

    async fn try_again_or_join(&mut self) {
        self.change(|process, client| {
            process.tries += 1;
            if process.tries > 3 {
                process.leave_generation(client);
            }
        });
        self.client.caller.pause(20).await;
    }

    async fn heartbeat(&mut self, process: &Process) {
        let least = if process.instance.is_some() { 3 } else { 0 };
        let version = (self.client.caller.random.index(5) as i16).max(least);
        let generation = process.generation.unwrap_or(-1);
        let request = heartbeat(&self.client.group, &process.member_id, generation)
            .with_group_instance_id(process.instance.as_deref().map(text));
        let Some(answer) = self.client.ask(version, &request).await else { return };
        let now = partitions_of(&self.client.caller.cluster, FIRST_TOPIC);
        match sense(answer.error_code) {
            // There are more partitions than it has assigned.
            Sense::Good if process.led.is_some_and(|led| led != now) => {
                self.change(|process, client| process.leave_generation(client));
            }
            Sense::Good | Sense::Unknown => {}
            Sense::Refused(code) => {
                let commits =
                    code == REBALANCE_IN_PROGRESS && self.client.caller.random.chance(1, 2);
                if commits {
                    self.commit(process).await;
                }
                self.lost(code, "a heartbeat");
            }
        }
    }

    async fn commit(&mut self, process: &Process) {
        let assigned = process.assigned.clone().unwrap_or_default();
        if assigned.is_empty() {
            return;
        }
        let partition = assigned[self.client.caller.random.index(assigned.len())];
        let hold = process.hold(&self.client, partition);
        let outcome = self.client.commit_as(&hold).await;
        if let Sense::Refused(code) = outcome
            && code != REBALANCE_IN_PROGRESS
        {
            self.lost(code, "a commit");
        }
    }

    async fn commit_stale(&mut self, process: &Process) {
        if process.stale.is_empty() {
            return;
        }
        let stale = &process.stale[self.client.caller.random.index(process.stale.len())];
        self.client.commit_as_of_old(stale).await;
    }

    async fn leave(&mut self, process: &Process) {
        let least = if process.instance.is_some() { 3 } else { 0 };
        let version = (self.client.caller.random.index(6) as i16).max(least);
        let instance = process.instance.as_deref();
        let request = leave(version, &self.client.group, &process.member_id, instance);
        self.client.say(|| "leaves".to_owned());
        self.change(|process, client| process.leave_generation(client));
        let answer = self.client.ask(version, &request).await;
        let left = answer.is_some_and(|answer| answer.error_code == 0);
        self.client.around.oracle.borrow_mut().counts.left += u64::from(left);
        self.change(|process, _| process.member_id.clear());
        self.client.caller.pause(100).await;
    }

    async fn be_silent(&mut self) {
        self.client.around.oracle.borrow_mut().counts.silences += 1;
        self.client.say(|| "is silent".to_owned());
        let longer_ms = self.client.caller.random.below(300);
        let runtime = Rc::clone(&self.client.caller.runtime);
        runtime.sleep_until(runtime.now().plus_ms(SESSION_MS + longer_ms)).await;
    }

    /// The process dies; it may go on all the same, as a zombie beside the one that replaces it.
    fn die(&mut self) {
        if self.zombie_steps.is_some() {
            self.zombie_steps = Some(0);
            return;
        }
        let next = Process::of(self.place.borrow().instance.clone());
        let old = self.place.replace(next);
        self.client.caller.hang_up();
        let name = format!("{}, dead", self.client.name);
        self.client.say(|| "dies".to_owned());
        let zombie = Member {
            client: self.client.fork(name),
            place: Rc::new(RefCell::new(old)),
            zombie_steps: Some(self.client.caller.random.below(12)),
        };
        let runtime = Rc::clone(&self.client.caller.runtime);
        runtime.spawn(Box::pin(zombie.run()));
    }

    /// A code that takes its generation from it.
    fn lost(&mut self, code: i16, what: &str) {
        self.client.say(|| format!("{what} is refused with {code}"));
        match code {
            ILLEGAL_GENERATION | REBALANCE_IN_PROGRESS => {
                self.change(|process, client| process.leave_generation(client));
            }
            UNKNOWN_MEMBER_ID => self.is_unknown(),
            FENCED_INSTANCE_ID => self.is_replaced(),
            _ => self.client.violated(format!("{what} is refused with {code}")),
        }
    }

    fn is_unknown(&mut self) {
        self.client.around.oracle.borrow_mut().counts.fenced += 1;
        self.change(|process, client| {
            process.leave_generation(client);
            process.member_id.clear();
        });
    }

    /// Another process has its instance id: it ends, or begins anew where it is the only one.
    fn is_replaced(&mut self) {
        self.client.around.oracle.borrow_mut().counts.replaced += 1;
        self.is_unknown();
        if self.zombie_steps.is_some() {
            self.zombie_steps = Some(0);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Process, &Client)) {
        change(&mut self.place.borrow_mut(), &self.client);
    }
}

fn assignment(nonce: i64, total: i32, partitions: &[i32]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i64(nonce);
    bytes.put_i32(total);
    for &partition in partitions {
        bytes.put_i32(partition);
    }
    bytes.freeze()
}

fn read_assignment(bytes: &Bytes) -> (Option<i64>, i32, Vec<i32>) {
    let mut bytes = bytes.clone();
    if bytes.len() < 12 {
        return (None, 0, Vec::new());
    }
    let (nonce, total) = (bytes.get_i64(), bytes.get_i32());
    let mut partitions = Vec::new();
    while bytes.len() >= 4 {
        partitions.push(bytes.get_i32());
    }
    (Some(nonce), total, partitions)
}

/// How long a member may be silent.
pub const SESSION_MS: u64 = 400;
const REBALANCE_MS: i32 = 500;

/// Credentials of old that a process remembers.
const STALE_MAX: usize = 6;

const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER_ID: i16 = 25;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;
const FENCED_INSTANCE_ID: i16 = 82;
