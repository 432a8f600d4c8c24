//! Members of groups that read and commit what they have read.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::history::{Group, Log, Ns, Process};
use crate::link::Link;
use crate::member::{Member, committed};
use crate::random::Random;
use crate::reader::Reading;
use crate::run::Run;

/// Where a member is in one partition that it has.
#[derive(Clone, Copy)]
pub struct Position {
    /// Since when it has it.
    pub since: Ns,
    /// Who reads: another one for each time that it is given the partition.
    pub process: Process,
    pub next: i64,
    /// What the group has committed.
    pub committed: i64,
}

/// One member.
pub struct Consumer<'a> {
    link: Link<'a>,
    member: Member,
    positions: BTreeMap<Log, Position>,
    random: Random,
}

impl<'a> Consumer<'a> {
    pub fn new(
        run: &'a Run,
        client: usize,
        (group, topic, is_classic): (Group, u8, bool),
        seed: u64,
    ) -> Consumer<'a> {
        let link = Link::new(run, client);
        let member = Member::new(&link, group, topic, is_classic);
        Consumer { link, member, positions: BTreeMap::new(), random: Random::new(seed) }
    }

    /// Reads until the end.
    pub fn run(mut self) {
        let mut committed = Instant::now();
        while !self.link.run.is_ending() {
            self.member.tick(&mut self.link);
            if self.member.is_asked_to_give_up() {
                self.commit();
            }
            follow(&mut self.link, &self.member, &mut self.positions);
            self.read();
            if committed.elapsed() > COMMIT_EVERY {
                self.commit();
                committed = Instant::now();
            }
            if self.random.one_in(LEAVES_ONE_IN) {
                self.member.leave(&mut self.link);
            } else if self.random.one_in(LEAVES_ONE_IN) {
                // As if its process had died.
                self.member.lose(&self.link);
            }
            sleep(Duration::from_millis(5));
        }
        self.commit();
        self.member.leave(&mut self.link);
    }

    fn read(&mut self) {
        for (log, position) in &mut self.positions {
            let reading = Reading::committed(position.process, *log);
            if let Some(fetched) = reading.read(&mut self.link, position.next, 0) {
                position.next = fetched.next;
            }
        }
    }

    fn commit(&mut self) {
        for (log, position) in &mut self.positions {
            let is_held = self.member.held().contains(&(*log, position.since));
            if is_held && position.next > position.committed {
                self.member.commit(&mut self.link, *log, position.next);
                position.committed = position.next;
            }
        }
    }
}

/// Drops what the member has no more, and begins with what it was given where the group is.
pub fn follow(link: &mut Link<'_>, member: &Member, positions: &mut BTreeMap<Log, Position>) {
    let held = member.held();
    positions.retain(|log, position| held.contains(&(*log, position.since)));
    for (log, since) in held {
        if positions.contains_key(&log) {
            continue;
        }
        let process = link.run.process();
        if let Some(committed) = committed(link, member.group, log, process) {
            let next = committed.max(0);
            positions.insert(log, Position { since, process, next, committed });
        }
    }
}

const COMMIT_EVERY: Duration = Duration::from_millis(150);
const LEAVES_ONE_IN: usize = 600;
