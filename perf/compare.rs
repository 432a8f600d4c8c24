//! Ringlog and Apache Kafka, side by side: the same scenarios on the same machine, in turns.
//!
//! Owns the order of runs and what is written down of them. All brokers are there at the same time,
//! from the first core on with the load on another, Ringlog a new one for each scenario; whoever is
//! not measured is stopped (SIGSTOP), and costs nothing. A scenario that fails ends no other.
//! Rounds go through the brokers forth and back (ABBA), so that what else the machine does hits all
//! of them; a ratio is taken within one round, and told as the median of all rounds with the lowest
//! and the highest. What a broker guarantees stands in its name.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rustix::process::Signal;

use super::calibrate::{Floors, broker_core, under_load};
use super::client::Fault;
use super::comparison::{self, Comparison, Taken};
use super::kafka::{self, Jars, Kafka};
use super::kinds::{self, Contender, DELETE_DELAY, DELETE_DELAY_MS, Sample, Times};
use super::plan::Plan;
use super::scenario::{Contestant, Scenario};
use super::target::{Own, Server};

/// What is compared, and for how long.
#[derive(Args, Clone, Debug)]
pub struct CompareArguments {
    #[command(flatten)]
    own: Own,
    /// A scenario, a group of them, all, or a file of your own; repeatable
    #[arg(long = "scenario", value_name = "NAME", default_value = "goals")]
    scenarios: Vec<String>,
    /// How often each broker runs each scenario; some say that fewer are enough
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Length of each measured part
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Length of the warm-up before it
    #[arg(long, default_value_t = 2)]
    warm_up_seconds: u64,
    /// Length of the first warm-up of each scenario, in which a JVM compiles
    #[arg(long, default_value_t = 10)]
    first_warm_up_seconds: u64,
    /// Time for everything: a scenario that would begin later is left out, and parts get shorter
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// One round of a second each: whether everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Only say which scenarios there would be, and how long they would take
    #[arg(long)]
    plan: bool,
    /// Where Apache Kafka's jars are, or go [default: a cache directory of the user]
    #[arg(long, value_name = "DIR")]
    kafka: Option<PathBuf>,
    /// Compare Ringlog's two durabilities only
    #[arg(long)]
    without_kafka: bool,
    /// Leave out the Kafka that flushes each append
    #[arg(long)]
    without_flushing_kafka: bool,
    /// Where compare.json, compare.md, compare.html and compare.svg go
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

impl CompareArguments {
    /// Who is there.
    fn contestants(&self) -> Vec<Contestant> {
        let is_there = |contestant: &&Contestant| match contestant {
            Contestant::PowerLoss | Contestant::ProcessCrash => true,
            Contestant::Kafka => !self.without_kafka,
            Contestant::KafkaFlushing => !self.without_kafka && !self.without_flushing_kafka,
        };
        Contestant::ALL.iter().filter(is_there).copied().collect()
    }

