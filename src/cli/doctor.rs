//! `ringlog doctor`: what this host gives a broker, and what to change.
//!
//! Owns the table and its JSON form. The verdicts are [`doctor`](crate::doctor)'s. Changes nothing.

use std::io::{self, Write};

use serde::Serialize;

use super::args::{DoctorArguments, ServeArguments};
use crate::doctor::{self, Finding};

/// Prints one finding per subject; true if a broker would start.
///
/// # Errors
/// One sentence: the configuration is wrong, or the output is closed.
pub fn run(arguments: &DoctorArguments, out: &mut dyn Write) -> Result<bool, String> {
    let serve = ServeArguments {
        config: arguments.config.clone(),
        data_dir: arguments.data_dir.clone(),
        mode: arguments.mode.clone(),
        ..ServeArguments::default()
    };
    let config = serve.load().map_err(|error| error.to_string())?;
    let findings = doctor::examine(&doctor::probe::facts(&config));
    let printed = if arguments.json { json(&findings, out) } else { table(&findings, out) };
    printed.map_err(|error| format!("cannot print: {error}"))?;
    Ok(doctor::can_serve(&findings))
}

fn table(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for Finding { subject, level, found, mend } in findings {
        writeln!(out, "{:<4}  {subject:<13}  {found}", level.name())?;
        if !mend.is_empty() {
            writeln!(out, "{:21}-> {mend}", "")?;
        }
    }
    let verdict = if doctor::can_serve(findings) {
        "a broker can serve here"
    } else {
        "a broker does not start here: mend what is bad"
    };
    writeln!(out, "{verdict}")
}

#[derive(Serialize)]
struct Row<'a> {
    subject: &'a str,
    level: &'a str,
    found: &'a str,
    mend: &'a str,
}

fn json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Row<'_>> = findings
        .iter()
        .map(|finding| Row {
            subject: finding.subject,
            level: finding.level.name(),
            found: &finding.found,
            mend: &finding.mend,
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn findings() -> Vec<Finding> {
        vec![
            Finding {
                subject: "clock",
                level: Level::Good,
                found: "source tsc".to_owned(),
                mend: String::new(),
            },
            Finding {
                subject: "swap",
                level: Level::Bad,
                found: "in \"use\"".to_owned(),
                mend: "swapoff -a".to_owned(),
            },
        ]
    }

    #[test]
    fn a_table_names_level_subject_and_cure() {
        let mut out = Vec::new();
        table(&findings(), &mut out).expect("written");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "ok    clock          source tsc\n\
             bad   swap           in \"use\"\n                     -> swapoff -a\n\
             a broker does not start here: mend what is bad\n"
        );
    }

    #[test]
    fn json_has_one_object_per_finding() {
        let mut out = Vec::new();
        json(&findings(), &mut out).expect("written");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            value,
            serde_json::json!([
                {"subject": "clock", "level": "ok", "found": "source tsc", "mend": ""},
                {"subject": "swap", "level": "bad", "found": "in \"use\"", "mend": "swapoff -a"},
            ])
        );
    }
}
