//! What a broker tells of itself: its metrics endpoint, read over HTTP.
//!
//! Owns one request and the sums of its samples by name. Must never be read inside of a measured
//! time but at its ends.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::client::Fault;

/// Samples of one moment, added up over all labels but histogram buckets.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    sums: HashMap<String, f64>,
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
        let mut sums = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let name = name.split('{').next().unwrap_or(name);
            if let Ok(value) = value.parse::<f64>() {
                *sums.entry(name.to_owned()).or_default() += value;
            }
        }
        Metrics { sums }
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
}
