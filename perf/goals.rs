//! The goals of a comparison: what a ratio has to come to, and whether it did.
//!
//! Owns the list and the verdict: the median decides, the range stands beside it. Takes the object
//! that a comparison writes, so that a report can be judged again. A goal that nothing was measured
//! for is neither met nor missed.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::calibrate::DSYNC_MEGABYTES_PER_SECOND;
use super::client::Fault;
use super::comparison::{self, each, text};
use super::kinds::WRITTEN_MEGABYTES_PER_SECOND;
use super::scenario::Contestant;

/// What a goal looks at.
#[derive(Clone, Copy)]
enum Of {
    /// The ratio of two brokers' figures.
    Ratio(Contestant, Contestant),
    /// A figure of Ringlog, power-loss, by itself.
    Figure,
}

#[derive(Clone, Copy)]
enum Bound {
    Most(f64),
    Least(f64),
}

/// One line of the table.
struct Goal {
    what: &'static str,
    scenario: &'static str,
    figure: &'static str,
    of: Of,
    bound: Bound,
}

/// Judges every goal by a report.
pub fn judge(report: &Value) -> Vec<Value> {
    goals().iter().map(|goal| goal.judged(report)).collect()
}

impl Goal {
    fn judged(&self, report: &Value) -> Value {
        let mut scenarios = each(&report["scenarios"]).iter();
        let scenario = scenarios.find(|one| text(&one["name"]) == self.scenario);
        let found = scenario.and_then(|scenario| self.found(scenario));
        let measured = found.filter(|found| found[0].is_number());
        let met = measured.and_then(|found| found[0].as_f64()).map(|median| match self.bound {
            Bound::Most(most) => median <= most,
            Bound::Least(least) => median >= least,
        });
        let (bound, sign) = match self.bound {
            Bound::Most(most) => (most, "<="),
            Bound::Least(least) => (least, ">="),
        };
        let (between, unit) = match self.of {
            Of::Ratio(of, to) => (format!("{} / {}", of.name(), to.name()), "x"),
            Of::Figure => (Contestant::PowerLoss.name().to_owned(), unit(self.figure)),
        };
        json!({
            "goal": self.what,
            "between": between,
            "scenario": self.scenario,
            "bound": format!("{sign} {bound} {unit}"),
            "measured": measured,
            "met": met,
            "limit": scenario.filter(|_| met == Some(false)).and_then(|one| limit(one, report)),
        })
    }

    fn found<'a>(&self, scenario: &'a Value) -> Option<&'a Value> {
        let figures = match self.of {
            Of::Ratio(of, to) => {
                let is_it = |ratio: &&Value| {
                    text(&ratio["of"]) == of.name() && text(&ratio["to"]) == to.name()
                };
                each(&scenario["ratios"]).iter().find(is_it)?
            }
            Of::Figure => {
                let is_it = |broker: &&Value| text(&broker["name"]) == Contestant::PowerLoss.name();
                each(&scenario["brokers"]).iter().find(is_it)?
            }
        };
        figures["figures"].get(self.figure)
    }
}

/// Says so where it is not the broker that is full, but the load's core or the device.
fn limit(scenario: &Value, report: &Value) -> Option<String> {
    let mut brokers = each(&scenario["brokers"]).iter();
    let ours = brokers.find(|broker| text(&broker["name"]) == Contestant::PowerLoss.name())?;
    let median = |figure: &str| ours["figures"][figure][0].as_f64();
    if let Some(cores) = median("client_cores").filter(|cores| *cores >= FULL) {
        return Some(format!("the load takes {cores:.2} of its core"));
    }
    let (written, floor) = (
        median(WRITTEN_MEGABYTES_PER_SECOND)?,
        report["floors"][DSYNC_MEGABYTES_PER_SECOND].as_f64()?,
    );
    (written >= FULL * floor)
        .then(|| format!("the device takes {written:.0} MB/s, large writes alone {floor:.0}"))
}

fn unit(figure: &str) -> &'static str {
    if figure.ends_with("_ms") { "ms" } else { "x" }
}

