//! Arguments of every command.
//!
//! Owns their names, help texts and the way options of `serve` become configuration keys. Reads
//! no file and starts nothing.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, BrokerConfig, ConfigError};

/// A Kafka-protocol broker for one Linux machine.
#[derive(Debug, Parser)]
#[command(name = "ringlog", version, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker
    Serve(Box<ServeArguments>),
    /// Look at segments, journals, images and snapshots of a stopped broker
    #[command(subcommand)]
    Log(LogCommand),
    /// Ask a live broker about its transactions
    #[command(subcommand)]
    Txn(TxnCommand),
    /// Say what this host gives a broker and what to change; exit code 1 if none would start
    Doctor(DoctorArguments),
}

/// Options of `ringlog doctor`.
#[derive(Args, Clone, Debug, Default)]
pub struct DoctorArguments {
    /// Configuration file of the broker
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where its data is to be [default: ./ringlog-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// What its idle shards are to do: balanced or latency
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `ringlog serve`. They override the configuration file.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArguments {
    /// Configuration file; config/broker.toml lists every key
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of all that is kept [default: ./ringlog-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Address of shard 0 [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Address told to clients, if it is not the listening one
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertised: Option<String>,
    /// Number of shards [default: one per available core]
    #[arg(long, value_name = "N")]
    pub shards: Option<String>,
    /// Memory, plus 12KiB a connection [default: RAM/4, at most 8GiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// What acknowledged records survive: power-loss or process-crash
    #[arg(long, value_name = "MODE")]
    pub durability: Option<String>,
    /// How shards appear: per-core, each a broker, or single
    #[arg(long, value_name = "MODE")]
    pub advertise: Option<String>,
    /// What an idle shard does: balanced sleeps, latency polls first
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Address of the metrics endpoint [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// Set any key, Apache Kafka's included; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Start without a partition's missing records; repeatable
    #[arg(long, value_name = "TOPIC-N|all")]
    pub accept_loss: Vec<String>,
    /// Print the effective configuration with origins, and exit
    #[arg(long)]
    pub check: bool,
}

/// The `ringlog log` commands.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print what a file or directory holds, one entry per line
    Dump {
        /// A segment, journal file, image, snapshot, or a directory of them
        path: PathBuf,
    },
    /// Check a file or directory and name everything damaged; exit code 1 if there is any
    Verify {
        /// A data directory, or one file of it
        path: PathBuf,
    },
    /// Make a data directory from those of a stopped single-node Apache Kafka
    Import(ImportArguments),
}

/// Options of `ringlog log import`.
#[derive(Args, Clone, Debug, Default)]
pub struct ImportArguments {
    /// The log directories of the stopped broker (log.dirs, and metadata.log.dir if it is another);
    /// nothing in them is changed
    #[arg(required = true, value_name = "DIR")]
    pub sources: Vec<PathBuf>,
    /// Configuration file of the broker that will serve the data
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory to be made [default: ./ringlog-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
}

/// The `ringlog txn` commands.
#[derive(Debug, Subcommand)]
pub enum TxnCommand {
    /// Name every transactional id with its state
    List {
        /// A node of the cluster
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
        bootstrap: String,
    },
    /// Say which transaction holds readers of committed records back, and how to end it
    Explain {
        /// A topic, or one partition of it
        #[arg(value_name = "TOPIC[:PARTITION]")]
        place: String,
        /// A node of the cluster
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
        bootstrap: String,
    },
}

impl ServeArguments {
    /// The configuration keys these options set, in the order they take effect.
    ///
    /// # Errors
    /// One sentence, if a `--set` is not `KEY=VALUE`.
    pub fn overrides(&self) -> Result<Vec<config::Override>, ConfigError> {
        let options = [
            ("data_dir", &self.data_dir),
            ("listen", &self.listen),
            ("advertised", &self.advertised),
            ("shards", &self.shards),
            ("memory", &self.memory),
            ("durability", &self.durability),
            ("advertise", &self.advertise),
            ("mode", &self.mode),
            ("metrics_listen", &self.metrics_listen),
        ];
        let mut overrides: Vec<config::Override> = options
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
            .collect();
        if !self.accept_loss.is_empty() {
            overrides.push(("accept_loss".to_owned(), self.accept_loss.join(",")));
        }
        for text in &self.set {
            let Some((key, value)) = text.split_once('=') else {
                return Err(ConfigError::Value {
                    place: "command line".to_owned(),
                    message: format!("`--set {text}` is not KEY=VALUE"),
                });
            };
            overrides.push((key.trim().to_owned(), value.to_owned()));
        }
        Ok(overrides)
    }

    /// The effective configuration: defaults, file, these options.
    ///
    /// # Errors
    /// The first problem found.
    pub fn load(&self) -> Result<BrokerConfig, ConfigError> {
        config::load(self.config.as_deref(), &self.overrides()?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::*;
    use crate::config::{Advertise, Durability, Origin};

    fn serve(arguments: &[&str]) -> ServeArguments {
        let line = ["ringlog", "serve"].iter().chain(arguments);
        match Arguments::try_parse_from(line).expect("arguments").command {
            Command::Serve(serve) => *serve,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound_and_help_fits_a_screen() {
        Arguments::command().debug_assert();
        let mut command = Arguments::command();
        let serve = command.find_subcommand_mut("serve").expect("serve");
        let help = serve.render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }

    #[test]
    fn options_become_keys() {
        let arguments = serve(&[
            "--data-dir",
            "/data",
            "--listen",
            "127.0.0.1:9192",
            "--advertised",
            "broker:9292",
            "--shards",
            "2",
            "--memory",
            "1GiB",
            "--durability",
            "process-crash",
            "--advertise",
            "single",
            "--mode",
            "latency",
            "--metrics-listen",
            "127.0.0.1:9100",
            "--set",
            "num.partitions=6",
            "--set",
            "listen=127.0.0.1:1",
            "--accept-loss",
            "orders-0",
            "--accept-loss",
            "orders-1",
            "--check",
        ]);
        assert!(arguments.check);
        let config = arguments.load().expect("configuration");
        assert_eq!(config.data_dir, PathBuf::from("/data"));
        assert_eq!(config.listen, "127.0.0.1:1", "--set comes last");
        assert_eq!(config.advertised_address(), ("broker".to_owned(), Some(9292)));
        assert_eq!((config.shards, config.memory_bytes), (2, 1 << 30));
        assert_eq!(config.durability, Durability::ProcessCrash);
        assert_eq!(config.advertise, Advertise::Single);
        assert_eq!(config.mode.spin_before_park(), Duration::from_millis(2));
        assert_eq!(config.metrics_address().map(|address| address.port), Some(9100));
        assert_eq!(config.num_partitions, 6);
        assert_eq!(config.accept_loss, ["orders-0", "orders-1"]);
        assert_eq!(config.settings.origin("shards"), Origin::CommandLine);
        assert_eq!(config.settings.origin("durability"), Origin::CommandLine);
        assert_eq!(config.settings.origin("txn_pending_hold_ms"), Origin::Default);
    }

    #[test]
    fn no_arguments_work() {
        let config = serve(&[]).load().expect("defaults");
        assert_eq!(config.listen, "127.0.0.1:9092");
        assert_eq!(config.data_dir, PathBuf::from("./ringlog-data"));
        assert!(config.shards >= 1);
    }

    #[test]
    fn a_malformed_set_is_one_sentence() {
        let error = serve(&["--set", "num.partitions"]).load().expect_err("no value");
        assert_eq!(error.to_string(), "command line: `--set num.partitions` is not KEY=VALUE");
    }

    #[test]
    fn log_commands_take_a_path() {
        for (name, verify) in [("dump", false), ("verify", true)] {
            let parsed = Arguments::try_parse_from(["ringlog", "log", name, "/data"]);
            match (parsed.expect("arguments").command, verify) {
                (Command::Log(LogCommand::Dump { path }), false)
                | (Command::Log(LogCommand::Verify { path }), true) => {
                    assert_eq!(path, PathBuf::from("/data"));
                }
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}
