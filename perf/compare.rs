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
use serde_json::{Value, json};

use super::calibrate::{Floors, broker_core};
use super::chart;
use super::client::Fault;
use super::kafka::{self, Jars, Kafka};
use super::kinds::{self, Contender, DELETE_DELAY, DELETE_DELAY_MS, Sample, Times};
use super::measure::median;
use super::report::number;
use super::scenario::Scenario;
use super::target::{Own, Server};

/// What is compared, and for how long.
#[derive(Args, Clone, Debug)]
pub struct CompareArguments {
    #[command(flatten)]
    own: Own,
    /// A scenario, a group of them, all, or a file of your own; repeatable
    #[arg(long = "scenario", value_name = "NAME", default_value = "goals")]
    scenarios: Vec<String>,
    /// How often each broker runs each scenario
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
    /// Where Apache Kafka's jars are, or go [default: a cache directory of the user]
    #[arg(long, value_name = "DIR")]
    kafka: Option<PathBuf>,
    /// Compare Ringlog's two durabilities only
    #[arg(long)]
    without_kafka: bool,
    /// Leave out the Kafka that flushes each append
    #[arg(long)]
    without_flushing_kafka: bool,
    /// Where compare.json, compare.md and compare.html go
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

/// All runs of one scenario: for each broker one sample a round.
pub struct Comparison {
    scenario: Scenario,
    samples: Vec<Vec<Sample>>,
}

/// How long each run takes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Plan {
    rounds: usize,
    seconds: u64,
    warm_up_seconds: u64,
    first_warm_up_seconds: u64,
}

impl Plan {
    /// Of the arguments, or shorter where they do not fit into the minutes that are given.
    fn of(arguments: &CompareArguments, scenarios: usize, brokers: usize) -> Plan {
        if arguments.quick {
            return Plan { rounds: 1, seconds: 1, warm_up_seconds: 0, first_warm_up_seconds: 1 };
        }
        let mut plan = Plan {
            rounds: arguments.rounds.max(1),
            seconds: arguments.seconds.max(1),
            warm_up_seconds: arguments.warm_up_seconds,
            first_warm_up_seconds: arguments.first_warm_up_seconds,
        };
        let Some(minutes) = arguments.minutes else { return plan };
        let runs = (scenarios * brokers).max(1) as u64;
        while plan.of_one() * runs > minutes * 60 {
            // What costs least first: pairs are worth more than their length.
            match plan {
                Plan { first_warm_up_seconds: 7.., .. } => plan.first_warm_up_seconds -= 1,
                Plan { seconds: 4.., .. } => plan.seconds -= 1,
                Plan { warm_up_seconds: 2.., .. } => plan.warm_up_seconds -= 1,
                Plan { rounds: 4.., .. } => plan.rounds -= 1,
                Plan { seconds: 3.., .. } => plan.seconds -= 1,
                Plan { first_warm_up_seconds: 4.., .. } => plan.first_warm_up_seconds -= 1,
                Plan { rounds: 3.., .. } => plan.rounds -= 1,
                _ => break,
            }
        }
        plan
    }

    /// Seconds that one broker takes for one scenario.
    fn of_one(&self) -> u64 {
        let each = self.seconds + self.warm_up_seconds + BETWEEN_SECONDS;
        each * self.rounds as u64 + self.first_warm_up_seconds.saturating_sub(self.warm_up_seconds)
    }
}

