//! The data directory from outside: how much is on it, and whether its files are sound.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The most that was ever there.
#[derive(Default, Debug)]
pub struct Disk {
    /// Allocated, all files.
    pub bytes_max: u64,
    /// Written to segments of the internal topics.
    pub internal_bytes_max: u64,
    pub files_max: u64,
}

impl Disk {
    /// Looks once. What is written in the whole soak is many times as much.
    pub fn look(&mut self, data_directory: &Path) {
        let (mut bytes, mut internal_bytes, mut files) = (0, 0, 0);
        let mut pending = vec![data_directory.to_owned()];
        while let Some(directory) = pending.pop() {
            // Files and directories come and go.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    pending.push(entry.path());
                    continue;
                }
                files += 1;
                bytes += metadata.blocks() * 512;
                let is_internal = directory
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("__"));
                let is_log = entry.path().extension().is_some_and(|name| name == "log");
                if is_internal && is_log {
                    internal_bytes += metadata.len();
                }
            }
        }
        self.bytes_max = self.bytes_max.max(bytes);
        self.internal_bytes_max = self.internal_bytes_max.max(internal_bytes);
        self.files_max = self.files_max.max(files);
        assert!(bytes <= BYTES_MAX, "{bytes} bytes are allocated");
        assert!(internal_bytes <= INTERNAL_BYTES_MAX, "{internal_bytes} bytes in internal topics");
        assert!(files <= FILES_MAX, "{files} files");
    }
}

/// `ringlog log verify` finds nothing.
pub fn verify(data_directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    let output = command.args(["log", "verify"]).arg(data_directory).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("PROBLEM"), "{text}");
}

/// Three rings of 16 MiB, ten small logs, and what is allocated ahead.
const BYTES_MAX: u64 = 400 << 20;
/// Four partitions of segments of 1 MiB, half of them not compacted yet.
const INTERNAL_BYTES_MAX: u64 = 24 << 20;
const FILES_MAX: u64 = 1_000;
