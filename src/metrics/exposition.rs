//! Samples of metrics, and Prometheus' text format 0.0.4.
//!
//! Owns how samples of several shards become one text: samples of the same family and labels are
//! added up, every family has its HELP and TYPE once, labels are escaped. The text comes in
//! pieces, so that whoever asks for it may let others run in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::histogram::Distribution;

/// What a family of metrics is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
    /// A counter of time, kept in microseconds and told in seconds.
    CounterSeconds,
    /// A moment or duration, kept in microseconds and told in seconds.
    GaugeSeconds,
    /// A distribution of durations, kept in microseconds and told in seconds; so many buckets of
    /// it make one that is told.
    Seconds(usize),
    /// A distribution of counts.
    Counts,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter | Kind::CounterSeconds => "counter",
            Kind::Gauge | Kind::GaugeSeconds => "gauge",
            Kind::Seconds(_) | Kind::Counts => "histogram",
        }
    }
}

/// A family of metrics: one name.
#[derive(PartialEq, Eq, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One sentence.
    pub help: &'static str,
}

/// The value of one sample.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Number(i64),
    Distribution(Distribution),
}

/// Samples by family and labels.
#[derive(Clone, Default, Debug)]
pub struct Samples {
    families: BTreeMap<&'static str, (&'static Family, BTreeMap<String, Value>)>,
}

impl Samples {
    /// Adds a number.
    pub fn number(&mut self, family: &'static Family, labels: &[(&str, &str)], value: i64) {
        self.add(family, text_of(labels), Value::Number(value));
    }

    /// Adds a count.
    pub fn count(&mut self, family: &'static Family, labels: &[(&str, &str)], value: u64) {
        self.number(family, labels, i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds a distribution.
    pub fn distribution(
        &mut self,
        family: &'static Family,
        labels: &[(&str, &str)],
        value: Distribution,
    ) {
        self.add(family, text_of(labels), Value::Distribution(value));
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: Samples) {
        for (family, samples) in other.families.into_values() {
            let (_, known) = self.families.entry(family.name).or_insert((family, BTreeMap::new()));
            if known.is_empty() {
                *known = samples;
                continue;
            }
            for (labels, value) in samples {
                self.add(family, labels, value);
            }
        }
    }

    fn add(&mut self, family: &'static Family, labels: String, value: Value) {
        let (_, samples) = self.families.entry(family.name).or_insert((family, BTreeMap::new()));
        match (samples.get_mut(&labels), value) {
            (Some(Value::Number(sum)), Value::Number(value)) => *sum = sum.saturating_add(value),
            (Some(Value::Distribution(sum)), Value::Distribution(value)) => sum.add(&value),
            (_, value) => {
                samples.insert(labels, value);
            }
        }
    }

    /// The text, in pieces of whole lines.
    pub fn pieces(&self) -> impl Iterator<Item = String> + '_ {
        self.families.values().flat_map(|(family, samples)| {
            let head = format!(
                "# HELP {} {}\n# TYPE {} {}\n",
                family.name,
                family.help,
                family.name,
                family.kind.name()
            );
            let mut samples = samples.iter().peekable();
            let mut rest = Some(head);
            std::iter::from_fn(move || {
                let mut piece = rest.take().unwrap_or_default();
                for (labels, value) in samples.by_ref().take(SAMPLES_PER_PIECE) {
                    put_sample(&mut piece, family, labels, value);
                }
                (!piece.is_empty()).then_some(piece)
            })
        })
    }
}

fn put_sample(out: &mut String, family: &Family, labels: &str, value: &Value) {
    match value {
        Value::Number(value) => match (family.kind, u64::try_from(*value)) {
            (Kind::CounterSeconds | Kind::GaugeSeconds, Ok(microseconds)) => {
                put_line(out, family.name, "", labels, "", seconds(microseconds));
            }
            _ => put_line(out, family.name, "", labels, "", *value),
        },
        Value::Distribution(of) => {
            let (step, in_seconds) = match family.kind {
                Kind::Seconds(step) => (step, true),
                _ => (COUNTS_STEP, false),
            };
            let number = |value: u64| {
                if in_seconds { seconds(value) } else { value.to_string() }
            };
            for (bound, count) in of.cumulative(step) {
                let bound = number(bound);
                put_line(out, family.name, "_bucket", labels, &bound, count);
            }
            put_line(out, family.name, "_bucket", labels, "+Inf", of.count());
            put_line(out, family.name, "_sum", labels, "", number(of.sum()));
            put_line(out, family.name, "_count", labels, "", of.count());
        }
    }
}

/// One line; `bound` is the label `le` of a bucket, empty for none.
fn put_line(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &str,
    bound: &str,
    value: impl std::fmt::Display,
) {
    let comma = if labels.is_empty() { "" } else { "," };
    // Writing to a string cannot fail.
    let _ = match (labels, bound) {
        ("", "") => writeln!(out, "{name}{suffix} {value}"),
        (_, "") => writeln!(out, "{name}{suffix}{{{labels}}} {value}"),
        _ => writeln!(out, "{name}{suffix}{{{labels}{comma}le=\"{bound}\"}} {value}"),
    };
}

/// Microseconds as seconds, exactly and without an exponent.
fn seconds(microseconds: u64) -> String {
    let (whole, part) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let text = format!("{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Labels as they stand between the braces.
fn text_of(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

/// Samples in one piece: a hundred kilobytes at most.
const SAMPLES_PER_PIECE: usize = 256;

/// Buckets of a distribution of counts that make one that is told: powers of two.
const COUNTS_STEP: usize = 4;

#[cfg(test)]
mod tests;