/// The table, and how many of it are met.
pub fn markdown(report: &Value) -> String {
    let mut out = "| goal | between | bound | measured | met |\n|---|---|---|---|---|\n".to_owned();
    let goals = each(&report["goals"]);
    for goal in goals {
        let measured = match each(&goal["measured"]) {
            [median, lowest, highest] => {
                let [median, lowest, highest] = [median, lowest, highest].map(rounded);
                format!("{median} ({lowest}..{highest})")
            }
            _ => "not measured".to_owned(),
        };
        let met = match goal["met"].as_bool() {
            Some(true) => "yes".to_owned(),
            Some(false) => match goal["limit"].as_str() {
                Some(limit) => format!("no: {limit}"),
                None => "no".to_owned(),
            },
            None => "-".to_owned(),
        };
        out += &format!(
            "| {} | {} | {} | {measured} | {met} |\n",
            text(&goal["goal"]),
            text(&goal["between"]),
            text(&goal["bound"])
        );
    }
    let of = |met: bool| goals.iter().filter(|goal| goal["met"].as_bool() == Some(met)).count();
    out + &format!("\n{} of {} goals are met, {} are not.\n", of(true), goals.len(), of(false))
}

/// Three digits that count.
fn rounded(value: &Value) -> String {
    match value.as_f64() {
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
        None => "-".to_owned(),
    }
}

/// Options of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// A compare.json; compare.md, compare.html and compare.svg are written beside it again
    json: PathBuf,
    /// A Markdown file whose part between the marks of the goals gets their table and the chart
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

/// Tells a report again.
pub fn run(arguments: &ReportArguments) -> Result<(), Fault> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut report: Value = serde_json::from_str(&read(&arguments.json)?)?;
    report["goals"] = judge(&report).into();
    let directory = arguments.json.parent().unwrap_or(Path::new("."));
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    comparison::write(&report, directory)?;
    if let Some(readme) = &arguments.readme {
        let image = directory.join("compare.svg");
        let part = section(&report, image.exists().then_some(image.as_path()));
        std::fs::write(readme, replaced(&read(readme)?, &part)?)?;
    }
    print!("{}", markdown(&report));
    Ok(())
}

/// What a README gets.
fn section(report: &Value, image: Option<&Path>) -> String {
    let chart = image.map(|image| {
        let mut scenarios = each(&report["scenarios"]).iter();
        let charted = scenarios.find(|one| text(&one["name"]) == CHARTED);
        let title = charted.map_or("", |one| text(&one["title"]));
        format!("![{title}: latency by percentile]({})\n\n", image.display())
    });
    format!("{}{}", chart.unwrap_or_default(), markdown(report))
}

fn replaced(readme: &str, part: &str) -> Result<String, Fault> {
    let found = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) = found.ok_or_else(|| format!("there is no {BEGIN} with its {END}"))?;
    Ok(format!("{before}{BEGIN}\n{part}{END}{after}"))
}

/// The scenario whose latencies are drawn.
pub const CHARTED: &str = "steady-1k";
const BEGIN: &str = "<!-- goals: `ringlog-perf report --readme` writes from here -->";
const END: &str = "<!-- goals: to here -->";
/// Share of a core, or of what the device takes, beyond which there is no more to be had.
const FULL: f64 = 0.9;

const fn goal(
    what: &'static str,
    scenario: &'static str,
    figure: &'static str,
    of: Of,
    bound: Bound,
) -> Goal {
    Goal { what, scenario, figure, of, bound }
}

