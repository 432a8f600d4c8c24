//! What a comparison has found: one object, which is written as JSON and told as text and charts.
//!
//! Owns its shape. A ratio is taken within one round, and told as the median of all rounds with the
//! lowest and the highest. A broker that failed in a scenario says why, keeps what it had done, and
//! is held against nobody. What every broker guarantees stands in front.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::chart;
use super::client::Fault;
use super::goals;
use super::kinds::Sample;
use super::measure::median;
use super::plan::Plan;
use super::report::{Figures, number};
use super::scenario::{Contestant, Scenario};

/// All runs of one scenario.
pub struct Comparison {
    scenario: Scenario,
    taken: Vec<Taken>,
}

/// What one broker did: a sample a round, until it failed.
pub struct Taken {
    pub contestant: Contestant,
    pub samples: Vec<Sample>,
    pub failed: Option<String>,
}

impl Taken {
    /// Nothing yet.
    pub fn new(contestant: Contestant) -> Taken {
        Taken { contestant, samples: Vec::new(), failed: None }
    }

    /// One figure of all rounds.
    fn of(&self, figure: &str) -> Vec<f64> {
        let found =
            |sample: &Sample| sample.figures.iter().find(|(name, _)| *name == figure).copied();
        self.samples.iter().filter_map(found).map(|(_, value)| value).collect()
    }

    fn told(&self) -> Value {
        let names = self.samples.first().into_iter().flat_map(|sample| &sample.figures);
        let figures: Map<String, Value> =
            names.map(|&(name, _)| (name.to_owned(), spread(&self.of(name)))).collect();
        let last = self.samples.last();
        let part = |place: fn(&(f64, f64)) -> f64| -> Vec<Value> {
            let series = last.into_iter().flat_map(|sample| &sample.series);
            series.map(|second| number(place(second))).collect()
        };
        let stages = last.into_iter().flat_map(|sample| &sample.stages);
        let stages: Map<String, Value> =
            stages.map(|(stage, us)| (stage.clone(), number(*us))).collect();
        json!({
            "name": self.contestant.name(),
            "failed": self.failed,
            "figures": figures,
            "curve_us": curve(&self.samples),
            "stages_us": stages,
            "requests_by_second": part(|second| second.0),
            "resident_mib_by_second": part(|second| second.1),
        })
    }
}

impl Comparison {
    /// Fails where no broker has done anything.
    pub fn of(scenario: Scenario, taken: Vec<Taken>) -> Result<Comparison, Fault> {
        if taken.iter().all(|one| one.samples.is_empty()) {
            let whys = taken.iter().map(|one| one.failed.as_deref().unwrap_or("did not run"));
            let whys: Vec<&str> = whys.collect();
            return Err(format!("no broker has run it: {}", whys.join("; ")).into());
        }
        Ok(Comparison { scenario, taken })
    }

    fn told(&self) -> Value {
        let first = self.taken.iter().find_map(|one| one.samples.first());
        let columns: Vec<&str> =
            first.into_iter().flat_map(|sample| &sample.figures).map(|&(name, _)| name).collect();
        json!({
            "name": self.scenario.name,
            "title": self.scenario.title,
            "rounds": self.taken.iter().map(|one| one.samples.len()).max(),
            "columns": columns,
            "brokers": self.taken.iter().map(Taken::told).collect::<Vec<_>>(),
            "ratios": self.ratios(),
        })
    }

    fn ratios(&self) -> Vec<Value> {
        let find =
            |wanted| self.taken.iter().find(|one| one.contestant == wanted && one.failed.is_none());
        let told = |&(of, to): &(Contestant, Contestant)| {
            let (a, b) = (find(of)?, find(to)?);
            let names = a.samples.first()?.figures.iter().map(|&(name, _)| name);
            let figures = names.map(|name| {
                let rounds = a.of(name).into_iter().zip(b.of(name));
                let ratios: Vec<f64> = rounds.map(|(a, b)| a / b).collect();
                (name.to_owned(), spread(&ratios))
            });
            let figures: Map<String, Value> = figures.collect();
            Some(json!({ "of": of.name(), "to": to.name(), "figures": figures }))
        };
        RATIOS.iter().filter_map(told).collect()
    }
}

/// Everything that is known so far.
pub fn report(
    floors: &Figures,
    plan: &Plan,
    done: &[Comparison],
    left_out: &[(String, String)],
) -> Value {
    let brokers =
        Contestant::ALL.iter().map(|one| (one.name().to_owned(), one.durability().into()));
    let left_out = left_out.iter().map(|(name, why)| json!({ "name": name, "why": why }));
    let mut report = json!({
        "title": format!(
            "Each broker's shards and threads from the first core on (that of the disk's \
             interrupts), the load on another. Up to \
             {} rounds forth and back, {} s each after {} s of warm-up, the first after {} s. \
             Median, lowest and highest; a ratio is of one round, and below one is less.",
            plan.rounds, plan.seconds, plan.warm_up_seconds, plan.first_warm_up_seconds
        ),
        "floors": floors.iter().cloned().collect::<Map<_, _>>(),
        "brokers": brokers.collect::<Map<_, Value>>(),
        "scenarios": done.iter().map(Comparison::told).collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
    });
    report["goals"] = goals::judge(&report).into();
    report
}

/// Writes it in every form.
pub fn write(report: &Value, directory: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(directory)?;
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text);
    write("compare.json", format!("{report:#}\n"))?;
    write("compare.md", markdown(report))?;
    write("compare.html", chart::page(report))?;
    if let Some(image) = chart::image(report, goals::CHARTED) {
        write("compare.svg", image)?;
    }
    Ok(())
}

