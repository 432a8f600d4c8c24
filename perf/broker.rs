//! The broker under measurement: a child process of this one.
//!
//! Owns start, end and data directory of the child. A child never outlives the run: it is killed
//! when its fixture is dropped, and by the kernel if this process dies before that.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::client::Fault;

/// How to start a broker, again and again on the same data.
pub struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    scratch: Scratch,
}

impl Launch {
    /// A new data directory below `parent`, and further arguments of `serve`.
    pub fn new(program: &Path, parent: &Path, further: &[&str]) -> Result<Launch, Fault> {
        let arguments = further.iter().map(|&word| word.to_owned()).collect();
        Ok(Launch { program: program.to_owned(), arguments, scratch: Scratch::new(parent)? })
    }

    /// Where the data is.
    pub fn data_dir(&self) -> &Path {
        &self.scratch.path
    }
}

/// A running child.
pub struct Broker {
    child: Child,
    addresses: Vec<String>,
    metrics: Option<String>,
    start_up: Duration,
    launch: Option<Launch>,
}

impl Broker {
    /// Starts it and waits until it is ready.
    pub fn start(launch: Launch) -> Result<Broker, Fault> {
        let mut command = Command::new(&launch.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(launch.data_dir()).args(&launch.arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: between fork and exec, one system call that allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let begun = Instant::now();
        let spawned = command.spawn();
        let mut child =
            spawned.map_err(|error| format!("{}: {error}", launch.program.display()))?;
        let lines = child.stdout.take().ok_or("the broker's output is not piped")?;
        let (sender, ready) = channel();
        std::thread::spawn(move || {
            // Read to the end, so that the broker never waits for a reader.
            let mut metrics = None;
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                if let Some(rest) = line.strip_prefix("metrics http://") {
                    metrics = rest.split('/').next().map(str::to_owned);
                }
                if let Some(addresses) = line.strip_prefix("ready ") {
                    let _ = sender.send((Instant::now(), addresses.to_owned(), metrics.clone()));
                }
            }
        });
        let Ok((at, addresses, metrics)) = ready.recv_timeout(READY_TIMEOUT) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err("the broker did not get ready".into());
        };
        let addresses = addresses.split(", ").map(str::to_owned).collect();
        Ok(Broker { child, addresses, metrics, start_up: at - begun, launch: Some(launch) })
    }

    /// Address of its first shard.
    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Its metrics endpoint.
    pub fn metrics(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Time from the start of the process until it was ready.
    pub fn start_up(&self) -> Duration {
        self.start_up
    }

    /// Ends it by SIGKILL; what it leaves can be started again.
    pub fn kill(mut self) -> Result<Launch, Fault> {
        self.child.kill()?;
        self.child.wait()?;
        self.launch.take().ok_or_else(|| "the broker was never started".into())
    }

    /// Ends it by SIGTERM and waits for the clean end.
    pub fn stop(mut self) -> Result<Launch, Fault> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?).ok_or("no process")?;
        kill_process(pid, Signal::TERM)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => break,
                Some(status) => return Err(format!("the broker ended with {status}").into()),
                None if Instant::now() > deadline => return Err("the broker did not stop".into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        self.launch.take().ok_or_else(|| "the broker was never started".into())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that goes when it is dropped.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new one below `parent`.
    pub fn new(parent: &Path) -> Result<Scratch, Fault> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("ringlog-perf-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Ten thousand partitions that were written to take their time.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
