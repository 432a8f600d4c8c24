//! What happened, for whoever has to understand a failing seed, and the first thing that was wrong.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// The last lines of a life, and its first violation.
#[derive(Default)]
pub struct Trace {
    lines: VecDeque<String>,
    violation: Option<String>,
}

impl Trace {
    /// Keeps a line of what happened.
    pub fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        crate::scenario::say(|| line.clone());
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Notes the first thing that went wrong.
    pub fn violated(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.say(format!("VIOLATION: {what}"));
        if self.violation.is_none() {
            self.violation = Some(what);
        }
    }

    /// What went wrong, if anything has, with what happened before.
    pub fn check(&self) -> Result<(), String> {
        let Some(what) = &self.violation else { return Ok(()) };
        Err(self.told(what))
    }

    /// A sentence and what happened before.
    pub fn told(&self, what: &str) -> String {
        let mut text = what.to_owned();
        for line in &self.lines {
            let _ = write!(text, "\n    {line}");
        }
        text
    }
}

const LINES_MAX: usize = 400;