/// In the order of the table.
fn goals() -> Vec<Goal> {
    use Bound::{Least, Most};
    use Contestant::{Kafka, KafkaFlushing, PowerLoss, ProcessCrash};
    let durable = Of::Ratio(PowerLoss, Kafka);
    let equal = Of::Ratio(ProcessCrash, Kafka);
    let flushed = Of::Ratio(PowerLoss, KafkaFlushing);
    vec![
        goal("produce at 1,000/s, p50", "steady-1k", "p50_us", durable, Most(0.8)),
        goal("produce at 1,000/s, p99", "steady-1k", "p99_us", durable, Most(0.5)),
        goal("produce at 1,000/s, p99.9", "steady-1k", "p999_us", durable, Most(0.25)),
        goal("produce at 10,000/s, p50", "steady-10k", "p50_us", durable, Most(0.8)),
        goal("produce at 10,000/s, p99", "steady-10k", "p99_us", durable, Most(0.5)),
        goal("produce at 10,000/s, p99.9", "steady-10k", "p999_us", durable, Most(0.25)),
        goal(
            "produce at 1,000/s, latency mode, p50",
            "steady-1k-latency-mode",
            "p50_us",
            durable,
            Most(0.5),
        ),
        goal(
            "produce at 10,000/s, latency mode, p50",
            "steady-10k-latency-mode",
            "p50_us",
            durable,
            Most(0.5),
        ),
        goal("equal guarantee, 1,000/s, p50", "steady-1k", "p50_us", equal, Most(0.6)),
        goal("equal guarantee, 10,000/s, p50", "steady-10k", "p50_us", equal, Most(0.6)),
        goal(
            "equal guarantee, 1,000/s, latency mode, p50",
            "steady-1k-latency-mode",
            "p50_us",
            equal,
            Most(0.35),
        ),
        goal(
            "equal guarantee, 10,000/s, latency mode, p50",
            "steady-10k-latency-mode",
            "p50_us",
            equal,
            Most(0.35),
        ),
        goal("produce at 1,000/s, p50", "steady-1k", "p50_us", flushed, Most(0.5)),
        goal(
            "rate held with a p99 of 20 ms",
            "held-rate",
            "held_requests_per_second",
            flushed,
            Least(5.0),
        ),
    ]
    .into_iter()
    .chain(costs(durable, equal))
    .collect()
}

