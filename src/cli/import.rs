//! `ringlog log import`: a data directory from those of a stopped Apache Kafka.
//!
//! Owns the locks on both sides and the name of the new directory, which it gets last: what an
//! import that failed or was killed has left is not taken for a data directory. Must never write
//! where there is data already.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::config::{self, Override};
use crate::io::Disk;
use crate::io::clock;
use crate::io::executor::run_here;
use crate::io::file::RingDisk;
use crate::io::lock::{DirectoryLock, KafkaLock, LOCK_FILE};
use crate::io::process;
use crate::tools::import::{Report, Request, import};

use super::args::ImportArguments;

/// Runs the command.
///
/// # Errors
/// One sentence: why there is no import.
pub fn run(arguments: &ImportArguments, out: &mut dyn Write) -> Result<(), String> {
    let overrides: Vec<Override> =
        arguments.data_dir.iter().map(|dir| ("data_dir".to_owned(), dir.clone())).collect();
    let config = config::load(arguments.config.as_deref(), &overrides);
    let config = Arc::new(config.map_err(|error| error.to_string())?);
    let mut sources = Vec::new();
    let mut locks = Vec::new();
    for source in &arguments.sources {
        let path = source.canonicalize().map_err(|error| failed(source, &error))?;
        locks.push(KafkaLock::acquire(&path).map_err(|held| held.to_string())?);
        sources.push(path);
    }
    let target = &config.data_dir;
    refuse_data(target)?;
    let temporary = temporary(target)?;
    let lock = DirectoryLock::acquire(&temporary).map_err(|held| held.to_string())?;
    clear(&temporary).map_err(|error| failed(&temporary, &error))?;
    let request = Request {
        sources: &sources,
        target: &temporary,
        shards: config.shards.max(1),
        broker: Arc::clone(&config),
        kernel_boot_id: process::kernel_boot_id(),
        now_ms: clock::wall_ms(),
    };
    let imported = run_here(async {
        let disk = RingDisk::new(&temporary).map_err(|e| e.to_string())?;
        let disk: Rc<dyn Disk> = Rc::new(disk);
        import(&disk, &request).await.map_err(|error| error.to_string())
    });
    let report = imported.map_err(|error| error.to_string())??;
    give_name(&temporary, target).map_err(|error| failed(target, &error))?;
    drop((lock, locks));
    print(&report, target, out).map_err(|error| error.to_string())
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn refuse_data(target: &Path) -> Result<(), String> {
    let is_empty = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed(target, &error)),
    };
    if is_empty {
        return Ok(());
    }
    Err(format!(
        "{} is not empty: choose another --data-dir, nothing is imported into what is there",
        target.display()
    ))
}

/// The name of the new directory until it is complete, beside its own.
fn temporary(target: &Path) -> Result<PathBuf, String> {
    let absolute = std::path::absolute(target).map_err(|error| failed(target, &error))?;
    let name = absolute.file_name().ok_or_else(|| format!("{} has no name", target.display()))?;
    let mut temporary = OsString::from(name);
    temporary.push(".importing");
    Ok(absolute.with_file_name(temporary))
}

/// Removes what an earlier import has left.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK_FILE {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The one moment in which the data directory comes to be.
fn give_name(temporary: &Path, target: &Path) -> io::Result<()> {
    match fs::remove_dir(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::rename(temporary, target)?,
    }
    let parent = temporary.parent().unwrap_or(Path::new("/"));
    fs::File::open(parent)?.sync_all()
}

fn print(report: &Report, target: &Path, out: &mut dyn Write) -> io::Result<()> {
    for note in &report.notes {
        writeln!(out, "{note}")?;
    }
    let Report { topics, partitions, batches, bytes, .. } = report;
    writeln!(
        out,
        "{} holds {topics} topics, {partitions} partitions, {batches} batches of {bytes} bytes now",
        target.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_place_is_taken() {
        let directory = tempfile::tempdir().expect("directory");
        let target = directory.path().join("data");
        assert_eq!(refuse_data(&target), Ok(()));
        fs::create_dir(&target).expect("directory");
        assert_eq!(refuse_data(&target), Ok(()));
        let temporary = temporary(&target).expect("name");
        assert_eq!(temporary, directory.path().join("data.importing"));
        fs::create_dir(&temporary).expect("directory");
        fs::write(temporary.join("old"), "").expect("file");
        fs::write(temporary.join(LOCK_FILE), "").expect("file");
        fs::create_dir(temporary.join("topics")).expect("directory");
        clear(&temporary).expect("cleared");
        give_name(&temporary, &target).expect("renamed");
        let left: Vec<_> = fs::read_dir(&target).expect("list").flatten().collect();
        assert_eq!(left.len(), 1);
        assert!(refuse_data(&target).expect_err("data").contains("is not empty"));
    }
}
