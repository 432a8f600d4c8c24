//! A broker process: started on a data directory of its own, stopped in every way, restarted.
//!
//! The contract with the binary: `ringlog serve --data-dir DIR --listen 127.0.0.1:0 ...` prints a
//! line `ready 127.0.0.1:PORT[, 127.0.0.1:PORT...]`, one address per shard, when it accepts
//! requests. The child is killed when the fixture is dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::client::Client;

/// Longest wait for the `ready` line.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the process to end after a signal.
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A broker process and its data directory.
pub struct Broker {
    program: PathBuf,
    arguments: Vec<String>,
    directory: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Child,
    addresses: Vec<SocketAddr>,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

/// How a process ended that never got ready, or was asked to stop.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    /// All it printed.
    pub stdout: String,
    /// All it complained.
    pub stderr: String,
}

impl Broker {
    /// Starts the broker with further `serve` arguments; panics unless it gets ready in time.
    pub fn start(arguments: &[&str]) -> Broker {
        let mut broker = Broker::prepare(arguments);
        broker.restart();
        broker
    }

    /// A data directory and arguments, nothing started yet.
    pub fn prepare(arguments: &[&str]) -> Broker {
        Broker::prepare_program(Path::new(env!("CARGO_BIN_EXE_ringlog")), arguments)
    }

    /// The same with another program in the place of the broker.
    pub fn prepare_program(program: &Path, arguments: &[&str]) -> Broker {
        Broker {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            // Not the system's temporary directory: that may be in memory, where direct I/O and
            // flushes are not real.
            directory: TempDir::with_prefix_in("broker-", env!("CARGO_TARGET_TMPDIR"))
                .expect("a data directory"),
            running: None,
        }
    }

    /// The further arguments of later starts.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&text| text.to_owned()).collect();
    }

    /// Starts it on the same directory, killing it first if it still runs. Ports are new.
    pub fn restart(&mut self) {
        self.kill();
        match self.launch() {
            Ok(running) => self.running = Some(running),
            Err(ended) => panic!("the broker did not get ready: {ended:#?}"),
        }
    }

    /// Starts it where the start is expected to fail; panics if it gets ready.
    pub fn start_failing(&mut self) -> Ended {
        self.kill();
        match self.launch() {
            Ok(running) => {
                self.running = Some(running);
                panic!("the broker got ready where it should have refused to start");
            }
            Err(ended) => ended,
        }
    }

    /// The data directory.
    pub fn data_directory(&self) -> &Path {
        self.directory.path()
    }

    /// One address per shard, as printed.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.running().addresses
    }

    /// A connection to shard 0.
    pub fn connect(&self) -> Client {
        self.connect_to(0)
    }

    /// A connection to a shard.
    pub fn connect_to(&self, shard: usize) -> Client {
        Client::connect(self.addresses()[shard])
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.running().child.id()
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        text_of(&self.running().stdout)
    }

    /// What it has complained so far.
    pub fn stderr(&self) -> String {
        text_of(&self.running().stderr)
    }

    /// `kill -9`, and waits for the end. Nothing happens if it does not run.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Sends SIGTERM and waits for the end; panics if it takes too long.
    pub fn terminate(&mut self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process_id()).expect("a process id");
        let pid = Pid::from_raw(pid).expect("a process id");
        kill_process(pid, signal).expect("an own child can be signalled");
    }

    /// Waits for an end that is due; panics if it takes too long.
    pub fn wait(&mut self) -> Ended {
        let mut running = self.running.take().expect("the broker runs");
        match wait_bounded(&mut running.child, EXIT_TIMEOUT) {
            Some(status) => running.ended(status),
            None => {
                let _ = running.child.kill();
                let status = running.child.wait().expect("a child can be waited for");
                panic!("the broker did not stop: {:#?}", running.ended(status));
            }
        }
    }

    /// Whether the process is there.
    pub fn is_running(&mut self) -> bool {
        (self.running.as_mut()).is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the broker runs")
    }

    /// Records of tests are older than any retention, which is not looked at unless a test says so.
    fn calm(&self) -> &'static [&'static str] {
        let said = self.arguments.iter().any(|text| text.starts_with("log.initial.task.delay.ms"));
        if said { &[] } else { &["--set", "log.initial.task.delay.ms=600000"] }
    }

    fn launch(&self) -> Result<Running, Ended> {
        let mut child = Command::new(&self.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(self.directory.path())
            .args(self.calm())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let (stdout, lines) = follow(child.stdout.take().expect("piped"));
        let (stderr, _) = follow(child.stderr.take().expect("piped"));
        let mut running = Running { child, addresses: Vec::new(), stdout, stderr };
        match wait_ready(&lines, Instant::now() + READY_TIMEOUT) {
            Some(addresses) => {
                running.addresses = addresses;
                Ok(running)
            }
            None => {
                // Its output has ended or time is up: an exit is due at once.
                let status = wait_bounded(&mut running.child, Duration::from_secs(2));
                let status = status.unwrap_or_else(|| {
                    let _ = running.child.kill();
                    running.child.wait().expect("a child can be waited for")
                });
                Err(running.ended(status))
            }
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(running) = &self.running
        {
            eprintln!("broker stdout:\n{}", text_of(&running.stdout));
            eprintln!("broker stderr:\n{}", text_of(&running.stderr));
            // `RINGLOG_KEEP=1` leaves the data directory of a failed test for a closer look.
            self.directory.disable_cleanup(std::env::var_os("RINGLOG_KEEP").is_some());
        }
        self.kill();
    }
}

impl Running {
    fn ended(&self, status: ExitStatus) -> Ended {
        Ended { code: status.code(), stdout: drained(&self.stdout), stderr: drained(&self.stderr) }
    }
}

/// The addresses on a `ready` line; `None` for any other line.
pub fn parse_ready(line: &str) -> Option<Vec<SocketAddr>> {
    let addresses = line.trim_end().strip_prefix("ready ")?;
    addresses.split(", ").map(|address| address.trim().parse().ok()).collect()
}

/// The first of `count` free ports in a row, below those that connections are given: those might
/// be taken while the broker is down.
pub fn free_ports(count: u16) -> u16 {
    let start = 12_000 + (std::process::id() % 18_000) as u16;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut candidates = (start..32_000).chain(12_000..start);
    let found = candidates.find(|&first| (first..first + count).all(is_free));
    found.expect("free ports")
}

fn wait_ready(lines: &Receiver<String>, deadline: Instant) -> Option<Vec<SocketAddr>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) if line.starts_with("ready") => {
                let addresses = parse_ready(&line);
                return Some(addresses.unwrap_or_else(|| panic!("a bad ready line: {line:?}")));
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Reads a pipe to its end on a thread of its own: all text so far, and the lines as they come.
fn follow(pipe: impl Read + Send + 'static) -> (Arc<Mutex<String>>, Receiver<String>) {
    let text = Arc::new(Mutex::new(String::new()));
    let (sender, lines) = channel();
    let writer = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let piece = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            writer.lock().expect("no panic while held").push_str(&piece);
            // Nobody listens any more once the broker is ready; the text is kept all the same.
            let _ = sender.send(piece);
        }
    });
    (text, lines)
}

fn text_of(text: &Mutex<String>) -> String {
    text.lock().expect("no panic while held").clone()
}

/// The whole text of a pipe whose writer has ended: the reading thread drops its share at the end.
fn drained(text: &Arc<Mutex<String>>) -> String {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Arc::strong_count(text) > 1 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    text_of(text)
}

fn wait_bounded(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
