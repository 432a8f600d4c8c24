//! Processes of real clients, which can be stopped like any process: the parent's side of `real`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{Scope, ScopedJoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use crate::history::Operation;
use crate::run::Run;

/// Tells the process its number, the broker's address and a seed.
pub const PLACE: &str = "RINGLOG_HISTORY_CHILD";

/// Running processes. Those that are left are killed.
#[derive(Default)]
pub struct Children(Vec<(Child, Option<ChildStdin>)>);

impl Children {
    /// Starts one. What it says goes to the run, until its thread ends with it.
    pub fn start<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        run: &'scope Run,
        (number, bootstrap, seed): (u32, SocketAddr, u64),
    ) -> ScopedJoinHandle<'scope, ()> {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "real::one_process_of_real_clients", "--nocapture"])
            .env(PLACE, format!("{number} {bootstrap} {seed}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let output = child.stdout.take().expect("piped");
        let input = child.stdin.take();
        self.0.push((child, input));
        scope.spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.expect("a text");
                if let Some(text) = line.strip_prefix(OPERATION) {
                    let operation: Operation = serde_json::from_str(text).expect("an operation");
                    run.note_all([operation]);
                } else if let Some(text) = line.strip_prefix(FAULT) {
                    run.fault(text.to_owned());
                }
            }
        })
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Stops one, or lets it go on.
    pub fn signal(&self, place: usize, signal: Signal) {
        let pid = i32::try_from(self.0[place].0.id()).expect("a process id");
        let pid = Pid::from_raw(pid).expect("a process id");
        kill_process(pid, signal).expect("an own child can be signalled");
    }

    /// Tells them to come to an end; their threads end with them.
    pub fn end(&mut self) {
        self.0.iter_mut().for_each(|(_, input)| drop(input.take()));
    }

    /// Whether all ended well.
    pub fn wait(&mut self) -> bool {
        self.0.drain(..).all(|(mut child, _)| child.wait().is_ok_and(|status| status.success()))
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a line begins with.
pub const OPERATION: &str = "operation ";
pub const FAULT: &str = "fault: ";
