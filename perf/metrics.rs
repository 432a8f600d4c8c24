//! What a broker tells of itself: its metrics endpoint, read over HTTP.
//!
//! Owns one request and the sums of its samples by name. Must never be read inside of a measured
//! time but at its ends.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::client::Fault;

/// Samples of one moment, added up over all labels but histogram buckets.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    sums: HashMap<String, f64>,
    /// Seconds that requests spent in each stage, by request and stage.
    stages: BTreeMap<(String, String), f64>,
    /// Requests of each kind that were timed.
    timed: BTreeMap<String, f64>,
}

impl Metrics {
    /// The metrics of the endpoint at `address`.
    pub fn of(address: &str) -> Result<Metrics, Fault> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Metrics::parse(&text))
    }

    fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let label = |key: &str| {
                let (_, rest) = name.split_once(&format!("{key}=\""))?;
                rest.split('"').next().map(str::to_owned)
            };
            if let Some(request) = label("request") {
                if name.starts_with(STAGE_SECONDS) {
                    let stage = label("stage").unwrap_or_default();
                    *metrics.stages.entry((request, stage)).or_default() += value;
                } else if name.starts_with(TIMED) {
                    *metrics.timed.entry(request).or_default() += value;
                }
            }
            let name = name.split('{').next().unwrap_or(name);
            *metrics.sums.entry(name.to_owned()).or_default() += value;
        }
        metrics
    }

    /// Microseconds that a request of this kind spent in each stage since `earlier`, on average.
    #[must_use]
    pub fn stages_since(&self, earlier: &Metrics, request: &str) -> Vec<(String, f64)> {
        let before = |key: &(String, String)| earlier.stages.get(key).copied().unwrap_or(0.0);
        let timed = |of: &Metrics| of.timed.get(request).copied().unwrap_or(0.0);
        let count = (timed(self) - timed(earlier)).max(1.0);
        let of = self.stages.iter().filter(|((of, _), _)| of == request);
        let us = of.map(|(key, seconds)| (key.1.clone(), (seconds - before(key)) / count * 1e6));
        us.filter(|(_, us)| *us > 0.0).collect()
    }

    /// A metric, over all labels; 0 if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.sums.get(name).copied().unwrap_or(0.0)
    }

    /// How much a counter has grown since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Metrics, name: &str) -> f64 {
        self.get(name) - earlier.get(name)
    }
}

/// Blocks written to the journal.
pub const JOURNAL_COMMITS: &str = "ringlog_journal_commits_total";
/// Checkpoints finished.
pub const CHECKPOINTS: &str = "ringlog_checkpoints_total";
/// Seconds spent in them.
pub const CHECKPOINT_SECONDS: &str = "ringlog_checkpoint_seconds_sum";
/// Bytes read from segments for readers.
pub const SEGMENT_BYTES_READ: &str = "ringlog_segment_read_bytes_total";
/// Those of them read before a reader asked.
pub const SEGMENT_BYTES_AHEAD: &str = "ringlog_segment_read_ahead_bytes_total";
/// Segments that left their logs.
pub const SEGMENTS_DELETED: &str = "ringlog_segments_deleted_total";
/// Passes of compaction.
pub const CLEANER_PASSES: &str = "ringlog_cleaner_passes_total";
/// Bytes they have read.
pub const CLEANER_READ: &str = "ringlog_cleaner_read_bytes_total";
/// Bytes they have written.
pub const CLEANER_WRITTEN: &str = "ringlog_cleaner_written_bytes_total";

const STAGE_SECONDS: &str = "ringlog_request_stage_seconds_sum{";
const TIMED: &str = "kafka_request_duration_seconds_count{";

const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_added_up_over_labels() {
        let metrics = Metrics::parse(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n# TYPE a counter\na{shard=\"0\"} 3\n\
             a{shard=\"1\",x=\"y z\"} 4\nb_sum 0.5\n",
        );
        assert_eq!(metrics.get("a"), 7.0);
        assert_eq!(metrics.get("b_sum"), 0.5);
        assert_eq!(metrics.get("c"), 0.0);
        assert_eq!(metrics.since(&Metrics::default(), "a"), 7.0);
    }

    #[test]
    fn stages_are_told_per_request() {
        let text = |seconds: f64, count: u64| {
            let of = "{request=\"Produce\"";
            format!(
                "ringlog_request_stage_seconds_sum{of},stage=\"device\"}} {seconds}\n\
                 kafka_request_duration_seconds_count{of}}} {count}\n\
                 ringlog_request_stage_seconds_count{of},stage=\"device\"}} 9\n"
            )
        };
        let (before, after) = (Metrics::parse(&text(1.0, 10)), Metrics::parse(&text(1.5, 20)));
        let found = after.stages_since(&before, "Produce");
        assert_eq!(found, [("device".to_owned(), 50_000.0)]);
        assert!(after.stages_since(&before, "Fetch").is_empty());
    }
}
