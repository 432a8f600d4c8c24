//! What is compared: scenarios, each a file in `scenarios/`.
//!
//! Owns their format and the list of those that come with the program. A key that is not known is
//! an error, so that no file says what is not done.

use std::path::Path;

use serde::Deserialize;

use super::client::Fault;
use super::load::Load;

/// One scenario.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of its file without `.toml`; also that of its topic.
    #[serde(skip)]
    pub name: String,
    /// A sentence for people.
    pub title: String,
    /// What is done.
    pub does: Does,
    /// Which scenarios it belongs to: `goals`, those that a goal is about, or others by theme.
    #[serde(default = "goals")]
    pub group: String,
    /// Which brokers take part [default: all].
    #[serde(default = "everyone")]
    brokers: Vec<Contestant>,
    /// Rounds at most; 0 for as many as the comparison is told.
    #[serde(default)]
    pub rounds: usize,
    /// Shards of Ringlog; 0 for as many as the comparison is told.
    #[serde(default)]
    pub shards: u16,
    /// Arguments of `serve` that Ringlog is started with for this scenario.
    #[serde(default)]
    pub serve: Vec<String>,
    /// What is there before: MiB of records of a topic, in batches of 64 KiB.
    #[serde(default)]
    pub filled_mib: u64,
    /// The page cache is dropped before each run: what is read comes from the device.
    #[serde(default)]
    pub cold: bool,
    /// Connections that are open and ask nothing.
    #[serde(default)]
    pub idle_connections: usize,
    /// Connections that read a filled topic meanwhile.
    #[serde(default)]
    pub readers: usize,
    /// Time between two commits of a transactional producer.
    #[serde(default)]
    pub commit_ms: u64,
    /// The 99th percentile up to which a rate counts as held.
    #[serde(default)]
    pub p99_us: u64,
    /// Records per second of the measured time that one of Kafka's own programs is given at most.
    #[serde(default)]
    pub java_records: u64,
    /// Properties of the client of one of Kafka's own programs.
    #[serde(default)]
    pub java: Vec<String>,
    #[serde(default = "one")]
    partitions: i32,
    #[serde(default = "one")]
    connections: usize,
    #[serde(default = "one")]
    in_flight: usize,
    #[serde(default = "kibibyte")]
    record_bytes: usize,
    #[serde(default = "one")]
    records: usize,
    #[serde(default)]
    keyed: bool,
    #[serde(default = "all_in_sync")]
    acks: i16,
    /// Requests per second; 0 for as many as are answered.
    #[serde(default)]
    rate: u64,
}

/// What is done to the brokers.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    /// Batches are appended.
    Produce,
    /// What is there is read.
    Fetch,
    /// Batches are appended and read at once: the time from the one to the other.
    Tail,
    /// The highest rate that is held.
    Knee,
    /// Transactions are committed.
    Commit,
    /// A transactional producer writes all the time.
    Transact,
    /// Offsets are committed.
    Offsets,
    /// The broker ends and starts again.
    Restart,
    /// The broker is killed and starts again.
    Crash,
    /// Small requests that no disk takes part in, beside a bare echo of the same bytes.
    Network,
    /// Apache Kafka's own programs.
    ProducerPerformance,
    /// See there.
    ConsumerPerformance,
    /// See there.
    EndToEndLatency,
}

/// A broker as a scenario names it.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Ringlog: what it has acknowledged survives a loss of power.
    PowerLoss,
    /// Ringlog: what it has acknowledged survives the end of the process.
    ProcessCrash,
    /// Apache Kafka as it ships.
    Kafka,
    /// Apache Kafka with an fsync per append.
    KafkaFlushing,
}

impl Contestant {
    /// In the order in which they are told.
    pub const ALL: &[Contestant] = &[
        Contestant::PowerLoss,
        Contestant::ProcessCrash,
        Contestant::Kafka,
        Contestant::KafkaFlushing,
    ];

    /// What it is called, what it guarantees included.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contestant::PowerLoss => "Ringlog, power-loss",
            Contestant::ProcessCrash => "Ringlog, process-crash",
            Contestant::Kafka => "Kafka as shipped, no fsync",
            Contestant::KafkaFlushing => "Kafka, fsync per append",
        }
    }

    /// What an acknowledgement of it means.
    #[must_use]
    pub fn durability(self) -> &'static str {
        match self {
            Contestant::PowerLoss => {
                "`durability=power-loss`, the default: acknowledged is on the medium"
            }
            Contestant::ProcessCrash => {
                "`durability=process-crash`: acknowledged survives the end of the process, in the \
                 kernel's memory, not a loss of power"
            }
            Contestant::Kafka => {
                "as it ships: acknowledged is in the page cache, and does not survive a loss of \
                 power; one node has no replica"
            }
            Contestant::KafkaFlushing => {
                "`log.flush.interval.messages=1`: acknowledged was flushed to the medium"
            }
        }
    }

    /// Whether it is Apache Kafka.
    #[must_use]
    pub fn is_kafka(self) -> bool {
        matches!(self, Contestant::Kafka | Contestant::KafkaFlushing)
    }
}

impl Scenario {
    /// Whether a broker takes part.
    pub fn is_for(&self, contestant: Contestant) -> bool {
        self.brokers.contains(&contestant)
    }

