//! Which broker is measured: one that runs already, or one that is started for the measurement.
//!
//! Owns the options that say so, and how the process of a running broker is found: whoever listens
//! on its port on this machine. Must never leave a broker behind that it has started.

use std::path::PathBuf;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::broker::{Broker, Launch};
use super::calibrate::load_core;
use super::client::Fault;
use super::measure::Usage;
use super::metrics::Metrics;

/// How a broker is started, and where the load runs.
#[derive(Args, Clone, Debug)]
pub struct Own {
    /// The broker to start [default: `ringlog` beside this program]
    #[arg(long, value_name = "PATH")]
    pub ringlog: Option<PathBuf>,
    /// Where started brokers keep their data for a while
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub data_dir: PathBuf,
    /// Shards of a started broker
    #[arg(long, default_value_t = 1)]
    pub shards: u16,
    /// Set a key of a started broker; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Core to pin the load to [default: the last that a shard would take]
    #[arg(long)]
    pub core: Option<usize>,
}

/// Options of a command that starts brokers of its own, and of what it does with them.
#[derive(Args, Clone, Debug)]
pub struct OwnArguments<S: Args> {
    #[command(flatten)]
    pub own: Own,
    #[command(flatten)]
    pub size: S,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Own {
    /// How to start a broker, with further arguments of `serve`.
    pub fn launch(&self, further: &[&str]) -> Result<Launch, Fault> {
        let beside =
            || -> Result<PathBuf, Fault> { Ok(std::env::current_exe()?.with_file_name("ringlog")) };
        let program = self.ringlog.clone().map_or_else(beside, Ok)?;
        let shards = self.shards.to_string();
        let mut words = vec!["--shards", &shards, "--metrics-listen", "127.0.0.1:0"];
        words.extend(further);
        for set in &self.set {
            words.extend(["--set", set]);
        }
        Launch::new(&program, &self.data_dir, &words)
    }

    /// Starts a broker.
    pub fn start(&self, further: &[&str]) -> Result<Server, Fault> {
        Ok(self.server(Broker::start(self.launch(further)?)?))
    }

    /// A started broker as a server.
    pub fn server(&self, broker: Broker) -> Server {
        Server {
            address: broker.address().to_owned(),
            pid: broker.pid(),
            metrics: broker.metrics().map(str::to_owned),
            core: self.core(),
            broker: Some(broker),
        }
    }

    /// The core that the load is pinned to.
    pub fn core(&self) -> usize {
        self.core.unwrap_or_else(|| load_core(&self.data_dir))
    }
}

/// A broker that runs, or how to start one.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// A broker that runs; without it one is started and ended again
    #[arg(long, value_name = "HOST:PORT")]
    pub bootstrap: Option<String>,
    /// Process of that broker [default: who listens on its port here]
    #[arg(long, requires = "bootstrap")]
    pub pid: Option<u32>,
    /// Metrics endpoint of that broker
    #[arg(long, value_name = "HOST:PORT", requires = "bootstrap")]
    pub metrics: Option<String>,
    #[command(flatten)]
    pub own: Own,
}

impl Target {
    /// The broker to measure.
    pub fn server(&self) -> Result<Server, Fault> {
        let Some(address) = self.bootstrap.clone() else { return self.own.start(&[]) };
        let found = || {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            port.and_then(listener_of)
        };
        let pid = self.pid.or_else(found).unwrap_or(0);
        let metrics = self.metrics.clone();
        Ok(Server { address, pid, metrics, core: self.own.core(), broker: None })
    }
}

/// A broker under measurement.
pub struct Server {
    /// Address of one of its shards.
    pub address: String,
    /// Its process; 0 where it is not on this machine.
    pub pid: u32,
    /// Its metrics endpoint.
    pub metrics: Option<String>,
    /// Core that the load is pinned to.
    pub core: usize,
    broker: Option<Broker>,
}

impl Server {
    /// A broker of another kind, which somebody else starts and ends.
    pub fn foreign(address: &str, pid: u32, core: usize) -> Server {
        Server { address: address.to_owned(), pid, metrics: None, core, broker: None }
    }

    /// Sends a signal to its process.
    pub fn signal(&self, signal: Signal) -> Result<(), Fault> {
        let pid = Pid::from_raw(i32::try_from(self.pid)?).ok_or("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// What its process has used.
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid)
    }

    /// Its metrics now; none without an endpoint.
    pub fn scrape(&self) -> Result<Metrics, Fault> {
        self.metrics.as_deref().map_or_else(|| Ok(Metrics::default()), Metrics::of)
    }

    /// The process that was started, to be ended and started again.
    pub fn take_broker(&mut self) -> Result<Broker, Fault> {
        self.broker.take().ok_or_else(|| "this takes a broker of its own".into())
    }

    /// The process that was started.
    pub fn into_broker(self) -> Result<Broker, Fault> {
        self.broker.ok_or_else(|| "this takes a broker of its own".into())
    }
}

/// The process on this machine that listens on a TCP port.
fn listener_of(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| listening_inode(line, port)).map(str::to_owned)
    })?;
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut files = std::fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let is_its = |file: std::fs::DirEntry| {
            std::fs::read_link(file.path()).is_ok_and(|of| of.to_str() == Some(&wanted))
        };
        files.any(is_its).then_some(pid)
    })
}

/// The inode of a line of `/proc/net/tcp` if that is a socket that listens on this port.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[_, local, _, state, _, _, _, _, _, inode, ..] = &fields[..] else { return None };
    let (_, local_port) = local.rsplit_once(':')?;
    let is_it = state == LISTENING && u16::from_str_radix(local_port, 16) == Ok(port);
    is_it.then_some(inode)
}

const LISTENING: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(listener_of(port), Some(std::process::id()));
        drop(listener);
        assert_eq!(listener_of(port), None);
    }
}
