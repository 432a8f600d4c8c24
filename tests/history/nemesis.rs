//! What goes wrong during a run, one thing after the other: the broker dies and comes back with
//! another number of shards, behind one address or one each, stands still, or connections break,
//! drag and swallow; clients stand still. Counts what it did, so that a run in which nothing went
//! wrong is no run.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::children::Children;
use crate::proxy::{Proxy, Way};
use crate::random::Random;
use crate::run::Run;
use crate::support::broker::Broker;

/// What it can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Harm {
    Kill,
    PauseBroker,
    PauseClient,
    PauseProcess,
    Delay,
    Cut,
    CutInProduce,
    CutInResponse,
    SwallowRequests,
    SwallowResponses,
}

const HARMS: &[Harm] = &[
    Harm::Kill,
    Harm::PauseBroker,
    Harm::PauseClient,
    Harm::PauseProcess,
    Harm::Delay,
    Harm::Cut,
    Harm::CutInProduce,
    Harm::CutInResponse,
    Harm::SwallowRequests,
    Harm::SwallowResponses,
];

/// The one who does it.
pub struct Nemesis<'a> {
    pub broker: &'a mut Broker,
    pub proxy: &'a Proxy,
    pub children: Children,
    pub run: &'a Run,
    pub random: Random,
    /// Arguments of every start, but for those that [`Nemesis::start`] chooses.
    pub arguments: Vec<String>,
    /// Clients that may be told to stand still.
    pub pausable: Vec<usize>,
    /// Longest rest between one harm and the next.
    pub calm: Duration,
    pub done: BTreeMap<Harm, u64>,
}

impl Nemesis<'_> {
    /// Starts the broker, with other shards, addresses and durability than before perhaps.
    pub fn start(&mut self) {
        let shards = self.random.pick(&["1", "2", "2", "3"]);
        let durability = self.random.pick(&["power-loss", "power-loss", "process-crash"]);
        let advertise = self.random.pick(&["per-core", "per-core", "single"]);
        let own = ["--shards", shards, "--durability", durability, "--advertise", advertise];
        let arguments: Vec<&str> =
            own.into_iter().chain(self.arguments.iter().map(String::as_str)).collect();
        self.broker.set_arguments(&arguments);
        self.broker.restart();
    }

    /// Does harm until it is time and each kind was done; in turn, but in no fixed order.
    pub fn rage(&mut self, until: Instant, is_sound: impl Fn() -> bool) {
        let mut left: Vec<Harm> = Vec::new();
        let mut told = Instant::now();
        while is_sound() && (Instant::now() < until || self.done.len() < HARMS.len()) {
            if told.elapsed() > TOLD_EVERY {
                told = Instant::now();
                println!("{} operations, {:?}", self.run.operations(), self.done);
            }
            if left.is_empty() {
                left = HARMS.to_vec();
            }
            let place = self.random.between(0, left.len());
            let harm = left.swap_remove(place);
            self.harm(harm);
            *self.done.entry(harm).or_default() += 1;
            assert!(self.broker.is_running(), "the broker died by itself");
            self.rest(100, self.calm.as_millis() as usize);
        }
        self.proxy.heal();
    }

    fn harm(&mut self, harm: Harm) {
        match harm {
            Harm::Kill => {
                self.broker.kill();
                self.rest(0, 300);
                self.start();
                let complaints = self.broker.stderr();
                assert!(!complaints.contains("offline"), "{complaints}");
            }
            Harm::PauseBroker => {
                self.broker.signal(Signal::STOP);
                self.rest(100, 3_000);
                self.broker.signal(Signal::CONT);
            }
            Harm::PauseClient => {
                let client = self.random.pick(&self.pausable);
                let time = self.random.between(2_500, 4_500) as u64;
                self.run.pause(client, Duration::from_millis(time));
            }
            Harm::PauseProcess => {
                let place = self.random.between(0, self.children.count());
                self.children.signal(place, Signal::STOP);
                self.rest(500, 5_000);
                self.children.signal(place, Signal::CONT);
            }
            Harm::Delay => {
                let delay_ms = self.random.pick(&[5, 50, 300]);
                self.proxy.delay(&mut self.random, 2, delay_ms);
                self.rest(300, 1_500);
                self.proxy.heal();
            }
            Harm::Cut => self.proxy.cut(&mut self.random, 2),
            Harm::CutInProduce => self.proxy.cut_in_produce(self.random.between(1, 5) as u64),
            Harm::CutInResponse => self.proxy.cut_in_response(self.random.between(1, 5) as u64),
            Harm::SwallowRequests | Harm::SwallowResponses => {
                let up = harm == Harm::SwallowRequests;
                let way = if up { Way::Up } else { Way::Down };
                self.proxy.swallow(&mut self.random, 4, way);
                self.rest(300, 2_500);
                self.proxy.heal();
            }
        }
    }

    fn rest(&mut self, shortest_ms: usize, longest_ms: usize) {
        let time = self.random.between(shortest_ms, longest_ms) as u64;
        sleep(Duration::from_millis(time));
    }
}

const TOLD_EVERY: Duration = Duration::from_secs(60);