/// Compares, and writes the report after every scenario, so that nothing is lost.
pub fn run(arguments: &CompareArguments) -> Result<(), Fault> {
    let scenarios = Scenario::named(&arguments.scenarios)?;
    let floors = Floors::take(&arguments.own.data_dir, arguments.own.core())?;
    let jars = match arguments.without_kafka {
        true => None,
        false => Some(Jars::in_directory(&arguments.kafka.clone().map_or_else(cache, Ok)?)?),
    };
    let mut kafkas = kafkas(arguments, jars.as_ref())?;
    let plan = Plan::of(arguments, scenarios.len(), kafkas.len() + OURS.len());
    eprintln!("{} scenarios, {plan:?}", scenarios.len());
    let begun = Instant::now();
    let (mut done, mut left_out): (Vec<Comparison>, Vec<Value>) = (Vec::new(), Vec::new());
    std::fs::create_dir_all(&arguments.output)?;
    let total = scenarios.len();
    for (place, scenario) in scenarios.into_iter().enumerate() {
        let (name, minutes) = (scenario.name.clone(), begun.elapsed().as_secs() / 60);
        eprintln!("--- {}/{total}, minute {minutes}: {name}: {}", place + 1, scenario.title);
        let outcome = match arguments.minutes {
            Some(most) if minutes >= most => Err("out of time".into()),
            _ => compare(arguments, (&plan, jars.as_ref()), &mut kafkas, scenario),
        };
        match outcome {
            Ok(comparison) => done.push(comparison),
            Err(why) => {
                eprintln!("{name}: {why}");
                left_out.push(json!({ "name": name, "why": why.to_string() }));
            }
        }
        let report = report(&floors, &plan, &done, &left_out);
        let write = |name: &str, text: String| std::fs::write(arguments.output.join(name), text);
        write("compare.json", format!("{report:#}\n"))?;
        write("compare.md", markdown(&report))?;
        write("compare.html", chart::page(&report))?;
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
    for (name, further) in [(SHIPPED, &flushing[..1]), (FLUSHING, &flushing[..])] {
        if name == FLUSHING && arguments.without_flushing_kafka {
            continue;
        }
        eprintln!("starting {name}");
        let kafka = Kafka::start(jars, &own.data_dir, core, further)?;
        let server = Server::foreign(kafka.address(), kafka.pid(), own.core());
        server.signal(Signal::STOP)?;
        let (own, filled) = (own.clone(), Vec::new());
        all.push(Contender { name, server, own, filled, kafka: Some(kafka) });
    }
    Ok(all)
}

/// Starts Ringlog as a scenario wants it, and stops it for now.
fn ours(own: &Own, scenario: &Scenario) -> Result<Vec<Contender>, Fault> {
    let delay = format!("{DELETE_DELAY}={DELETE_DELAY_MS}");
    let shards = if scenario.shards > 0 { scenario.shards } else { own.shards };
    let own = Own { shards, ..own.clone() };
    let start = |&(name, durability): &(&'static str, &str)| -> Result<Contender, Fault> {
        let mut words = vec!["--durability", durability, "--set", &delay];
        words.extend(scenario.serve.iter().map(String::as_str));
        let server = own.start(&words)?;
        server.signal(Signal::STOP)?;
        Ok(Contender { name, server, own: own.clone(), filled: Vec::new(), kafka: None })
    };
    OURS.iter().map(start).collect()
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
    let mut all: Vec<&mut Contender> = ours.iter_mut().chain(kafkas.iter_mut()).collect();
    let mut samples: Vec<Vec<Sample>> = all.iter().map(|_| Vec::new()).collect();
    let outcome = rounds(plan, jars, (&mut all, &mut samples), &scenario);
    for contender in all {
        contender.free()?;
    }
    outcome.map(|()| Comparison { scenario, samples })
}

fn rounds(
    plan: &Plan,
    jars: Option<&Jars>,
    (all, samples): (&mut [&mut Contender], &mut [Vec<Sample>]),
    scenario: &Scenario,
) -> Result<(), Fault> {
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..all.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let contender = &mut *all[index];
            eprintln!("round {}/{}: {}", round + 1, plan.rounds, contender.name);
            let warm_up = match round {
                0 => plan.first_warm_up_seconds,
                _ => plan.warm_up_seconds,
            };
            contender.server.signal(Signal::CONT)?;
            let times = Times { warm_up, measured: plan.seconds };
            let sample = kinds::take(contender, scenario, jars, times);
            contender.server.signal(Signal::STOP)?;
            samples[index].push(sample.map_err(|fault| format!("{}: {fault}", contender.name))?);
        }
    }
    Ok(())
}

impl Contender {
    /// Gives back what a scenario has filled; what is ours ends anyway.
    fn free(&mut self) -> Result<(), Fault> {
        let filled = std::mem::take(&mut self.filled);
        if self.kafka.is_none() || filled.is_empty() {
            return Ok(());
        }
        self.server.signal(Signal::CONT)?;
        for topic in filled {
            kinds::forget(&self.server, &topic)?;
        }
        self.server.signal(Signal::STOP)
    }
}

