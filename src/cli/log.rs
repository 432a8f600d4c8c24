//! `ringlog log`: the offline commands.
//!
//! Owns which directory is locked and what the exit code says: 0 all is well, 1 something is
//! damaged, 2 the command could not do its work. Must never start where a broker runs: a directory
//! that changes meanwhile cannot be judged.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::io::Disk;
use crate::io::executor::run_here;
use crate::io::file::RingDisk;
use crate::io::lock::DirectoryLock;
use crate::io::process;
use crate::journal::manifest;
use crate::tools::dump::{DumpError, dump};
use crate::tools::verify::verify;

use super::args::LogCommand;
use super::import;

/// Runs the command; whether all it looked at is sound.
///
/// # Errors
/// One sentence: why it could not do its work.
pub fn run(command: &LogCommand, out: &mut dyn Write) -> Result<bool, String> {
    let path = match command {
        LogCommand::Dump { path } | LogCommand::Verify { path } => path,
        LogCommand::Import(arguments) => return import::run(arguments, out).map(|()| true),
    };
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let data_dir = data_directory(&path);
    // Held until the command is done.
    let _lock = match &data_dir {
        Some(data_dir) => Some(DirectoryLock::acquire(data_dir).map_err(|held| held.to_string())?),
        None => None,
    };
    let root = data_dir.clone().or_else(|| path.parent().map(Path::to_owned));
    let root = root.unwrap_or_else(|| path.clone());
    let done = run_here(async {
        let disk = RingDisk::new(&root).map_err(|e| e.to_string())?;
        let disk: Rc<dyn Disk> = Rc::new(disk);
        match command {
            LogCommand::Dump { .. } => dump_to(&disk, &path, out).await,
            LogCommand::Verify { .. } if data_dir.as_ref() == Some(&path) => {
                verify_directory(&disk, &path, out).await
            }
            _ => verify_file(&disk, &path, out).await,
        }
    });
    done.map_err(|error| error.to_string())?
}

/// The data directory that `path` is, or is in, if any.
fn data_directory(path: &Path) -> Option<PathBuf> {
    let files = [manifest::format_path(), manifest::manifest_path()];
    let is_one = |path: &&Path| files.iter().any(|file| path.join(file).is_file());
    path.ancestors().find(is_one).map(Path::to_owned)
}

async fn dump_to(disk: &Rc<dyn Disk>, path: &Path, out: &mut dyn Write) -> Result<bool, String> {
    let mut out = io::BufWriter::new(out);
    let dumped = dump(disk, path, &mut out).await;
    let flushed = out.flush();
    match (dumped, flushed) {
        // Whoever reads has seen enough.
        (Err(DumpError::Output(error)), _) | (Ok(_), Err(error))
            if error.kind() == io::ErrorKind::BrokenPipe =>
        {
            Ok(true)
        }
        (Err(error), _) => Err(error.to_string()),
        (Ok(_), Err(error)) => Err(error.to_string()),
        (Ok(damaged), Ok(())) => Ok(damaged == 0),
    }
}

async fn verify_directory(
    disk: &Rc<dyn Disk>,
    data_dir: &Path,
    out: &mut dyn Write,
) -> Result<bool, String> {
    let findings =
        verify(disk, data_dir, &process::kernel_boot_id()).await.map_err(|e| e.to_string())?;
    let problems = findings.iter().filter(|finding| finding.is_problem).count();
    for finding in &findings {
        let _ = writeln!(out, "{}", finding.text);
    }
    let _ = match problems {
        0 => writeln!(out, "no problems"),
        1 => writeln!(out, "1 problem"),
        _ => writeln!(out, "{problems} problems"),
    };
    Ok(problems == 0)
}

/// A file alone, or a directory inside a data directory: whether each can be read to its end.
async fn verify_file(
    disk: &Rc<dyn Disk>,
    path: &Path,
    out: &mut dyn Write,
) -> Result<bool, String> {
    let mut lines = Damaged { line: Vec::new(), out };
    let damaged = dump(disk, path, &mut lines).await.map_err(|error| error.to_string())?;
    let _ = match damaged {
        0 => writeln!(out, "no problems"),
        1 => writeln!(out, "1 problem"),
        _ => writeln!(out, "{damaged} problems"),
    };
    Ok(damaged == 0)
}

/// Lets through the names of files and the lines about damage.
struct Damaged<'a> {
    line: Vec<u8>,
    out: &'a mut dyn Write,
}

impl Write for Damaged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.line.push(byte);
            if byte == b'\n' {
                if self.line.starts_with(b"damaged ") || self.line.starts_with(b"# ") {
                    self.out.write_all(&self.line)?;
                }
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
