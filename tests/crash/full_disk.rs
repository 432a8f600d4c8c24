//! A real full disk: a small ext4 file system in a file, mounted over the data directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

use crate::cluster::create;
use crate::ledger::{Fate, Ledger, read_log};
use crate::random::{Random, batch};
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

const SETTINGS: &[&str] = &[
    "--shards",
    "2",
    "--advertise",
    "single",
    "--memory",
    "64MiB",
    "--set",
    "journal.ring.bytes=8MiB",
];

#[test]
fn a_full_disk_refuses_records_loses_none_and_serves_again_once_there_is_space() {
    let mut broker = Broker::prepare(SETTINGS);
    let Some(mounted) = Mounted::over(broker.data_directory()) else { return };
    broker.restart();
    let mut client = broker.connect();
    let settings = [("segment.bytes", "4194304"), ("retention.ms", "-1")];
    assert_eq!(client.call(7, &create("t", 2, &settings)).topics[0].error_code, 0);
    let mut load = Load { ledger: Ledger::default(), random: Random::new(5), number: 0 };
    load.ledger.creating("t", 2);
    load.ledger.set_fate("t", Fate::Exists);
    for _ in 0..20 {
        assert_eq!(load.produce(&mut client), 0);
    }

    // Fill the disk: a little is left for the broker to run into.
    let filler = mounted.directory.join("filler");
    fill(&filler, mounted.available_bytes() - (24 << 20));
    let mut appended_bytes = 0_u64;
    let refused = loop {
        match load.produce(&mut client) {
            0 => appended_bytes += BATCH_BYTES as u64,
            code => break code,
        }
        assert!(appended_bytes < 200 << 20, "the disk is not that large");
    };
    assert_eq!(refused, 56);
    // Still refused, still readable, and nothing acknowledged is lost by a crash meanwhile.
    assert_eq!(load.produce(&mut client), 56);
    load.verify(&mut client);
    broker.kill();
    broker.restart();
    let mut client = broker.connect();
    load.verify(&mut client);
    assert_eq!(load.produce(&mut client), 56, "a start on a full disk takes no records");

    fs::remove_file(&filler).expect("it is there");
    let deadline = Instant::now() + Duration::from_secs(20);
    while load.produce(&mut client) != 0 {
        assert!(Instant::now() < deadline, "records are taken again once there is space");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    for _ in 0..20 {
        assert_eq!(load.produce(&mut client), 0);
    }
    load.verify(&mut client);
    broker.kill();
    broker.restart();
    load.verify(&mut broker.connect());
    assert_eq!(broker.terminate().code, Some(0));
    broker.restart();
    load.verify(&mut broker.connect());
    broker.kill();
}

struct Load {
    ledger: Ledger,
    random: Random,
    number: u64,
}

impl Load {
    /// Sends one batch to one of two partitions; returns the error code.
    fn produce(&mut self, client: &mut Client) -> i16 {
        let number = self.number;
        self.number += 1;
        let partition = (number % 2) as i32;
        let batch = batch(&mut self.random, number, None, BATCH_BYTES, 4);
        self.ledger.sending("t", partition, number, &batch);
        let request = requests::produce(9, &Topic::named("t"), partition, -1, batch);
        let answer = client.call(9, &request);
        let entry = &answer.responses[0].partition_responses[0];
        if entry.error_code == 0 {
            self.ledger.acknowledged("t", partition, number, entry.base_offset);
        }
        entry.error_code
    }

    fn verify(&mut self, client: &mut Client) {
        for partition in 0..2 {
            let log = read_log(client, "t", partition);
            self.ledger.verify("t", partition, &log);
        }
    }
}

/// A file system of 300 MiB over a directory, until dropped.
struct Mounted {
    directory: PathBuf,
    _image: TempDir,
}

impl Mounted {
    /// Nothing, with a printed reason, where mounting is not permitted.
    fn over(directory: &Path) -> Option<Mounted> {
        let image = TempDir::with_prefix_in("disk-", env!("CARGO_TARGET_TMPDIR")).expect("space");
        let file = image.path().join("ext4");
        File::create(&file).and_then(|file| file.set_len(300 << 20)).expect("a sparse file");
        let made =
            run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file)).and_then(|()| {
                run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(directory))
            });
        if let Err(reason) = made {
            println!(
                "skipped: a small file system cannot be mounted here ({reason}); the simulation \
                 still fills its disk"
            );
            return None;
        }
        Some(Mounted { directory: directory.to_owned(), _image: image })
    }

    fn available_bytes(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.directory).expect("mounted");
        space.f_bavail * space.f_frsize
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: on a panic the broker still runs and is killed later.
        let unmounted = run(Command::new("umount").arg("-l").arg(&self.directory));
        if let Err(reason) = unmounted {
            eprintln!("{} stays mounted: {reason}", self.directory.display());
        }
    }
}

fn fill(path: &Path, bytes: u64) {
    let file = File::create(path).expect("creatable");
    fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("there is that much space");
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

const BATCH_BYTES: usize = 200 << 10;