/// Everything that is known so far.
fn report(floors: &Floors, plan: &Plan, done: &[Comparison], left_out: &[Value]) -> Value {
    let name = |brokers: usize| -> Vec<&str> {
        let all = OURS.iter().map(|(name, _)| *name).chain([SHIPPED, FLUSHING]);
        all.take(brokers).collect()
    };
    let scenarios = done.iter().map(|comparison| told(&name(comparison.samples.len()), comparison));
    json!({
        "title": format!(
            "Each broker's shards and threads from the first core on (that of the disk's \
             interrupts), the load on another. {} \
             rounds forth and back, {} s each after {} s of warm-up, the first after {} s. Median, \
             lowest and highest; a ratio is of one round, and below one is less.",
            plan.rounds, plan.seconds, plan.warm_up_seconds, plan.first_warm_up_seconds
        ),
        "floors": floors.figures().into_iter().collect::<serde_json::Map<_, _>>(),
        "scenarios": scenarios.collect::<Vec<_>>(),
        "left_out": left_out,
    })
}

fn told(names: &[&str], comparison: &Comparison) -> Value {
    let brokers = names.iter().zip(&comparison.samples).map(|(name, samples)| {
        let figures: serde_json::Map<String, Value> = samples[0]
            .figures
            .iter()
            .map(|&(figure, _)| (figure.to_owned(), spread(&of(samples, figure))))
            .collect();
        let last = &samples[samples.len() - 1];
        let part = |place: fn(&(f64, f64)) -> f64| -> Vec<Value> {
            last.series.iter().map(|second| number(place(second))).collect()
        };
        let stages = last.stages.iter().map(|(stage, us)| (stage.clone(), number(*us)));
        json!({
            "name": name,
            "figures": figures,
            "curve_us": curve(samples),
            "stages_us": stages.collect::<serde_json::Map<_, _>>(),
            "requests_by_second": part(|second| second.0),
            "resident_mib_by_second": part(|second| second.1),
        })
    });
    let brokers: Vec<Value> = brokers.collect();
    let columns = comparison.samples[0][0].figures.iter().map(|&(figure, _)| figure);
    let columns: Vec<&str> = columns.collect();
    let mut ratios = Vec::new();
    for (first, second) in RATIOS {
        let place = |wanted: &str| names.iter().position(|name| *name == wanted);
        let (Some(a), Some(b)) = (place(first), place(second)) else { continue };
        let (a, b) = (&comparison.samples[a], &comparison.samples[b]);
        let figures = a[0].figures.iter().map(|&(figure, _)| {
            let rounds = of(a, figure).into_iter().zip(of(b, figure));
            let ratios: Vec<f64> = rounds.map(|(a, b)| a / b).collect();
            (figure.to_owned(), spread(&ratios))
        });
        let figures: serde_json::Map<String, Value> = figures.collect();
        ratios.push(json!({ "of": first, "to": second, "figures": figures }));
    }
    json!({
        "name": comparison.scenario.name,
        "title": comparison.scenario.title,
        "columns": columns,
        "brokers": brokers,
        "ratios": ratios,
    })
}

/// One figure of all rounds.
fn of(samples: &[Sample], figure: &str) -> Vec<f64> {
    let found = |sample: &Sample| sample.figures.iter().find(|(name, _)| *name == figure).copied();
    samples.iter().filter_map(found).map(|(_, value)| value).collect()
}

/// Median, lowest and highest.
fn spread(figures: &[f64]) -> Value {
    let lowest = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    json!([number(median(figures)), number(lowest), number(highest)])
}

/// Latencies of all rounds at the quantiles of [`chart::QUANTILES`].
fn curve(samples: &[Sample]) -> Vec<Value> {
    let mut all = samples[0].latencies.clone();
    for sample in &samples[1..] {
        all += &sample.latencies;
    }
    if all.is_empty() {
        return Vec::new();
    }
    let at = |&(quantile, _): &(f64, &str)| number(all.value_at_quantile(quantile) as f64 / 1e3);
    chart::QUANTILES.iter().map(at).collect()
}

