//! Requests by API: how many of which version, what they were answered, how long they took.
//!
//! Owns one row per API, made when the API is first asked for. Must never grow with anything a
//! client chooses: versions and codes have fixed places, and what has none is counted as unknown.

use std::cell::OnceCell;

use super::histogram::Histogram;
use super::stages::{STAGES, Stage, Times};
use super::{Counter, Samples, families};
use crate::error_code::ErrorCode;
use crate::io::Monotonic;
use crate::limits::{SLOW_LINES_MAX, SLOW_LINES_WINDOW_MS};
use crate::wire::versions::{Api, SERVED};

/// Places for versions: more than any API has.
const VERSIONS: usize = 24;

/// Places for codes: -1 is the first.
const CODES: usize = 160;

/// One API.
struct Row {
    versions: [Counter; VERSIONS],
    codes: [Counter; CODES],
    total: Histogram,
    stages: [Histogram; STAGES],
}

/// Requests of one shard.
pub struct Requests {
    rows: Vec<OnceCell<Box<Row>>>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { rows: SERVED.iter().map(|_| OnceCell::new()).collect() }
    }
}

impl Requests {
    /// A request has come.
    pub fn came(&self, api: Api, version: i16) {
        let place = usize::try_from(version).unwrap_or(0).min(VERSIONS - 1);
        self.row(api).versions[place].add(1);
    }

    /// So many places of a response carry this code.
    pub fn answered(&self, api: Api, code: i16, count: u64) {
        let place = usize::try_from(i32::from(code) + 1).unwrap_or(0).min(CODES - 1);
        self.row(api).codes[place].add(count);
    }

    /// A response has left.
    pub fn left(&self, api: Api, times: &Times) {
        let row = self.row(api);
        row.total.record_ns(times.iter().sum());
        for (stage, time) in row.stages.iter().zip(times) {
            stage.record_ns(*time);
        }
    }

    fn row(&self, api: Api) -> &Row {
        self.rows[api.place()].get_or_init(|| {
            Box::new(Row {
                versions: std::array::from_fn(|_| Counter::default()),
                codes: std::array::from_fn(|_| Counter::default()),
                total: Histogram::default(),
                stages: std::array::from_fn(|_| Histogram::default()),
            })
        })
    }

    /// Tells all of it.
    pub fn tell(&self, samples: &mut Samples) {
        for (served, row) in SERVED.iter().zip(&self.rows) {
            let Some(row) = row.get() else { continue };
            let request = ("request", &*format!("{:?}", served.api));
            for (version, count) in row.versions.iter().enumerate().filter(|(_, c)| c.get() > 0) {
                let labels = [request, ("version", &*version.to_string())];
                samples.count(&families::REQUESTS, &labels, count.get());
            }
            for (place, count) in row.codes.iter().enumerate().filter(|(_, c)| c.get() > 0) {
                let labels = [request, ("error", &*code_name(place))];
                samples.count(&families::ERRORS, &labels, count.get());
            }
            samples.distribution(&families::DURATION, &[request], row.total.distribution());
            for (stage, of) in Stage::ALL.iter().zip(&row.stages) {
                let labels = [request, ("stage", stage.label())];
                samples.distribution(&families::STAGES, &labels, of.distribution());
            }
        }
    }
}

fn code_name(place: usize) -> String {
    let code = i16::try_from(place).unwrap_or(i16::MAX) - 1;
    ErrorCode::from_code(code).map_or_else(|| code.to_string(), |code| code.name().to_owned())
}

/// How often one shard may write about slow requests.
#[derive(Default, Debug)]
pub struct SlowLines {
    window_began: std::cell::Cell<Monotonic>,
    written: std::cell::Cell<u32>,
    left_out: std::cell::Cell<u64>,
}

impl SlowLines {
    /// Whether a line may be written now: then with the number of those that were left out since
    /// the last one.
    pub fn admit(&self, now: Monotonic) -> Option<u64> {
        if now.ms_since(self.window_began.get()) >= SLOW_LINES_WINDOW_MS {
            self.window_began.set(now);
            self.written.set(0);
        }
        if self.written.get() >= SLOW_LINES_MAX {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.written.set(self.written.get() + 1);
        Some(self.left_out.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_and_code_has_a_place() {
        assert!(SERVED.iter().all(|row| usize::try_from(row.max).is_ok_and(|max| max < VERSIONS)));
        for code in -1..CODES as i16 - 1 {
            let Some(known) = ErrorCode::from_code(code) else { continue };
            assert_eq!(code_name(usize::try_from(code + 1).expect("small")), known.name());
        }
        assert!((CODES as i16 - 1..i16::MAX).all(|code| ErrorCode::from_code(code).is_none()));
    }

    #[test]
    fn requests_are_told_by_version_code_and_stage() {
        let requests = Requests::default();
        requests.came(Api::Fetch, 12);
        requests.came(Api::Fetch, 12);
        requests.answered(Api::Fetch, 0, 2);
        requests.answered(Api::Fetch, 3, 1);
        requests.left(Api::Fetch, &[1_000; STAGES]);
        let mut samples = Samples::default();
        requests.tell(&mut samples);
        let text: String = samples.pieces().collect();
        for line in [
            "kafka_network_requestmetrics_requests_total{request=\"Fetch\",version=\"12\"} 2",
            "kafka_network_requestmetrics_errors_total{request=\"Fetch\",error=\"NONE\"} 2",
            "kafka_network_requestmetrics_errors_total\
             {request=\"Fetch\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"} 1",
            "kafka_request_duration_seconds_count{request=\"Fetch\"} 1",
            "kafka_request_duration_seconds_sum{request=\"Fetch\"} 0.000009",
            "ringlog_request_stage_seconds_sum{request=\"Fetch\",stage=\"device\"} 0.000001",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("Produce"), "an API that nobody asked for is not told");
    }

    #[test]
    fn slow_lines_are_few_and_say_how_many_were_left_out() {
        let lines = SlowLines::default();
        let at = |ms| Monotonic::default().plus_ms(50_000 + ms);
        let admitted = |ms| (0..100).filter(|_| lines.admit(at(ms)).is_some()).count();
        assert_eq!(admitted(0), SLOW_LINES_MAX as usize);
        assert_eq!(admitted(SLOW_LINES_WINDOW_MS - 1), 0);
        let left_out = 100 - u64::from(SLOW_LINES_MAX) + 100;
        assert_eq!(lines.admit(at(SLOW_LINES_WINDOW_MS)), Some(left_out));
        assert_eq!(lines.admit(at(SLOW_LINES_WINDOW_MS)), Some(0));
    }
}
