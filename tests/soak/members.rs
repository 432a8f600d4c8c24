//! Members of classic groups: they join, read committed records, commit what they have read, and
//! leave now and then. After every crash the group must have what was committed last.

use crate::TOPICS;
use crate::random::Random;
use crate::reader::{fetch_committed, start};
use crate::stage::{COORDINATOR_LOAD_IN_PROGRESS, Node, Session, Stage, pause};
use crate::support::groups;
use crate::support::offsets::{self, OffsetCommit, text};
use crate::support::requests::Topic;
use crate::support::transactions::GROUP;

/// One member with a group of its own.
pub struct Member<'a> {
    stage: &'a Stage,
    session: Session<'a>,
    random: Random,
    group: String,
    partition: i32,
    /// The member id and the generation.
    joined: (String, i32),
    /// What was committed last; -1 is nothing.
    committed: i64,
    position: i64,
}

impl<'a> Member<'a> {
    /// A member that reads this partition of the first topic.
    pub fn new(stage: &'a Stage, partition: i32, seed: u64) -> Member<'a> {
        Member {
            stage,
            session: Session::begin(stage),
            random: Random::new(seed ^ 0x6d65_6d62),
            group: format!("readers-{partition}"),
            partition,
            joined: (String::new(), -1),
            committed: -1,
            position: 0,
        }
    }

    /// Reads until the end.
    pub fn run(mut self) {
        let mut generation = self.session.generation();
        self.join();
        self.resume();
        while !self.stage.is_ending() {
            self.read();
            if self.random.one_in(3) {
                self.commit();
            }
            if self.session.generation() != generation {
                generation = self.session.generation();
                self.resume();
            }
            if self.random.one_in(200) {
                self.leave();
                self.join();
                self.resume();
            }
            pause(20);
        }
    }

    fn join(&mut self) {
        let node = Node::Coordinator(GROUP, &self.group);
        let mut id = String::new();
        let joined = loop {
            let answer = self.session.call(node, 9, &groups::join(9, &self.group, &id));
            match answer.error_code {
                0 => break answer,
                MEMBER_ID_REQUIRED => id = answer.member_id.to_string(),
                // The broker forgets ids that it has only handed out.
                UNKNOWN_MEMBER_ID => id.clear(),
                code => assert_eq!(code, COORDINATOR_LOAD_IN_PROGRESS, "JoinGroup"),
            }
        };
        let (id, generation) = (joined.member_id.to_string(), joined.generation_id);
        let request = groups::sync(5, &self.group, (&id, generation), &[(&id, b"all")]);
        let code = loop {
            let answer = self.session.call(node, 5, &request);
            if answer.error_code != COORDINATOR_LOAD_IN_PROGRESS {
                break answer.error_code;
            }
            pause(5);
        };
        self.joined = (id, generation);
        if code != 0 {
            // A crash between the two: the group was not stored with this member.
            assert!(LOST.contains(&code), "SyncGroup is answered with {code}");
            self.join();
        }
    }

    fn leave(&mut self) {
        let request = groups::leave(5, &self.group, &self.joined.0, None);
        let answer = self.session.call(Node::Coordinator(GROUP, &self.group), 5, &request);
        let code = answer.error_code;
        assert!(code == 0 || code == COORDINATOR_LOAD_IN_PROGRESS, "LeaveGroup: {code}");
    }

    /// Goes on from what was committed.
    fn resume(&mut self) {
        let request = offsets::fetch(9, &self.group, &Topic::named(TOPICS[0].0), &[self.partition]);
        let found = loop {
            let answer = self.session.call(Node::Coordinator(GROUP, &self.group), 9, &request);
            match answer.groups[0].error_code {
                0 => break answer.groups[0].topics[0].partitions[0].committed_offset,
                code => assert_eq!(code, COORDINATOR_LOAD_IN_PROGRESS, "OffsetFetch"),
            }
            pause(5);
        };
        assert_eq!(found, self.committed, "{}", self.group);
        self.position = found.max(0);
    }

    fn read(&mut self) {
        let topic = TOPICS[0].0;
        let from = self.position;
        match fetch_committed(&mut self.session, topic, self.partition, from, 50) {
            Some(fetched) => {
                let range = (from, fetched.next);
                self.stage.book().shown(topic, self.partition, range, &fetched.records);
                self.position = fetched.next;
            }
            None => {
                let start = start(&mut self.session, topic, self.partition);
                assert!(start > from, "{topic}-{}: {from} is out of range", self.partition);
                self.position = start;
            }
        }
    }

    /// Commits the position as a member; joins again where a crash has undone the membership.
    fn commit(&mut self) {
        loop {
            let request = self.commit_request();
            let answer = self.session.call(Node::Coordinator(GROUP, &self.group), 9, &request);
            match answer.topics[0].partitions[0].error_code {
                0 => break,
                COORDINATOR_LOAD_IN_PROGRESS => pause(5),
                code => {
                    assert!(LOST.contains(&code), "OffsetCommit is answered with {code}");
                    self.join();
                }
            }
        }
        self.committed = self.position;
        self.stage.book().totals.offsets_committed += 1;
        let beat = groups::heartbeat(&self.group, &self.joined.0, self.joined.1);
        let code = self.session.call(Node::Coordinator(GROUP, &self.group), 4, &beat).error_code;
        let fine = code == 0 || code == COORDINATOR_LOAD_IN_PROGRESS || LOST.contains(&code);
        assert!(fine, "Heartbeat is answered with {code}");
    }

    fn commit_request(&self) -> OffsetCommit {
        let topic = Topic::named(TOPICS[0].0);
        let mut request = offsets::commit(9, &self.group, &topic, self.partition, self.position);
        request.0.member_id = text(&self.joined.0);
        request.0.generation_id_or_member_epoch = self.joined.1;
        // Long enough that the internal topic has to be compacted.
        request.0.topics[0].partitions[0].committed_metadata = Some(text(&"m".repeat(1500)));
        request
    }
}

/// UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS: join again.
const LOST: &[i16] = &[25, 22, 27];
const UNKNOWN_MEMBER_ID: i16 = 25;
const MEMBER_ID_REQUIRED: i16 = 79;
