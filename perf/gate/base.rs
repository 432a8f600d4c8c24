//! This revision beside another one: built where it disturbs nothing, and counted in turns.
//!
//! Owns the worktree of the other revision and the order of runs. What is compared is the same
//! minute on the same machine, so that CPU time can be gated as well. The load is this revision's
//! for both; what is counted within `ringlog-perf` itself is left out where the other one cannot.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::baseline::{Counters, keep};
use super::counters::{Counter, Programs, programs_in};
use super::{GateArguments, PROFILE, as_counters, baseline, conclude, here, take, tell};
use crate::broker::Scratch;
use crate::client::Fault;

/// Builds, counts and compares.
pub fn run(arguments: &GateArguments) -> Result<(), Fault> {
    let begun = Instant::now();
    let ours = here(&arguments.own)?;
    let worktree;
    let theirs = match (&arguments.base_programs, &arguments.base) {
        (Some(directory), _) => programs_in(directory),
        (None, Some(revision)) => {
            build(Path::new("."), None)?;
            worktree = Worktree::new(revision)?;
            // Kept: the next time its dependencies are there. A new checkout is newer than what
            // was built from another one, so that nothing of that is taken for its own.
            let target = std::fs::canonicalize("target")?.join("base");
            build(&worktree.path, Some(&target))?;
            programs_in(&target.join(PROFILE))
        }
        (None, None) => return Err("there is nothing to compare with".into()),
    };
    // What an older program cannot count, it is not asked for.
    let theirs = match has_gate(&theirs.perf) {
        true => theirs,
        false => Programs { perf: ours.perf.clone(), ..theirs },
    };
    let is_theirs_within = theirs.perf != ours.perf;
    let mut both: [Vec<Vec<Counter>>; 2] = Default::default();
    for round in 0..arguments.runs().max(2) {
        // ABBA.
        for second in [false, true] {
            let is_ours = second == (round % 2 == 0);
            let taken = take(arguments, if is_ours { &ours } else { &theirs }, round + 1)?;
            let mut counters = taken.counters;
            if !is_theirs_within {
                counters.retain(|counter| !is_within(&counter.name));
            }
            counters.extend(as_counters(&taken.cpu_us));
            both[usize::from(is_ours)].push(counters);
        }
    }
    let [before, now] = both;
    let judged = baseline::judge(&allowed(keep(&before)), &now);
    tell(arguments, &judged, begun);
    conclude(&judged)
}

/// CPU time may differ by a tenth, or by as much as it does within one revision.
fn allowed(mut before: Counters) -> Counters {
    for (name, kept) in &mut before {
        if name.starts_with("cpu_us_") {
            kept.tolerance_percent = kept.tolerance_percent.max(CPU_TOLERANCE_PERCENT);
        }
    }
    before
}

/// What a program counts of the library it is built with.
fn is_within(name: &str) -> bool {
    ["allocations_", "allocated_", "instructions_"].iter().any(|prefix| name.starts_with(prefix))
}

fn has_gate(perf: &Path) -> bool {
    let asked = Command::new(perf).args(["gate", "--help"]).stdin(Stdio::null()).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Builds the programs of a checkout as this one was built, in its own target directory or another.
fn build(checkout: &Path, target: Option<&Path>) -> Result<(), Fault> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--bins"]).current_dir(checkout).env_remove("CARGO_TARGET_DIR");
    if PROFILE == "release" {
        command.arg("--release");
    }
    if let Some(target) = target {
        command.arg("--target-dir").arg(target);
    }
    eprintln!("building {}", checkout.display());
    succeed(command.stdin(Stdio::null()), "cargo build")
}

/// Another revision, checked out beside this one until it is dropped.
struct Worktree {
    path: PathBuf,
    _scratch: Scratch,
}

impl Worktree {
    fn new(revision: &str) -> Result<Worktree, Fault> {
        let scratch = Scratch::new(Path::new("target"))?;
        let path = std::fs::canonicalize(scratch.path())?.join("base");
        let mut git = Command::new("git");
        git.args(["worktree", "add", "--detach", "--force"]).arg(&path).arg(revision);
        succeed(git.stdin(Stdio::null()).stdout(Stdio::null()), "git worktree add")?;
        Ok(Worktree { path, _scratch: scratch })
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let mut git = Command::new("git");
        git.args(["worktree", "remove", "--force"]).arg(&self.path);
        let _ = succeed(&mut git, "git worktree remove");
    }
}

fn succeed(command: &mut Command, name: &str) -> Result<(), Fault> {
    match command.status().map_err(|error| format!("{name}: {error}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{name} ended with {status}").into()),
    }
}

/// Per cent.
const CPU_TOLERANCE_PERCENT: f64 = 10.0;
