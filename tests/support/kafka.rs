//! A real Apache Kafka broker as a child process, to be held against Ringlog.
//!
//! Needs Java and, on its first use, Maven. `RINGLOG_DIFFERENTIAL=skip` leaves out every test that
//! needs one.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for the broker to get ready, an installation of its jars included.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// It stops by itself after this time, whatever became of the test.
const MAX_SECONDS: &str = "1800";

/// Whether tests against a real Kafka are to be left out.
pub fn is_skipped() -> bool {
    let skipped = std::env::var("RINGLOG_DIFFERENTIAL").as_deref() == Ok("skip");
    if skipped {
        println!("skipped: RINGLOG_DIFFERENTIAL=skip");
    }
    skipped
}

/// A running broker; it stops cleanly when this is dropped.
pub struct Kafka {
    pub address: SocketAddr,
    child: Child,
}

impl Kafka {
    /// Starts one on a directory of its own, which goes with it.
    pub fn start() -> Kafka {
        // Records of the script are older than any retention, which is not looked at here.
        Kafka::launch(&["--property".to_owned(), "log.initial.task.delay.ms=600000".to_owned()])
    }

    /// Starts one on this directory, with these properties beside those of every peer.
    pub fn start_on(directory: &Path, properties: &[(String, String)]) -> Kafka {
        let mut words = vec!["--dir".to_owned(), directory.display().to_string()];
        for (key, value) in properties {
            words.extend(["--property".to_owned(), format!("{key}={value}")]);
        }
        Kafka::launch(&words)
    }

    /// Panics where there is no Java.
    fn launch(words: &[String]) -> Kafka {
        let java = Command::new("java").arg("-version").stderr(Stdio::null()).status();
        assert!(
            java.is_ok_and(|status| status.success()),
            "Java is missing: install it, or leave this test out with RINGLOG_DIFFERENTIAL=skip"
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/kafka_peer.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args(["start", "--until-stdin-closes", "--heap", "512m"])
            .args(["--max-seconds", MAX_SECONDS])
            .args(words)
            // It is started more often than it is busy.
            .env("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let line = lines.recv_timeout(READY_TIMEOUT).expect("Kafka gets ready");
        let address = line.strip_prefix("ready ").and_then(|text| text.parse().ok());
        Kafka { address: address.expect("a ready line"), child }
    }

    /// `kill -9` of the broker itself, and waits until it is gone.
    pub fn kill(mut self) {
        let parent = self.child.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(children).expect("children of a child");
        let jvm: i32 = children.trim().parse().expect("one child, the JVM");
        let jvm = Pid::from_raw(jvm).expect("a process id");
        kill_process(jvm, Signal::KILL).expect("a descendant can be signalled");
        let _ = self.child.wait();
    }

    /// Where the segments of a partition are, in the directory that it was started on.
    pub fn segment_directory(directory: &Path, topic: &str, partition: i32) -> PathBuf {
        directory.join("data").join(format!("{topic}-{partition}"))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
