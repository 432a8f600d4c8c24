//! `counters.json`: what each counter was when it was written down, and how far from it one may be.
//!
//! Owns the file and the verdicts. Counters of debug and release builds stand apart: instructions
//! differ, and what is batched while a slower broker is busy. The least of some runs counts, since
//! what else happens only adds. A tolerance is what the counter differed by in the runs that were
//! written down, and never below two per cent.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::counters::Counter;
use crate::client::Fault;

/// The file: counters by profile.
#[derive(Clone, Default, Deserialize, Serialize, Debug)]
#[serde(transparent)]
pub struct Baseline {
    profiles: BTreeMap<String, Counters>,
}

/// Counters by name.
pub type Counters = BTreeMap<String, Kept>;

/// One counter as it is kept.
#[derive(Clone, PartialEq, Deserialize, Serialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The least of the runs: what else the machine does only adds.
    pub value: f64,
    /// How far from it is as good as equal.
    pub tolerance_percent: f64,
    /// Who counted: counts of different counters are not compared.
    pub by: String,
}

/// What is said of one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As before.
    Same,
    /// More than before.
    Worse,
    /// Less than before: what is written down is to be brought up to date.
    Better,
    /// Not written down yet.
    New,
    /// Written down and not counted: the gate has a hole.
    Gone,
    /// Counted by something else than what is written down.
    OtherCounter,
    /// Nothing on this machine can count it.
    CannotCount,
}

impl Verdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Worse => "WORSE",
            Verdict::Better => "better",
            Verdict::New => "new",
            Verdict::Gone => "GONE",
            Verdict::OtherCounter => "counted otherwise",
            Verdict::CannotCount => "cannot be counted here",
        }
    }

    /// Whether a change with this passes.
    pub fn passes(self) -> bool {
        !matches!(self, Verdict::Worse | Verdict::Gone)
    }
}

/// A counter and what is said of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// What is written down.
    pub kept: Option<Kept>,
    /// What was counted.
    pub value: Option<f64>,
    /// What it is made of, for people.
    pub detail: String,
    /// What is said.
    pub verdict: Verdict,
}

impl Baseline {
    /// The file at `path`; an empty one if there is none.
    pub fn read(path: &Path) -> Result<Baseline, Fault> {
        if !path.exists() {
            return Ok(Baseline::default());
        }
        let text = std::fs::read_to_string(path)?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    /// Replaces the counters of a profile, and writes the file.
    pub fn write(&mut self, path: &Path, profile: &str, counters: Counters) -> Result<(), Fault> {
        self.profiles.insert(profile.to_owned(), counters);
        Ok(std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(self)?))?)
    }

    /// The counters of a profile.
    pub fn of(&self, profile: &str) -> Counters {
        self.profiles.get(profile).cloned().unwrap_or_default()
    }
}

/// What is kept of some runs.
pub fn keep(runs: &[Vec<Counter>]) -> Counters {
    let mut counters = Counters::new();
    for counter in runs.first().into_iter().flatten() {
        let values = values(runs, &counter.name);
        let Some(value) = least(&values) else { continue };
        let most = values.iter().copied().fold(value, f64::max);
        let spread = if value == 0.0 { 0.0 } else { 100.0 * (most - value) / value };
        let tolerance_percent = (2.0 * spread).ceil().max(2.0 * TOLERANCE_MIN) / 2.0;
        let kept = Kept { value: rounded(value), tolerance_percent, by: counter.by.clone() };
        counters.insert(counter.name.clone(), kept);
    }
    counters
}

/// What the least of some runs comes to, beside what is kept.
pub fn judge(kept: &Counters, runs: &[Vec<Counter>]) -> Vec<Judged> {
    let mut judged: Vec<Judged> = Vec::new();
    for counter in runs.first().into_iter().flatten() {
        let value = least(&values(runs, &counter.name)).map(rounded);
        let kept = kept.get(&counter.name).cloned();
        let verdict = match (&kept, value) {
            (_, None) => Verdict::CannotCount,
            (None, Some(_)) => Verdict::New,
            (Some(kept), Some(_)) if kept.by != counter.by => Verdict::OtherCounter,
            (Some(kept), Some(value)) => {
                let slack = (kept.value * kept.tolerance_percent / 100.0).max(SLACK);
                match value - kept.value {
                    more if more > slack => Verdict::Worse,
                    less if less < -slack => Verdict::Better,
                    _ => Verdict::Same,
                }
            }
        };
        let (name, detail) = (counter.name.clone(), counter.detail.clone());
        judged.push(Judged { name, kept, value, detail, verdict });
    }
    for (name, of) in kept {
        if !judged.iter().any(|judged| judged.name == *name) {
            judged.push(Judged {
                name: name.clone(),
                kept: Some(of.clone()),
                value: None,
                detail: String::new(),
                verdict: Verdict::Gone,
            });
        }
    }
    judged
}

