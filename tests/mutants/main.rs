//! The table of planted bugs still fits the code: every patch applies in exactly one place, every
//! named test is there, and the README has a row for each. `tests/mutants/run` plants them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    bug: Vec<Bug>,
}

#[derive(Deserialize)]
struct Bug {
    name: String,
    promise: String,
    file: PathBuf,
    from: String,
    to: String,
    test: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table() -> Vec<Bug> {
    let text = read(&root().join("tests/mutants/table.toml"));
    toml::from_str::<Table>(&text).expect("a table").bug
}

#[test]
fn every_patch_applies_in_one_place() {
    let bugs = table();
    assert!(bugs.len() >= 25, "{}", bugs.len());
    for bug in &bugs {
        let places = read(&root().join(&bug.file)).matches(&bug.from).count();
        assert_eq!(places, 1, "{}: {} in {}", bug.name, bug.from, bug.file.display());
        assert_ne!(bug.from, bug.to, "{}", bug.name);
    }
    let names: BTreeSet<&str> = bugs.iter().map(|bug| &*bug.name).collect();
    assert_eq!(names.len(), bugs.len(), "names are used once");
}

#[test]
fn every_test_exists() {
    let mut sources = String::new();
    let mut pending = vec![root().join("src"), root().join("tests")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&read(&path));
            }
        }
    }
    for bug in table() {
        let name = bug.test.rsplit([':', ' ']).next().expect("a name");
        assert!(sources.contains(&format!("fn {name}(")), "{}: there is no {name}", bug.name);
    }
}

#[test]
fn the_readme_has_a_row_for_each() {
    let readme = read(&root().join("tests/mutants/README.md"));
    for bug in table() {
        let row = format!("| `{}` | {} | `{}` |", bug.name, bug.promise, bug.test);
        assert!(readme.contains(&row), "no row {row}");
    }
}
