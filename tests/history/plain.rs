//! Idempotent producers that belong to no transaction: several batches under way at one time, sent
//! again after every disappointment; now and then one that does not know gives up and begins anew.

use std::io;
use std::iter::repeat;
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest};

use crate::history::{Log, Ns, Outcome, Process, Send, Value, What};
use crate::link::{Answer, Link, MOVED, Node};
use crate::payload::batch;
use crate::random::Random;
use crate::run::{EVENTS, Run, STRICT, logs_of, now};
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

/// One producer.
pub struct Plain<'a> {
    link: Link<'a>,
    random: Random,
    /// How far its clock is off.
    skew_ms: i64,
    process: Process,
    identity: (i64, i16),
    /// By partition: the next sequence number.
    sequences: Vec<(Log, i32)>,
}

/// A batch that is not known to be there.
struct Pending {
    invoked: Ns,
    values: Vec<Value>,
    set: Bytes,
}

impl<'a> Plain<'a> {
    pub fn new(run: &'a Run, client: usize, skew_ms: i64, seed: u64) -> Plain<'a> {
        Plain {
            link: Link::new(run, client),
            random: Random::new(seed),
            skew_ms,
            process: run.process(),
            identity: (-1, -1),
            sequences: Vec::new(),
        }
    }

    /// Writes until the end.
    pub fn run(mut self) {
        while !self.link.run.is_ending() {
            if self.begin() {
                while !self.link.run.is_ending() && self.burst() {
                    sleep(Duration::from_millis(self.random.between(0, 2 * PACE_MS) as u64));
                }
            }
        }
    }

    /// A new identity, and a new memory.
    fn begin(&mut self) -> bool {
        self.process = self.link.run.process();
        let request: InitProducerIdRequest = requests::init_producer_id(None);
        let what = ("InitProducerId", LATER);
        let answer = self.link.insist((Node::Any, 4), &request, what, |answer| answer.error_code);
        let Answer::Final { response, .. } = answer else { return false };
        self.identity = (response.producer_id.0, response.producer_epoch);
        let logs = logs_of(EVENTS).chain(logs_of(STRICT));
        self.sequences = logs.map(|log| (log, 0)).collect();
        response.error_code == 0
    }

    /// Some batches for one partition, until each is answered for good; false if it gave up.
    fn burst(&mut self) -> bool {
        let place = self.random.between(0, self.sequences.len());
        let log = self.sequences[place].0;
        // What is refused here leaves its sequence numbers for the next one.
        let count = if log.topic == STRICT { 1 } else { self.random.between(1, 4) };
        let mut pending: Vec<Pending> = Vec::new();
        for _ in 0..count {
            let values: Vec<Value> =
                (0..self.random.between(1, 4)).map(|_| self.link.run.value()).collect();
            let sequence = &mut self.sequences[place].1;
            let sender = (self.identity.0, self.identity.1, *sequence);
            *sequence += values.len() as i32;
            let set = batch(&values, sender, false, self.skew_ms);
            pending.push(Pending { invoked: now(), values, set });
        }
        while !pending.is_empty() {
            self.link.run.stand(self.link.client);
            let answers = exchange(&mut self.link, log, &pending);
            let was_lost = answers.len() < pending.len();
            if was_lost {
                self.link.forget();
                sleep(Duration::from_millis(20));
            }
            let is_done_for = !self.settle(place, &mut pending, &answers);
            if is_done_for || was_lost && self.random.one_in(GIVES_UP_ONE_IN) {
                pending.iter().for_each(|one| self.note(log, one, Outcome::Unknown, None));
                return false;
            }
        }
        true
    }

    /// Takes what is answered for good out of `pending`; false if this identity is done for.
    fn settle(&mut self, place: usize, pending: &mut Vec<Pending>, answers: &[(i16, i64)]) -> bool {
        let log = self.sequences[place].0;
        let mut left = Vec::new();
        let mut is_sound = true;
        for (one, answer) in pending.drain(..).zip(answers.iter().map(Some).chain(repeat(None))) {
            let Some(&(code, base)) = answer else {
                left.push(one);
                continue;
            };
            if code != 0 {
                self.link.run.code("Produce", code);
            }
            match code {
                0 => self.note(log, &one, Outcome::Ok, Some(base)),
                INVALID_TIMESTAMP if log.topic == STRICT && self.skew_ms > 0 => {
                    self.note(log, &one, Outcome::Refused, None);
                    self.sequences[place].1 -= one.values.len() as i32;
                }
                // What came before it is not there yet.
                OUT_OF_ORDER if !left.is_empty() => left.push(one),
                code if LATER.contains(&code) => {
                    self.link.later(code);
                    left.push(one);
                }
                code => {
                    self.link.run.fault(format!("{:?}: Produce to {log:?}: {code}", self.process));
                    is_sound = false;
                    left.push(one);
                }
            }
        }
        *pending = left;
        is_sound
    }

    fn note(&self, log: Log, pending: &Pending, outcome: Outcome, base: Option<i64>) {
        let send = Send {
            log,
            values: pending.values.clone(),
            transaction: None,
            outcome,
            base,
            ordered: true,
            sources: Vec::new(),
        };
        self.link.run.note(self.process, pending.invoked, What::Send(send));
    }
}

/// Sends all of them, then receives: code and base offset of those that were answered.
fn exchange(link: &mut Link<'_>, log: Log, pending: &[Pending]) -> Vec<(i16, i64)> {
    let mut answers = Vec::new();
    let _ = try_exchange(link, log, pending, &mut answers);
    answers
}

fn try_exchange(
    link: &mut Link<'_>,
    log: Log,
    pending: &[Pending],
    answers: &mut Vec<(i16, i64)>,
) -> io::Result<()> {
    let client: &mut Client = link.node(Node::Leader(log))?;
    let mut sent = Vec::new();
    for one in pending {
        let topic = Topic::named(log.name());
        let request: ProduceRequest =
            requests::produce(9, &topic, log.index(), -1, one.set.clone());
        sent.push(client.try_send(9, &request)?);
    }
    for sent in sent {
        let response = client.try_receive(sent)?;
        let answer = &response.responses[0].partition_responses[0];
        answers.push((answer.error_code, answer.base_offset));
    }
    Ok(())
}

/// Codes that say: later, or somewhere else.
pub const LATER: &[i16] = &[MOVED[0], MOVED[1], MOVED[2], MOVED[3], 7, 14, 19, 51];
const OUT_OF_ORDER: i16 = 45;
const INVALID_TIMESTAMP: i16 = 32;
const GIVES_UP_ONE_IN: usize = 4;
const PACE_MS: usize = 4;
