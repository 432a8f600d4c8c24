//! What is compared: scenarios, each a file in `scenarios/`.
//!
//! Owns their format and the list of those that come with the program. A key that is not known is
//! an error, so that no file says what is not done.

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
#[serde(rename_all = "lowercase")]
pub enum Does {
    /// Batches are appended.
    Produce,
    /// What is there is read.
    Fetch,
    /// Transactions are committed.
    Commit,
}

impl Scenario {
    /// Out of a file.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, Fault> {
        let parsed: Scenario = toml::from_str(text).map_err(|e| format!("{name}.toml: {e}"))?;
        Ok(Scenario { name: name.to_owned(), ..parsed })
    }

    /// Those that come with the program and have one of these names; all of them if there is none.
    pub fn named(names: &[String]) -> Result<Vec<Scenario>, Fault> {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(", ");
            return Err(format!("no scenario is called {unknown}; there are {known}").into());
        }
        let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        let chosen = SCENARIOS.iter().filter(|(name, _)| wanted(name));
        chosen.map(|(name, text)| Scenario::parse(name, text)).collect()
    }

    /// Partitions of a transaction.
    pub fn partitions(&self) -> i32 {
        self.partitions
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
    "knee-16",
    "knee-256",
    "small-requests",
    "large-batches",
    "catch-up",
    "commit-1",
    "commit-10",
    "commit-100",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_scenario_of_the_list() {
        let all = Scenario::named(&[]).expect("all are read");
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/perf/scenarios");
        let files = std::fs::read_dir(directory).expect("the directory").count();
        assert_eq!(all.len(), files);
        let steady = all.iter().find(|scenario| scenario.name == "steady-10k").expect("is there");
        let load = steady.load(1, 2);
        assert_eq!((load.rate, load.connections, load.record_bytes), (10_000, 4, 1024));
        assert_eq!((load.acks, load.records, load.warm_up_seconds, load.seconds), (-1, 1, 1, 2));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let text = "title = \"x\"\ndoes = \"fetch\"\nrates = 3\n";
        assert!(Scenario::parse("x", text).is_err());
        let unknown = Scenario::named(&["steady".to_owned()]).expect_err("no such scenario");
        assert!(unknown.to_string().contains("steady-1k, steady-10k"), "{unknown}");
    }
}