/// Median, lowest and highest.
fn spread(figures: &[f64]) -> Value {
    let lowest = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    json!([number(median(figures)), number(lowest), number(highest)])
}

/// Latencies of all rounds at the quantiles of [`chart::QUANTILES`].
fn curve(samples: &[Sample]) -> Vec<Value> {
    let Some((first, others)) = samples.split_first() else { return Vec::new() };
    let mut all = first.latencies.clone();
    for sample in others {
        all += &sample.latencies;
    }
    if all.is_empty() {
        return Vec::new();
    }
    let at = |&(quantile, _): &(f64, &str)| number(all.value_at_quantile(quantile) as f64 / 1e3);
    chart::QUANTILES.iter().map(at).collect()
}

/// The tables: goals, and for each scenario what each broker did, and the ratios.
pub fn markdown(report: &Value) -> String {
    let mut out =
        format!("{}\n\n| the machine in the same minute | |\n|---|---|\n", text(&report["title"]));
    for (name, value) in report["floors"].as_object().into_iter().flatten() {
        out += &format!("| `{name}` | {value} |\n");
    }
    out += "\n| broker | what an acknowledgement means |\n|---|---|\n";
    for (name, durability) in report["brokers"].as_object().into_iter().flatten() {
        out += &format!("| {name} | {} |\n", text(durability));
    }
    out += &format!("\n{}\n", goals::markdown(report));
    for scenario in each(&report["scenarios"]) {
        out += &of_scenario(scenario);
    }
    for left_out in each(&report["left_out"]) {
        out += &format!("Left out: `{}`: {}\n", text(&left_out["name"]), text(&left_out["why"]));
    }
    out
}

fn of_scenario(scenario: &Value) -> String {
    let mut out = format!("**{}** (`{}`)\n\n", text(&scenario["title"]), text(&scenario["name"]));
    let names: Vec<&str> = each(&scenario["columns"]).iter().map(text).collect();
    out += &format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut line = |head: String, figures: &Value| {
        let cells = names.iter().map(|name| {
            let [median, lowest, highest] = [0, 1, 2].map(|at| figures[name][at].to_string());
            format!("{median} ({lowest}..{highest})")
        });
        out += &format!("| {head} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    };
    for broker in each(&scenario["brokers"]) {
        let failed = broker["failed"].as_str().map(|why| format!(" (failed: {why})"));
        let head = format!("{}{}", text(&broker["name"]), failed.unwrap_or_default());
        line(head, &broker["figures"]);
    }
    for ratio in each(&scenario["ratios"]) {
        let head = format!("*{} / {}*", text(&ratio["of"]), text(&ratio["to"]));
        line(head, &ratio["figures"]);
    }
    out + "\n"
}

/// The elements of an array, or none.
pub fn each(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text, or an empty one.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Who is held against whom.
const RATIOS: &[(Contestant, Contestant)] = &[
    (Contestant::PowerLoss, Contestant::Kafka),
    (Contestant::ProcessCrash, Contestant::Kafka),
    (Contestant::PowerLoss, Contestant::KafkaFlushing),
];

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

    fn taken(contestant: Contestant, p50_us: &[f64]) -> Taken {
        let samples = p50_us.iter().copied().map(sampled).collect();
        Taken { samples, ..Taken::new(contestant) }
    }

    fn compared(taken: Vec<Taken>) -> Result<Comparison, Fault> {
        let text = "title = \"t\"\ndoes = \"produce\"\n";
        Comparison::of(Scenario::parse("s", text).expect("a scenario"), taken)
    }

    #[test]
    fn ratios_are_of_one_round_each() {
        let ours = taken(Contestant::PowerLoss, &[100.0, 300.0, 200.0]);
        let theirs = taken(Contestant::Kafka, &[200.0, 300.0, 800.0]);
        let told = compared(vec![ours, theirs]).expect("has run").told();
        assert_eq!(told["brokers"][0]["figures"]["p50_us"], json!([200.0, 100.0, 300.0]));
        assert_eq!(told["ratios"][0]["figures"]["p50_us"], json!([0.5, 0.25, 1.0]));
        assert_eq!(told["ratios"].as_array().map(Vec::len), Some(1));
        let report = json!({ "scenarios": [told] });
        assert!(markdown(&report).contains(
            "| *Ringlog, power-loss / Kafka as shipped, no fsync* | 0.5 (0.25..1.0) |\n"
        ));
    }

    #[test]
    fn who_failed_is_held_against_nobody() {
        let ours = taken(Contestant::PowerLoss, &[100.0, 300.0]);
        let mut theirs = taken(Contestant::Kafka, &[200.0]);
        theirs.failed = Some("it ended".to_owned());
        let never = Taken { failed: Some("no".to_owned()), ..Taken::new(Contestant::ProcessCrash) };
        let told = compared(vec![ours, never, theirs]).expect("one has run").told();
        assert_eq!(told["ratios"], json!([]));
        assert_eq!(told["brokers"][2]["figures"]["p50_us"], json!([200.0, 200.0, 200.0]));
        let report = json!({ "scenarios": [told] });
        let text = markdown(&report);
        assert!(
            text.contains("| Kafka as shipped, no fsync (failed: it ended) | 200.0 "),
            "{text}"
        );
        assert!(text.contains("| Ringlog, process-crash (failed: no) | null"), "{text}");
        assert!(chart::page(&report).contains("<i>failed: it ended</i>"));
        let mut none = Taken::new(Contestant::Kafka);
        none.failed = Some("no".to_owned());
        assert!(compared(vec![none]).is_err());
    }
}
