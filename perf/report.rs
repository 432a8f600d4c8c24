//! What a command has found, for people and for programs.
//!
//! Owns the two ways of printing: aligned lines, or one JSON object on one line. Names carry their
//! unit at the end and are the same in both.

use hdrhistogram::Histogram;
use serde_json::Value;

/// Figures under names, in the order in which they are told.
pub type Figures = Vec<(String, Value)>;

/// Figures, and rows of figures.
#[derive(Debug, Default)]
pub struct Report {
    figures: Figures,
    rows: Vec<Figures>,
}

impl Report {
    /// A report of this command.
    #[must_use]
    pub fn new(command: &str) -> Report {
        let mut report = Report::default();
        report.add("command", command);
        report
    }

    /// Adds a figure.
    pub fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.push((name.to_owned(), value.into()));
    }

    /// Adds figures.
    pub fn add_all(&mut self, figures: Figures) {
        self.figures.extend(figures);
    }

    /// Adds p50, p99 and p99.9 of two histograms of nanoseconds, and the ratio of their p99.
    pub fn add_compared(&mut self, compared: [(&str, &Histogram<u64>); 2]) {
        let us = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        for (name, times) in compared {
            for (quantile, value) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                self.add(&format!("{name}_{quantile}_us"), number(us(times, value)));
            }
        }
        let [(_, first), (_, second)] = compared;
        self.add("p99_ratio", number(us(first, 0.99) / us(second, 0.99)));
    }

    /// Adds a row; all rows have the same names.
    pub fn row(&mut self, figures: Figures) {
        self.rows.push(figures);
    }

    /// Prints it.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", self.object());
        } else {
            print!("{}", self.lines());
        }
    }

    fn object(&self) -> Value {
        let of = |figures: &Figures| Value::Object(figures.iter().cloned().collect());
        let mut object = of(&self.figures);
        if !self.rows.is_empty() {
            object["rows"] = self.rows.iter().map(of).collect();
        }
        object
    }

    fn lines(&self) -> String {
        let width = self.figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.figures {
            text += &format!("{name:<width$}  {}\n", plain(value));
        }
        let Some(first) = self.rows.first() else { return text };
        let head: Vec<String> = first.iter().map(|(name, _)| name.clone()).collect();
        let cells = |row: &Figures| row.iter().map(|(_, value)| plain(value)).collect();
        let lines: Vec<Vec<String>> =
            std::iter::once(head).chain(self.rows.iter().map(cells)).collect();
        let width_of = |place: usize| {
            let cells = lines.iter().filter_map(|line| line.get(place));
            cells.map(String::len).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..first.len()).map(width_of).collect();
        for line in &lines {
            let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            text += padded.collect::<Vec<_>>().join("  ").trim_end();
            text += "\n";
        }
        text
    }
}

/// Figures from pairs.
#[must_use]
pub fn figures<const N: usize>(pairs: [(&str, Value); N]) -> Figures {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A number as it is printed: a few digits after the point, none where they say nothing.
#[must_use]
pub fn number(value: f64) -> Value {
    let steps = if value.abs() < 100.0 { 1e3 } else { 10.0 };
    Value::from((value * steps).round() / steps)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned() {
        let mut report = Report::new("x");
        report.add("p50_us", number(12.34567));
        report.row(figures([("k", 1.into()), ("p99_us", number(1234.56))]));
        report.row(figures([("k", 1000.into()), ("p99_us", Value::Null)]));
        assert_eq!(
            report.lines(),
            "command  x\np50_us   12.346\n   k  p99_us\n   1  1234.6\n1000    null\n"
        );
        assert_eq!(
            report.object().to_string(),
            concat!(
                r#"{"command":"x","p50_us":12.346,"#,
                r#""rows":[{"k":1,"p99_us":1234.6},{"k":1000,"p99_us":null}]}"#
            )
        );
    }
}
