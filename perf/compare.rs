//! Ringlog and Apache Kafka, side by side: the same scenarios on the same machine, in turns.
//!
//! Owns the order of runs and what is written down of them. All brokers are there the whole time,
//! each on the first core with the load on another; whoever is not measured is stopped (SIGSTOP),
//! and costs nothing. Rounds go through the brokers forth and back (ABBA), so that what else the
//! machine does hits all of them; a ratio is taken within one round, and told as the median of all
//! rounds with the lowest and the highest. What a broker guarantees stands in its name.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::calibrate::Floors;
use super::chart;
use super::client::{Client, Fault};
use super::kafka::{self, Jars, Kafka};
use super::load::{self, Mode, Outcome};
use super::measure::median;
use super::producer::Protocol;
use super::report::number;
use super::scenario::{Does, Scenario};
use super::target::{Own, Server};
use super::txn;

/// What is compared, and for how long.
#[derive(Args, Clone, Debug)]
pub struct CompareArguments {
    #[command(flatten)]
    own: Own,
    /// A scenario; repeatable [default: all]
    #[arg(long = "scenario", value_name = "NAME")]
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
    /// Where Apache Kafka's jars are, or go [default: a cache directory of the user]
    #[arg(long, value_name = "DIR")]
    kafka: Option<PathBuf>,
    /// Compare Ringlog's two durabilities only
    #[arg(long)]
    without_kafka: bool,
    /// Where compare.json, compare.md and compare.html go
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

/// A broker that takes part.
struct Contender {
    name: &'static str,
    server: Server,
    /// Topics that hold what is to be fetched.
    filled: Vec<String>,
    _kafka: Option<Kafka>,
}

/// One run of one broker.
struct Sample {
    figures: Vec<(&'static str, f64)>,
    latencies: Histogram<u64>,
}

/// All runs of one scenario: for each broker one sample a round.
pub struct Comparison {
    scenario: Scenario,
    samples: Vec<Vec<Sample>>,
}

/// Compares, and writes the report after every scenario, so that nothing is lost.
pub fn run(arguments: &CompareArguments) -> Result<(), Fault> {
    let scenarios = Scenario::named(&arguments.scenarios)?;
    let floors = Floors::take(&arguments.own.data_dir, arguments.own.core())?;
    let mut contenders = contenders(arguments)?;
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let mut done: Vec<Comparison> = Vec::new();
    std::fs::create_dir_all(&arguments.output)?;
    for scenario in scenarios {
        eprintln!("--- {}: {}", scenario.name, scenario.title);
        done.push(compare(arguments, &mut contenders, scenario)?);
        let report = report(&floors, &names, &done);
        let write = |name: &str, text: String| std::fs::write(arguments.output.join(name), text);
        write("compare.json", format!("{report:#}\n"))?;
        write("compare.md", markdown(&report))?;
        write("compare.html", chart::page(&report))?;
    }
    print!("{}", std::fs::read_to_string(arguments.output.join("compare.md"))?);
    Ok(())
}

/// Starts everybody, and stops them for now.
fn contenders(arguments: &CompareArguments) -> Result<Vec<Contender>, Fault> {
    let own = &arguments.own;
    let delay = format!("{DELETE_DELAY}={DELETE_DELAY_MS}");
    let of = |name, server, kafka| Contender { name, server, filled: Vec::new(), _kafka: kafka };
    let mut all = vec![
        of(POWER_LOSS, own.start(&["--durability", "power-loss", "--set", &delay])?, None),
        of(PROCESS_CRASH, own.start(&["--durability", "process-crash", "--set", &delay])?, None),
    ];
    if !arguments.without_kafka {
        let jars = Jars::in_directory(&arguments.kafka.clone().map_or_else(cache, Ok)?)?;
        let core = ringlog::io::executor::cores().first().copied().unwrap_or(0);
        let delay_ms = DELETE_DELAY_MS.to_string();
        let all_have = (DELETE_DELAY, delay_ms.as_str());
        let flushing = [all_have, ("log.flush.interval.messages", "1")];
        for (name, further) in [(SHIPPED, &flushing[..1]), (FLUSHING, &flushing[..])] {
            eprintln!("starting {name}");
            let kafka = Kafka::start(&jars, &own.data_dir, core, further)?;
            let server = Server::foreign(kafka.address(), kafka.pid(), own.core());
            all.push(of(name, server, Some(kafka)));
        }
    }
    for contender in &all {
        signal(&contender.server, Signal::STOP)?;
    }
    Ok(all)
}

fn cache() -> Result<PathBuf, Fault> {
    let home = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = home("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| home("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let base = base.ok_or("where Apache Kafka goes is not known: use --kafka DIR")?;
    Ok(base.join("ringlog-perf").join(format!("kafka-{}", kafka::VERSION)))
}

fn signal(server: &Server, signal: Signal) -> Result<(), Fault> {
    let pid = Pid::from_raw(i32::try_from(server.pid)?).ok_or("no process")?;
    Ok(kill_process(pid, signal)?)
}

fn compare(
    arguments: &CompareArguments,
    contenders: &mut [Contender],
    scenario: Scenario,
) -> Result<Comparison, Fault> {
    let mut samples: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..arguments.rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let contender = &mut contenders[index];
            eprintln!("round {}/{}: {}", round + 1, arguments.rounds, contender.name);
            let warm_up = match round {
                0 => arguments.first_warm_up_seconds,
                _ => arguments.warm_up_seconds,
            };
            signal(&contender.server, Signal::CONT)?;
            let sample = take(contender, &scenario, (warm_up, arguments.seconds));
            signal(&contender.server, Signal::STOP)?;
            let sample = sample.map_err(|fault| format!("{}: {fault}", contender.name))?;
            samples[index].push(sample);
        }
    }
    Ok(Comparison { scenario, samples })
}

/// One run; warm-up and measured part in seconds.
fn take(
    contender: &mut Contender,
    scenario: &Scenario,
    (warm_up, seconds): (u64, u64),
) -> Result<Sample, Fault> {
    let server = &contender.server;
    match scenario.does {
        Does::Produce => {
            let load = scenario.load(warm_up, seconds);
            let outcome = load::measure(server, &load, Mode::Produce)?;
            // What is written in a few seconds may be gigabytes: it goes before the next run.
            Client::connect(&server.address)?.delete_topic(&load.topic)?;
            std::thread::sleep(Duration::from_millis(2 * DELETE_DELAY_MS));
            Ok(sample(outcome))
        }
        Does::Fetch => {
            if !contender.filled.contains(&scenario.name) {
                load::fill(server, &scenario.name, FILLED_BYTES)?;
                contender.filled.push(scenario.name.clone());
            }
            load::measure(server, &scenario.load(warm_up, seconds), Mode::Fetch).map(sample)
        }
        Does::Commit => {
            let run = |seconds| {
                let time = Duration::from_secs(seconds);
                txn::commits(server, Protocol::Two, (scenario.partitions(), false), time)
            };
            if warm_up > 0 {
                run(warm_up)?;
            }
            let before = server.usage();
            let commits = run(seconds)?;
            let used = server.usage().since(&before);
            let (p50_us, p99_us) = commits.end_us();
            let figures = vec![
                ("p50_us", p50_us),
                ("p99_us", p99_us),
                ("until_next_p50_us", commits.until_next_us()),
                ("cpu_us_per_transaction", used.cpu_seconds * 1e6 / commits.transactions),
                ("resident_mib", used.resident_bytes as f64 / MIB),
            ];
            Ok(Sample { figures, latencies: commits.end_txn })
        }
    }
}

fn sample(outcome: Outcome) -> Sample {
    let figures = vec![
        ("p50_us", outcome.us(0.5)),
        ("p99_us", outcome.us(0.99)),
        ("p999_us", outcome.us(0.999)),
        ("requests_per_second", outcome.requests_per_second()),
        ("megabytes_per_second", outcome.megabytes_per_second()),
        ("cpu_seconds_per_gb", outcome.cpu_seconds_per_gb()),
        ("cpu_seconds_per_million_requests", outcome.cpu_seconds_per_million()),
        ("resident_mib", outcome.used.resident_bytes as f64 / MIB),
    ];
    Sample { figures, latencies: outcome.latencies }
}

/// Everything that is known so far.
fn report(floors: &Floors, names: &[&str], done: &[Comparison]) -> Value {
    json!({
        "title": "Each broker on one core, the load on another; a ratio below one is less",
        "floors": floors.figures().into_iter().collect::<serde_json::Map<_, _>>(),
        "brokers": names,
        "scenarios": done.iter().map(|comparison| told(names, comparison)).collect::<Vec<_>>(),
    })
}

fn told(names: &[&str], comparison: &Comparison) -> Value {
    let brokers = names.iter().zip(&comparison.samples).map(|(name, samples)| {
        let figures: serde_json::Map<String, Value> = samples[0]
            .figures
            .iter()
            .map(|&(figure, _)| (figure.to_owned(), spread(&of(samples, figure))))
            .collect();
        json!({ "name": name, "figures": figures, "curve_us": curve(samples) })
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
    out
}

const POWER_LOSS: &str = "Ringlog, power-loss";
const PROCESS_CRASH: &str = "Ringlog, process-crash";
const SHIPPED: &str = "Kafka as shipped, no fsync";
const FLUSHING: &str = "Kafka, fsync per append";

/// Who is held against whom.
const RATIOS: &[(&str, &str)] =
    &[(POWER_LOSS, SHIPPED), (PROCESS_CRASH, SHIPPED), (POWER_LOSS, FLUSHING)];

const FILLED_BYTES: u64 = 256 << 20;
/// How long the files of a deleted topic stay: all of it goes before a broker is stopped again.
const DELETE_DELAY: &str = "log.segment.delete.delay.ms";
const DELETE_DELAY_MS: u64 = 500;
const MIB: f64 = (1 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(p50_us: f64) -> Sample {
        let mut latencies = Histogram::new(3).expect("a histogram");
        latencies.record((p50_us * 1e3) as u64).expect("in range");
        Sample { figures: vec![("p50_us", p50_us)], latencies }
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
}