    /// Out of a file.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, Fault> {
        let parsed: Scenario = toml::from_str(text).map_err(|e| format!("{name}.toml: {e}"))?;
        Ok(Scenario { name: name.to_owned(), ..parsed })
    }

    /// Those that come with the program and have one of these names or groups, and those of files.
    pub fn named(names: &[String]) -> Result<Vec<Scenario>, Fault> {
        let (files, names): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.ends_with(".toml"));
        let mut found = Scenario::that_come_with_it(&names)?;
        for file in files {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            let name = Path::new(file).file_stem().and_then(|stem| stem.to_str());
            found.push(Scenario::parse(name.unwrap_or("scenario"), &text)?);
        }
        Ok(found)
    }

    fn that_come_with_it(names: &[&String]) -> Result<Vec<Scenario>, Fault> {
        let all: Result<Vec<Scenario>, Fault> =
            SCENARIOS.iter().map(|(name, text)| Scenario::parse(name, text)).collect();
        let all = all?;
        let has = |scenario: &Scenario, name: &str| {
            name == "all" || scenario.name == name || scenario.group == name
        };
        if let Some(unknown) = names.iter().find(|name| !all.iter().any(|it| has(it, name))) {
            let mut known: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            known.extend(all.iter().map(|it| it.group.as_str()));
            known.sort_unstable();
            known.dedup();
            let known = known.join(", ");
            return Err(format!("no scenario is called {unknown}; there are {known}").into());
        }
        let wanted = |it: &Scenario| names.iter().any(|name| has(it, name));
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// Partitions of a transaction.
    pub fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Records and bytes of each that are written at a time.
    pub fn batch(&self) -> (usize, usize) {
        (self.records, self.record_bytes)
    }

    /// Its load, for so long.
    pub fn load(&self, warm_up_seconds: u64, seconds: u64) -> Load {
        Load {
            topic: self.name.clone(),
            partitions: self.partitions,
            connections: self.connections,
            in_flight: self.in_flight,
            record_bytes: self.record_bytes,
            records: self.records,
            keyed: self.keyed,
            acks: self.acks,
            rate: self.rate,
            seconds,
            warm_up_seconds,
        }
    }
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn everyone() -> Vec<Contestant> {
    Contestant::ALL.to_vec()
}

fn goals() -> String {
    "goals".to_owned()
}

fn kibibyte() -> usize {
    1024
}

fn all_in_sync() -> i16 {
    -1
}

macro_rules! scenarios {
    ($($name:literal),+ $(,)?) => {
        /// Names and texts of the files.
        const SCENARIOS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("scenarios/", $name, ".toml")))),+];
    };
}

scenarios!(
    "one-by-one",
    "steady-1k",
    "steady-10k",
    "steady-1k-latency-mode",
    "steady-10k-latency-mode",
    "small-requests",
    "large-batches",
    "knee-16",
    "knee-256",
    "knee-keyed",
    "catch-up",
    "catch-up-beyond-memory",
    "end-to-end",
    "commit-10",
    "java-producer",
    "java-consumer",
    "java-latency",
    "start",
    "restart-1000",
    "crash-recovery-10gb",
    "held-rate",
    "network",
    "crash-recovery",
    "commit-1",
    "commit-100",
    "commit-10x10",
    "commit-10x100",
    "commit-1x10",
    "commit-1x100",
    "connections",
    "drain",
    "mixed-soak",
    "offset-commits",
    "partitions-1",
    "partitions-16",
    "partitions-2000",
    "partitions-256",
    "produce-100b-acks-1",
    "produce-100b-acks-all",
    "produce-10kib-acks-1",
    "produce-10kib-acks-all",
    "produce-1kib-acks-1",
    "produce-1kib-acks-all",
    "producers-1",
    "producers-4",
    "producers-50",
    "shards-1-per-core",
    "shards-1-single",
    "shards-2-per-core",
    "shards-2-single",
    "shards-4-per-core",
    "shards-4-single",
    "shards-8-per-core",
    "shards-8-single",
    "steady-50k",
    "tail-8",
    "transactions-100ms",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_scenario_of_the_list() {
        let all = Scenario::named(&["all".to_owned()]).expect("all are read");
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/perf/scenarios");
        let files = std::fs::read_dir(directory).expect("the directory").count();
        assert_eq!(all.len(), files);
        let steady = all.iter().find(|scenario| scenario.name == "steady-10k").expect("is there");
        let load = steady.load(1, 2);
        assert_eq!((load.rate, load.connections, load.record_bytes), (10_000, 4, 1024));
        assert_eq!((load.acks, load.records, load.warm_up_seconds, load.seconds), (-1, 1, 1, 2));
    }

    #[test]
    fn a_group_is_as_good_as_a_name() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let found = Scenario::named(&names).expect("all are known");
            found.into_iter().map(|scenario| scenario.name).collect::<Vec<_>>()
        };
        assert_eq!(named(&["steady-1k", "rates"]), ["steady-1k", "steady-50k"]);
        assert!(named(&["goals"]).contains(&"java-producer".to_owned()));
        assert!(named(&[]).is_empty());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let text = "title = \"x\"\ndoes = \"fetch\"\nrates = 3\n";
        assert!(Scenario::parse("x", text).is_err());
        let unknown = Scenario::named(&["steady".to_owned()]).expect_err("no such scenario");
        assert!(
            unknown.to_string().contains("start, steady-10k, steady-10k-latency-mode"),
            "{unknown}"
        );
    }
}