/// The goals after those of latencies.
fn costs(durable: Of, equal: Of) -> Vec<Goal> {
    use Bound::{Least, Most};
    let (gb, requests) = ("cpu_seconds_per_gb", "cpu_seconds_per_million_requests");
    let (rate, bytes) = ("requests_per_second", "megabytes_per_second");
    vec![
        goal("broker CPU per GB produced, Java client", "java-producer", gb, durable, Most(0.2)),
        goal("broker CPU per GB produced, Java client", "java-producer", gb, equal, Most(0.2)),
        goal("broker CPU per GB fetched, Java client", "java-consumer", gb, durable, Most(0.2)),
        goal(
            "broker CPU per million small requests",
            "small-requests",
            requests,
            durable,
            Most(0.25),
        ),
        goal(
            "broker CPU per million small requests",
            "small-requests",
            requests,
            equal,
            Most(0.25),
        ),
        goal("throughput, 16 partitions", "knee-16", rate, durable, Least(2.0)),
        goal("throughput, 256 partitions", "knee-256", rate, durable, Least(3.0)),
        goal("throughput, keyed small batches", "knee-keyed", rate, durable, Least(3.0)),
        goal("catch-up from memory", "catch-up", bytes, durable, Least(1.5)),
        goal("catch-up from beyond memory", "catch-up-beyond-memory", bytes, durable, Least(1.2)),
        goal(
            "transactions per second, one producer",
            "commit-10",
            "transactions_per_second",
            durable,
            Least(5.0),
        ),
        goal("commit, p50", "commit-10", "p50_us", durable, Most(0.2)),
        goal("commit, p99", "commit-10", "p99_us", durable, Most(0.2)),
        goal("start-up", "start", "start_ms", durable, Most(0.05)),
        goal("resident memory, idle", "start", "resident_mib", durable, Most(0.1)),
        goal(
            "resident memory, 1,000 partitions",
            "restart-1000",
            "resident_mib",
            durable,
            Most(0.2),
        ),
        goal(
            "crash recovery, 10 GiB retained",
            "crash-recovery-10gb",
            "start_ms",
            Of::Figure,
            Most(1000.0),
        ),
        goal(
            "CPU of a busy shard's request, beside a tokio echo of its bytes",
            "network",
            "ratio_to_echo",
            Of::Figure,
            Most(1.3),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Scenario;
    use super::*;

    fn report() -> Value {
        let ratio = |of: &str, to: &str, median: f64| {
            let figures = json!({ "p50_us": [median, 0.5, 0.9] });
            json!({ "of": of, "to": to, "figures": figures })
        };
        let figures = json!({ "start_ms": [1001.0, 900.0, 1200.0] });
        json!({
            "scenarios": [
                {
                    "name": "steady-1k",
                    "title": "At 1,000",
                    "brokers": [],
                    "ratios": [
                        ratio("Ringlog, power-loss", "Kafka as shipped, no fsync", 0.8),
                        ratio("Ringlog, process-crash", "Kafka as shipped, no fsync", 0.7),
                    ],
                },
                {
                    "name": "crash-recovery-10gb",
                    "brokers": [{ "name": "Ringlog, power-loss", "figures": figures }],
                },
            ],
        })
    }

    #[test]
    fn the_median_decides_and_what_was_not_measured_is_neither() {
        let mut report = report();
        report["goals"] = judge(&report).into();
        let text = markdown(&report);
        let has = |between: &str, cells: &str| {
            let row = format!(" | {between} | {cells} |\n");
            assert!(text.contains(&row), "{row}{text}");
        };
        let shipped = "Kafka as shipped, no fsync";
        has(&format!("Ringlog, power-loss / {shipped}"), "<= 0.8 x | 0.800 (0.500..0.900) | yes");
        has(&format!("Ringlog, process-crash / {shipped}"), "<= 0.6 x | 0.700 (0.500..0.900) | no");
        has("Ringlog, power-loss / Kafka, fsync per append", "<= 0.5 x | not measured | -");
        has("Ringlog, power-loss", "<= 1000 ms | 1001 (900..1200) | no");
        assert!(text.contains("\n1 of 32 goals are met, 2 are not.\n"), "{text}");
    }

    #[test]
    fn what_is_full_is_named_where_a_goal_is_missed() {
        let limit_of = |client_cores: f64, written: f64| {
            let mut report = report();
            report["floors"] = json!({ DSYNC_MEGABYTES_PER_SECOND: 1000.0 });
            let figures =
                json!({ "client_cores": [client_cores], WRITTEN_MEGABYTES_PER_SECOND: [written] });
            let ours = json!({ "name": "Ringlog, power-loss", "figures": figures });
            report["scenarios"][0]["brokers"] = json!([ours]);
            limit(&report["scenarios"][0], &report)
        };
        assert_eq!(limit_of(0.89, 899.0), None);
        assert_eq!(limit_of(0.95, 990.0).as_deref(), Some("the load takes 0.95 of its core"));
        let device = "the device takes 901 MB/s, large writes alone 1000";
        assert_eq!(limit_of(0.3, 901.0).as_deref(), Some(device));
    }

    #[test]
    fn every_goal_is_about_a_scenario_that_its_brokers_run() {
        for goal in goals() {
            let named = Scenario::named(&[goal.scenario.to_owned()]).expect(goal.scenario);
            let brokers = match goal.of {
                Of::Ratio(of, to) => vec![of, to],
                Of::Figure => vec![Contestant::PowerLoss],
            };
            for scenario in named {
                assert_eq!(scenario.group, "goals", "{}", goal.scenario);
                assert!(brokers.iter().all(|one| scenario.is_for(*one)), "{}", goal.scenario);
            }
        }
    }

    #[test]
    fn a_readme_gets_the_table_between_its_marks() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let mut report = report();
        report["goals"] = judge(&report).into();
        let part = section(&report, Some(Path::new("perf/compare.svg")));
        let new = replaced(&readme, &part).expect("has marks");
        let begin = format!(
            "before\n{BEGIN}\n![At 1,000: latency by percentile](perf/compare.svg)\n\n| goal | "
        );
        assert!(new.starts_with(&begin), "{new}");
        assert!(new.ends_with(&format!("are not.\n{END}\nafter\n")), "{new}");
        assert!(!new.contains("old"), "{new}");
        assert!(replaced("nothing", &part).is_err());
    }
}