fn values(runs: &[Vec<Counter>], name: &str) -> Vec<f64> {
    let all = runs.iter().flatten().filter(|counter| counter.name == name);
    all.filter_map(|counter| counter.value).collect()
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// What cannot be told from nothing: one in a hundred requests.
const SLACK: f64 = 0.01;
/// Per cent.
const TOLERANCE_MIN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(values: &[(&str, f64)]) -> Vec<Counter> {
        values.iter().map(|&(name, value)| Counter::exact(name, value)).collect()
    }

    fn verdicts(kept: &Counters, measured: &[(&str, f64)]) -> Vec<(String, Verdict)> {
        let judged = judge(kept, &[run(measured)]);
        judged.into_iter().map(|judged| (judged.name, judged.verdict)).collect()
    }

    #[test]
    fn a_tolerance_is_what_the_runs_showed() {
        let runs = [run(&[("a", 100.0), ("b", 5.0)]), run(&[("a", 104.0), ("b", 5.0)])];
        let kept = keep(&[runs[1].clone(), runs[0].clone(), runs[0].clone()]);
        assert_eq!((kept["a"].value, kept["a"].tolerance_percent), (100.0, 4.0));
        assert_eq!((kept["b"].value, kept["b"].tolerance_percent), (5.0, 2.0));
    }

    #[test]
    fn more_is_worse_and_less_is_said_too() {
        let kept = keep(&[run(&[("calls", 100.0), ("none", 0.0)])]);
        let check = |calls, none, verdict| {
            let found = verdicts(&kept, &[("calls", calls), ("none", none)]);
            assert_eq!(found[0].1, verdict, "{calls}");
            found[1].1
        };
        assert_eq!(check(101.9, 0.0, Verdict::Same), Verdict::Same);
        assert_eq!(check(102.1, 0.005, Verdict::Worse), Verdict::Same);
        assert_eq!(check(97.0, 1.0, Verdict::Better), Verdict::Worse);
    }

    #[test]
    fn what_is_not_counted_any_more_does_not_pass() {
        let kept = keep(&[run(&[("calls", 100.0), ("bytes", 1.0)])]);
        let found = verdicts(&kept, &[("calls", 100.0), ("commits", 1.0)]);
        let wanted =
            [("calls", Verdict::Same), ("commits", Verdict::New), ("bytes", Verdict::Gone)];
        assert_eq!(found, wanted.map(|(name, verdict)| (name.to_owned(), verdict)));
        assert!(!Verdict::Gone.passes() && !Verdict::Worse.passes() && Verdict::New.passes());
        let other = Counter { by: "strace".into(), ..Counter::exact("calls", 500.0) };
        assert_eq!(judge(&kept, &[vec![other]])[0].verdict, Verdict::OtherCounter);
        let none = Counter { value: None, ..Counter::exact("calls", 0.0) };
        assert_eq!(judge(&kept, &[vec![none]])[0].verdict, Verdict::CannotCount);
    }

    #[test]
    fn the_file_keeps_profiles_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("counters.json");
        let mut baseline = Baseline::read(&path).expect("none is empty");
        let (debug, release) = (keep(&[run(&[("a", 2.0)])]), keep(&[run(&[("a", 1.0)])]));
        baseline.write(&path, "debug", debug.clone()).expect("written");
        baseline.write(&path, "release", release.clone()).expect("written");
        let read = Baseline::read(&path).expect("read");
        assert_eq!((read.of("debug"), read.of("release")), (debug, release));
        assert!(read.of("other").is_empty());
    }
}
