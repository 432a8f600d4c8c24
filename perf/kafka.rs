//! A real Apache Kafka, to compare with: fetched by Maven, one process, one directory.
//!
//! Owns its jars, its configuration, start and end. It is the broker as it ships but for what one
//! node needs, and for threads that fit the cores it gets. Must never listen on anything but
//! 127.0.0.1, nor outlive this program.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kafka_protocol::messages::MetadataRequest;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::broker::Scratch;
use super::client::{Client, Fault};

/// The release that is fetched.
pub const VERSION: &str = "4.3.1";

/// Its jars.
#[derive(Clone)]
pub struct Jars {
    directory: PathBuf,
}

impl Jars {
    /// Those in `directory`, where Maven puts them if they are not there yet.
    pub fn in_directory(directory: &Path) -> Result<Jars, Fault> {
        let libs = directory.join("libs");
        let complete = directory.join("complete");
        if !complete.exists() {
            eprintln!("fetching Apache Kafka {VERSION} into {}", libs.display());
            std::fs::create_dir_all(directory)?;
            std::fs::write(directory.join("pom.xml"), pom())?;
            let mut maven = Command::new("mvn");
            maven.args(["-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
            maven.arg("-DoutputDirectory=libs").current_dir(directory);
            finish(&mut maven, "mvn")?;
            std::fs::write(&complete, VERSION)?;
        }
        Ok(Jars { directory: std::fs::canonicalize(libs)? })
    }

    /// A JVM with all of them.
    pub fn java(&self) -> Command {
        let mut java = Command::new("java");
        java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        java.arg("-cp").arg(self.directory.join("*"));
        java
    }
}

/// A running broker.
pub struct Kafka {
    child: Child,
    address: String,
    jars: Jars,
    core: usize,
    scratch: Scratch,
}

impl Kafka {
    /// Starts one on `core`, with its data below `parent`; returns when it serves.
    pub fn start(
        jars: &Jars,
        parent: &Path,
        core: usize,
        further: &[(&str, &str)],
    ) -> Result<Kafka, Fault> {
        let scratch = Scratch::new(parent)?;
        let (port, controller) = (free_port()?, free_port()?);
        let directory = std::fs::canonicalize(scratch.path())?;
        let properties = directory.join("server.properties");
        std::fs::write(&properties, configuration(&directory, port, controller, further))?;
        let mut format = jars.java();
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        finish(format.arg(&properties), "StorageTool")?;
        let address = format!("127.0.0.1:{port}");
        let child = spawn(jars, &directory, core)?;
        let mut kafka = Kafka { child, address, jars: jars.clone(), core, scratch };
        kafka.wait_until_it_serves()?;
        Ok(kafka)
    }

    /// Ends it, by SIGTERM or else by SIGKILL, and starts it again on what it has left; returns
    /// the moment at which it was started.
    pub fn restart(&mut self, kill: bool) -> Result<Instant, Fault> {
        if kill {
            self.child.kill()?;
        } else {
            let pid = Pid::from_raw(i32::try_from(self.pid())?).ok_or("no process")?;
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait()?;
        let directory = std::fs::canonicalize(self.scratch.path())?;
        let begun = Instant::now();
        self.child = spawn(&self.jars, &directory, self.core)?;
        self.wait_until_it_serves()?;
        Ok(begun)
    }

    /// Whether its process is there.
    pub fn is_running(&mut self) -> Result<bool, Fault> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_serves(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("Apache Kafka ended with {status}").into());
            }
            let asked = Client::connect(&self.address)
                .and_then(|mut client| client.ask(5, &MetadataRequest::default()));
            if asked.is_ok_and(|answer| !answer.brokers.is_empty()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("Apache Kafka did not get ready".into())
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker on `core`, with the configuration that lies in its directory.
fn spawn(jars: &Jars, directory: &Path, core: usize) -> Result<Child, Fault> {
    let mut broker = jars.java();
    broker.args(["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]);
    broker.args(["-XX:InitiatingHeapOccupancyPercent=35", "kafka.Kafka"]);
    let log = std::fs::File::create(directory.join("broker.log"))?;
    broker.arg(directory.join("server.properties"));
    broker.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut cores = CpuSet::new();
    cores.set(core);
    // SAFETY: between fork and exec, two system calls that allocate nothing.
    unsafe {
        broker.pre_exec(move || {
            sched_setaffinity(None, &cores)?;
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        });
    }
    Ok(broker.spawn().map_err(|error| format!("java: {error}"))?)
}

/// Waits for a program; its failure is one of ours.
fn finish(command: &mut Command, name: &str) -> Result<(), Fault> {
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match ended.map_err(|error| format!("{name}: {error}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{name} ended with {status}").into()),
    }
}

fn free_port() -> Result<u16, Fault> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn configuration(directory: &Path, port: u16, controller: u16, further: &[(&str, &str)]) -> String {
    let voters = format!("1@127.0.0.1:{controller}");
    let advertised = format!("PLAINTEXT://127.0.0.1:{port}");
    let listeners = format!("{advertised},CONTROLLER://127.0.0.1:{controller}");
    let data = directory.join("data").display().to_string();
    let needed = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.voters", &voters),
        ("listeners", &listeners),
        ("advertised.listeners", &advertised),
        ("controller.listener.names", "CONTROLLER"),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("log.dirs", &data),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        // It has one core, as a shard has.
        ("num.network.threads", "2"),
        ("num.io.threads", "2"),
        // While another one is measured it is stopped, and must not be taken for dead.
        ("broker.session.timeout.ms", "3600000"),
    ];
    let lines = needed.iter().chain(further).map(|(key, value)| format!("{key}={value}\n"));
    lines.collect()
}

fn pom() -> String {
    let dependency = |artifact: &str, group: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let kafka = "org.apache.kafka";
    let logging = "org.slf4j";
    let dependencies = [
        dependency("kafka_2.13", kafka, VERSION),
        dependency("kafka-tools", kafka, VERSION),
        dependency("slf4j-api", logging, "2.0.17"),
        dependency("slf4j-simple", logging, "2.0.17"),
    ];
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>local</groupId><artifactId>kafka</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>{}</dependencies></project>\n",
        dependencies.concat()
    )
}

/// Any will do.
const CLUSTER_ID: &str = "AAAAAAAAQACAAAAAAAAAAQ";
const READY_TIMEOUT: Duration = Duration::from_secs(240);