/// The table: for each scenario what each broker did, and the ratios.
fn markdown(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = String::new();
    for scenario in each(&report["scenarios"]) {
        out += &format!("**{}** (`{}`)\n\n", text(&scenario["title"]), text(&scenario["name"]));
        let names: Vec<String> = each(&scenario["columns"]).iter().map(text).collect();
        out += &format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
        let mut line = |head: String, figures: &Value| {
            let cells = names.iter().map(|name| {
                let [median, lowest, highest] = [0, 1, 2].map(|at| figures[name][at].to_string());
                format!("{median} ({lowest}..{highest})")
            });
            out += &format!("| {head} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        };
        for broker in each(&scenario["brokers"]) {
            line(text(&broker["name"]), &broker["figures"]);
        }
        for ratio in each(&scenario["ratios"]) {
            let head = format!("*{} / {}*", text(&ratio["of"]), text(&ratio["to"]));
            line(head, &ratio["figures"]);
        }
        out += "\n";
    }
    for left_out in each(&report["left_out"]) {
        out += &format!("Left out: `{}`: {}\n", text(&left_out["name"]), text(&left_out["why"]));
    }
    out
}

const POWER_LOSS: &str = "Ringlog, power-loss";
const PROCESS_CRASH: &str = "Ringlog, process-crash";
const SHIPPED: &str = "Kafka as shipped, no fsync";
const FLUSHING: &str = "Kafka, fsync per append";

/// Ringlog, and how each keeps what it has acknowledged.
const OURS: [(&str, &str); 2] = [(POWER_LOSS, "power-loss"), (PROCESS_CRASH, "process-crash")];

/// Who is held against whom.
const RATIOS: &[(&str, &str)] =
    &[(POWER_LOSS, SHIPPED), (PROCESS_CRASH, SHIPPED), (POWER_LOSS, FLUSHING)];

/// About what a run takes beside its parts: topics, their end, connections.
const BETWEEN_SECONDS: u64 = 1;

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    fn sampled(p50_us: f64) -> Sample {
        let mut latencies = Histogram::new(3).expect("a histogram");
        latencies.record((p50_us * 1e3) as u64).expect("in range");
        let figures = vec![("p50_us", p50_us)];
        Sample { figures, latencies, stages: Vec::new(), series: Vec::new() }
    }

    #[test]
    fn ratios_are_of_one_round_each() {
        let text = "title = \"t\"\ndoes = \"produce\"\n";
        let scenario = Scenario::parse("s", text).expect("a scenario");
        let ours = vec![sampled(100.0), sampled(300.0), sampled(200.0)];
        let theirs = vec![sampled(200.0), sampled(300.0), sampled(800.0)];
        let comparison = Comparison { scenario, samples: vec![ours, theirs] };
        let told = told(&[POWER_LOSS, SHIPPED], &comparison);
        assert_eq!(told["brokers"][0]["figures"]["p50_us"], json!([200.0, 100.0, 300.0]));
        assert_eq!(told["ratios"][0]["figures"]["p50_us"], json!([0.5, 0.25, 1.0]));
        assert_eq!(told["ratios"].as_array().map(Vec::len), Some(1));
        let report = json!({ "scenarios": [told] });
        assert!(markdown(&report).contains(
            "| *Ringlog, power-loss / Kafka as shipped, no fsync* | 0.5 (0.25..1.0) |\n"
        ));
    }

    #[test]
    fn what_does_not_fit_gets_shorter() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: CompareArguments,
        }
        let of = |words: &[&str]| {
            let words = ["compare"].iter().chain(words);
            <Line as clap::Parser>::parse_from(words).arguments
        };
        let plan = Plan::of(&of(&[]), 17, 4);
        assert_eq!((plan.rounds, plan.seconds, plan.first_warm_up_seconds), (6, 5, 10));
        let short = Plan::of(&of(&["--minutes", "20"]), 17, 4);
        assert!(short.of_one() * 17 * 4 <= 20 * 60, "{short:?}");
        assert!(short.rounds >= 2 && short.seconds >= 2, "{short:?}");
        assert_eq!(Plan::of(&of(&["--quick"]), 17, 4).rounds, 1);
    }
}