    fn plan(&self, scenarios: &[Scenario]) -> Plan {
        if self.quick {
            return Plan::QUICK;
        }
        let plan = Plan {
            rounds: self.rounds.max(1),
            seconds: self.seconds.max(1),
            warm_up_seconds: self.warm_up_seconds,
            first_warm_up_seconds: self.first_warm_up_seconds,
        };
        match self.minutes {
            Some(minutes) => plan.within(minutes, scenarios, &self.contestants()),
            None => plan,
        }
    }
}

/// Compares, and writes the report after every scenario, so that nothing is lost.
pub fn run(arguments: &CompareArguments) -> Result<(), Fault> {
    let scenarios = Scenario::named(&arguments.scenarios)?;
    let (there, plan) = (arguments.contestants(), arguments.plan(&scenarios));
    let minutes = |seconds: u64| seconds.div_ceil(60);
    let all = minutes(plan.of(&scenarios, &there));
    eprintln!("{} scenarios, about {all} minutes, {plan:?}", scenarios.len());
    if arguments.plan {
        for scenario in &scenarios {
            let (rounds, seconds) = (plan.rounds(scenario), plan.of_scenario(scenario, &there));
            println!("{:24}  {rounds} rounds, {seconds:4} s", scenario.name);
        }
        return Ok(());
    }
    let (data_dir, core) = (&arguments.own.data_dir, arguments.own.core());
    let mut floors = Floors::take(data_dir, core)?.figures();
    floors.extend(under_load(data_dir, core)?);
    let jars = match arguments.without_kafka {
        true => None,
        false => Some(Jars::in_directory(&arguments.kafka.clone().map_or_else(cache, Ok)?)?),
    };
    let mut kafkas = kafkas(arguments, jars.as_ref())?;
    let begun = Instant::now();
    let mut done: Vec<Comparison> = Vec::new();
    let mut left_out: Vec<(String, String)> = Vec::new();
    let total = scenarios.len();
    for (place, scenario) in scenarios.into_iter().enumerate() {
        let (name, minute) = (scenario.name.clone(), begun.elapsed().as_secs() / 60);
        let title = &scenario.title;
        eprintln!("--- {}/{total}, minute {minute} of {all}: {name}: {title}", place + 1);
        let outcome = match arguments.minutes {
            Some(most) if minute >= most => Err("out of time".into()),
            _ => compare(arguments, (&plan, jars.as_ref()), &mut kafkas, scenario),
        };
        match outcome {
            Ok(comparison) => done.push(comparison),
            Err(why) => {
                eprintln!("{name}: {why}");
                left_out.push((name, why.to_string()));
            }
        }
        let report = comparison::report(&floors, &plan, &done, &left_out);
        comparison::write(&report, &arguments.output)?;
    }
    print!("{}", std::fs::read_to_string(arguments.output.join("compare.md"))?);
    Ok(())
}

/// Starts what is there all the time, and stops it for now: a JVM gets faster with its age.
fn kafkas(arguments: &CompareArguments, jars: Option<&Jars>) -> Result<Vec<Contender>, Fault> {
    let Some(jars) = jars else { return Ok(Vec::new()) };
    let own = &arguments.own;
    let core = broker_core(&own.data_dir);
    let delay_ms = DELETE_DELAY_MS.to_string();
    let all_have = (DELETE_DELAY, delay_ms.as_str());
    let flushing = [all_have, ("log.flush.interval.messages", "1")];
    let mut all = Vec::new();
    for contestant in arguments.contestants().into_iter().filter(|one| one.is_kafka()) {
        eprintln!("starting {}", contestant.name());
        let further = if contestant == Contestant::Kafka { &flushing[..1] } else { &flushing[..] };
        let kafka = Kafka::start(jars, &own.data_dir, core, further)?;
        let server = Server::foreign(kafka.address(), kafka.pid(), own.core());
        server.signal(Signal::STOP)?;
        all.push(Contender::new(contestant, server, own, Some(kafka)));
    }
    Ok(all)
}

/// Starts Ringlog as a scenario wants it, and stops it for now.
fn ours(own: &Own, scenario: &Scenario) -> Result<Vec<Contender>, Fault> {
    let delay = format!("{DELETE_DELAY}={DELETE_DELAY_MS}");
    let shards = if scenario.shards > 0 { scenario.shards } else { own.shards };
    let own = Own { shards, ..own.clone() };
    let start = |(contestant, durability): (Contestant, &str)| -> Result<Contender, Fault> {
        let mut words = vec!["--durability", durability, "--set", &delay];
        words.extend(scenario.serve.iter().map(String::as_str));
        let server = own.start(&words)?;
        server.signal(Signal::STOP)?;
        Ok(Contender::new(contestant, server, &own, None))
    };
    let ours = [(Contestant::PowerLoss, "power-loss"), (Contestant::ProcessCrash, "process-crash")];
    ours.into_iter().filter(|(contestant, _)| scenario.is_for(*contestant)).map(start).collect()
}

fn cache() -> Result<PathBuf, Fault> {
    let home = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = home("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| home("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let base = base.ok_or("where Apache Kafka goes is not known: use --kafka DIR")?;
    Ok(base.join("ringlog-perf").join(format!("kafka-{}", kafka::VERSION)))
}

fn compare(
    arguments: &CompareArguments,
    (plan, jars): (&Plan, Option<&Jars>),
    kafkas: &mut [Contender],
    scenario: Scenario,
) -> Result<Comparison, Fault> {
    let mut ours = ours(&arguments.own, &scenario)?;
    let kafkas = kafkas.iter_mut().filter(|kafka| scenario.is_for(kafka.contestant));
    let mut all: Vec<&mut Contender> = ours.iter_mut().chain(kafkas).collect();
    let mut taken = Vec::new();
    for contender in &mut all {
        contender.revive()?;
        taken.push(Taken::new(contender.contestant));
    }
    rounds((plan, jars), &scenario, (&mut all, &mut taken));
    for contender in all {
        if let Err(why) = contender.free() {
            eprintln!("{}: {why}", contender.contestant.name());
        }
    }
    Comparison::of(scenario, taken)
}

/// Who fails is out for the rest of the scenario, and the others go on.
fn rounds(
    (plan, jars): (&Plan, Option<&Jars>),
    scenario: &Scenario,
    (all, taken): (&mut [&mut Contender], &mut [Taken]),
) {
    let rounds = plan.rounds(scenario);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..all.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let warm_up = match round {
            0 => plan.first_warm_up_seconds,
            _ => plan.warm_up_seconds,
        };
        let times = Times { warm_up, measured: plan.seconds };
        for index in order {
            let (contender, taken) = (&mut *all[index], &mut taken[index]);
            if taken.failed.is_some() {
                continue;
            }
            let name = contender.contestant.name();
            eprintln!("round {}/{rounds}: {name}", round + 1);
            match run_once(contender, scenario, jars, times) {
                Ok(sample) => taken.samples.push(sample),
                Err(why) => {
                    eprintln!("{name}: {why}");
                    taken.failed = Some(why.to_string());
                }
            }
        }
    }
}

/// One run of one broker, which is stopped before and after.
fn run_once(
    contender: &mut Contender,
    scenario: &Scenario,
    jars: Option<&Jars>,
    times: Times,
) -> Result<Sample, Fault> {
    contender.server.signal(Signal::CONT)?;
    let sample = kinds::take(contender, scenario, jars, times);
    let stopped = contender.server.signal(Signal::STOP);
    let sample = sample?;
    stopped.map(|()| sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_say_who_is_there_and_for_how_long() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: CompareArguments,
        }
        let of = |words: &[&str]| {
            let words = ["compare"].iter().chain(words);
            <Line as clap::Parser>::parse_from(words).arguments
        };
        let plan = of(&[]).plan(&[]);
        assert_eq!((plan.rounds, plan.seconds, plan.first_warm_up_seconds), (6, 5, 10));
        assert_eq!(of(&["--quick"]).plan(&[]).rounds, 1);
        assert_eq!(of(&[]).contestants(), Contestant::ALL);
        assert_eq!(of(&["--without-flushing-kafka"]).contestants(), Contestant::ALL[..3]);
        assert_eq!(of(&["--without-kafka"]).contestants(), Contestant::ALL[..2]);
    }
}
