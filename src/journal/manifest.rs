//! The manifest: which images and rings of which boot count. Replacing it is the commit point of
//! a start.
//!
//! Owns the text format of `journal/manifest`, the content of the data directory's `format` file,
//! and the names of everything below `journal/`. Does no I/O.
//!
//! Invariants: recovery reads what a manifest names and nothing else; every path is relative to
//! the data directory and stays below `journal/`; a manifest or format of a newer version is
//! refused with a message that says so.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::ids::{BootNumber, JournalSequence, LeaderEpoch, ShardId, TopicPartition};

/// What an acknowledgement survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Loss of power.
    PowerLoss,
    /// The end of the process.
    ProcessCrash,
}

/// What a start leaves for the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Boot whose images and rings these are.
    pub boot: BootNumber,
    /// Mode this boot runs in.
    pub durability: Durability,
    /// The kernel's boot id; another one at the next start means that the machine went down.
    pub kernel_boot_id: String,
    /// Highest leader epoch handed out or imported so far.
    pub highest_epoch: LeaderEpoch,
    /// Highest journal sequence seen before this boot; its own blocks start above.
    pub highest_sequence: JournalSequence,
    /// The shards of this boot, in order.
    pub rings: Vec<RingEntry>,
}

/// One shard's ring and image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingEntry {
    /// The shard.
    pub shard: ShardId,
    /// Its image, relative to the data directory.
    pub image: PathBuf,
    /// The ring's files in order, relative to the data directory.
    pub files: Vec<PathBuf>,
    /// Bytes of each file.
    pub file_bytes: u64,
}

/// Why a manifest cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestFault {
    /// Not a manifest, or damaged.
    #[error("journal/manifest is damaged: {0}")]
    Damaged(String),
    /// Written by a newer version.
    #[error(
        "journal/manifest has format {0}, this version of Ringlog knows up to {FORMAT}: start \
         this data directory with a newer version"
    )]
    Newer(u32),
}

impl RingEntry {
    /// The entry of a shard whose files have the usual names.
    #[must_use]
    pub fn new(boot: BootNumber, shard: ShardId, files: u32, file_bytes: u64) -> RingEntry {
        RingEntry {
            shard,
            image: image_path(boot, shard),
            files: (0..files).map(|file| ring_file_path(shard, file)).collect(),
            file_bytes,
        }
    }
}

impl Manifest {
    /// Whether gaps in the journal may be the honest result of a machine crash: this boot ran in
    /// `process-crash` mode and the kernel is not the same run any more.
    #[must_use]
    pub fn holes_are_legitimate(&self, kernel_boot_id_now: &str) -> bool {
        self.durability == Durability::ProcessCrash && self.kernel_boot_id != kernel_boot_id_now
    }

    /// The text of the file: one line with format and checksum, then JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            boot: self.boot.0,
            durability: self.durability,
            kernel_boot_id: self.kernel_boot_id.clone(),
            highest_epoch: self.highest_epoch.0,
            highest_sequence: self.highest_sequence.0,
            rings: self
                .rings
                .iter()
                .map(|ring| StoredRing {
                    shard: ring.shard.0,
                    image: ring.image.clone(),
                    file_bytes: ring.file_bytes,
                    files: ring.files.clone(),
                })
                .collect(),
        };
        let mut body = serde_json::to_string_pretty(&stored)
            .expect("invariant: a manifest's paths are plain text");
        body.push('\n');
        let head = format!("{MARK} {FORMAT} {:016x}\n", xxh3_64(body.as_bytes()));
        [head, body].concat().into_bytes()
    }

    /// Reads the file back.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestFault> {
        let damaged = |what: &str| ManifestFault::Damaged(what.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
        let (head, body) = text.split_once('\n').ok_or_else(|| damaged("it has no head"))?;
        let words: Vec<&str> = head.split(' ').collect();
        let &[MARK, format, checksum] = words.as_slice() else {
            return Err(damaged("it is not a manifest"));
        };
        let format: u32 = format.parse().map_err(|_| damaged("its format is no number"))?;
        if format > FORMAT {
            return Err(ManifestFault::Newer(format));
        }
        if format != FORMAT || format!("{:016x}", xxh3_64(body.as_bytes())) != checksum {
            return Err(damaged("its checksum does not match"));
        }
        let stored: Stored =
            serde_json::from_str(body).map_err(|fault| damaged(&fault.to_string()))?;
        let mut rings = Vec::new();
        for ring in stored.rings {
            if !ring.files.iter().chain([&ring.image]).all(|path| stays_below_journal(path)) {
                return Err(damaged("a path leaves journal/"));
            }
            rings.push(RingEntry {
                shard: ShardId(ring.shard),
                image: ring.image,
                files: ring.files,
                file_bytes: ring.file_bytes,
            });
        }
        Ok(Manifest {
            boot: BootNumber(stored.boot),
            durability: stored.durability,
            kernel_boot_id: stored.kernel_boot_id,
            highest_epoch: LeaderEpoch(stored.highest_epoch),
            highest_sequence: JournalSequence(stored.highest_sequence),
            rings,
        })
    }
}

/// What is written; field names are part of the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    boot: u32,
    durability: Durability,
    kernel_boot_id: String,
    highest_epoch: i32,
    highest_sequence: u64,
    rings: Vec<StoredRing>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRing {
    shard: u16,
    image: PathBuf,
    file_bytes: u64,
    files: Vec<PathBuf>,
}

fn stays_below_journal(path: &Path) -> bool {
    path.starts_with(JOURNAL) && path.components().all(|part| matches!(part, Component::Normal(_)))
}

// --- Names below the data directory ----------------------------------------------------------

/// The journal's directory.
#[must_use]
pub fn journal_directory() -> PathBuf {
    PathBuf::from(JOURNAL)
}

/// The manifest.
#[must_use]
pub fn manifest_path() -> PathBuf {
    Path::new(JOURNAL).join("manifest")
}

/// The directory of one boot's images.
#[must_use]
pub fn boot_directory(boot: BootNumber) -> PathBuf {
    Path::new(JOURNAL).join(boot.to_string())
}

/// The image of one shard.
#[must_use]
pub fn image_path(boot: BootNumber, shard: ShardId) -> PathBuf {
    boot_directory(boot).join(format!("image-{shard}"))
}

/// The directory of all rings.
#[must_use]
pub fn rings_directory() -> PathBuf {
    Path::new(JOURNAL).join("rings")
}

/// File `file` of a shard's ring.
#[must_use]
pub fn ring_file_path(shard: ShardId, file: u32) -> PathBuf {
    rings_directory().join(format!("{shard}.{file}"))
}

/// The directory of what offline partitions keep.
#[must_use]
pub fn stranded_directory() -> PathBuf {
    Path::new(JOURNAL).join("stranded")
}

/// The stranded entries of one partition.
#[must_use]
pub fn stranded_path(tp: TopicPartition) -> PathBuf {
    stranded_directory().join(format!("{}-{}", tp.topic, tp.partition))
}

/// The partition whose stranded entries a file of that directory holds; `None` for other files.
#[must_use]
pub fn stranded_partition(file_name: &str) -> Option<TopicPartition> {
    // The topic id may hold dashes itself; it is 22 characters long.
    let (topic, index) = file_name.split_at_checked(22)?;
    let index = index.strip_prefix('-')?;
    let partition = crate::ids::PartitionIndex(index.parse().ok()?);
    let topic = crate::ids::TopicId::from_text(topic)?;
    (partition.0 >= 0 && index == partition.to_string())
        .then_some(TopicPartition { topic, partition })
}

/// The file that carries the data directory's version.
#[must_use]
pub fn format_path() -> PathBuf {
    PathBuf::from("format")
}

// --- The `format` file -----------------------------------------------------------------------

/// Version of everything in a data directory that this program writes.
pub const DATA_FORMAT: u32 = 1;

/// Why a data directory cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DataFormatFault {
    /// Written by a newer version.
    #[error(
        "the data directory has on-disk format {0}, this version of Ringlog knows up to \
         {DATA_FORMAT}: start it with a newer version"
    )]
    Newer(u32),
    /// Not what any version writes.
    #[error(
        "the data directory's `format` file is damaged: it should read `{DATA_MARK} {DATA_FORMAT}`"
    )]
    Damaged,
}

/// The content of the `format` file.
#[must_use]
pub fn encode_data_format() -> Vec<u8> {
    format!("{DATA_MARK} {DATA_FORMAT}\n").into_bytes()
}

/// The version a `format` file names, if this program can read it.
pub fn check_data_format(content: &[u8]) -> Result<u32, DataFormatFault> {
    let version: u32 = std::str::from_utf8(content)
        .ok()
        .and_then(|text| text.strip_suffix('\n'))
        .and_then(|text| text.strip_prefix(DATA_MARK))
        .and_then(|text| text.strip_prefix(' '))
        .and_then(|text| text.parse().ok())
        .ok_or(DataFormatFault::Damaged)?;
    match version {
        0 => Err(DataFormatFault::Damaged),
        1..=DATA_FORMAT => Ok(version),
        newer => Err(DataFormatFault::Newer(newer)),
    }
}

const JOURNAL: &str = "journal";
const MARK: &str = "ringlog-manifest";
const DATA_MARK: &str = "ringlog-data";
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PartitionIndex, TopicId};

    fn manifest() -> Manifest {
        Manifest {
            boot: BootNumber(12),
            durability: Durability::PowerLoss,
            kernel_boot_id: "0b7f4a3e-9a52-4c5b-8a51-1d9fdc3f1f10".to_owned(),
            highest_epoch: LeaderEpoch(12),
            highest_sequence: JournalSequence(98_765_432_109),
            rings: vec![
                RingEntry::new(BootNumber(12), ShardId(0), 2, 67_108_864),
                RingEntry::new(BootNumber(12), ShardId(1), 1, 67_108_864),
            ],
        }
    }

    /// Format 1 as it was first written; must be readable for ever.
    const VERSION_1: &str = r#"ringlog-manifest 1 CHECKSUM
{
  "boot": 12,
  "durability": "power-loss",
  "kernel_boot_id": "0b7f4a3e-9a52-4c5b-8a51-1d9fdc3f1f10",
  "highest_epoch": 12,
  "highest_sequence": 98765432109,
  "rings": [
    {
      "shard": 0,
      "image": "journal/12/image-0",
      "file_bytes": 67108864,
      "files": [
        "journal/rings/0.0",
        "journal/rings/0.1"
      ]
    },
    {
      "shard": 1,
      "image": "journal/12/image-1",
      "file_bytes": 67108864,
      "files": [
        "journal/rings/1.0"
      ]
    }
  ]
}
"#;

    /// The text with its first line made to fit.
    fn summed(text: &str) -> Vec<u8> {
        let (head, body) = text.split_once('\n').expect("two lines");
        let sum = format!("{:016x}", xxh3_64(body.as_bytes()));
        format!("{}\n{body}", head.replace("CHECKSUM", &sum)).into_bytes()
    }

    #[test]
    fn version_1_is_read_and_written() {
        let text = VERSION_1.replace("CHECKSUM", "01194a1d5c28ad1d");
        assert_eq!(String::from_utf8(manifest().encode()).expect("text"), text);
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(manifest()));
    }

    #[test]
    fn a_newer_manifest_is_refused_by_name() {
        let text = VERSION_1.replace("-manifest 1", "-manifest 2");
        assert_eq!(Manifest::decode(&summed(&text)), Err(ManifestFault::Newer(2)));
        assert_eq!(
            ManifestFault::Newer(2).to_string(),
            "journal/manifest has format 2, this version of Ringlog knows up to 1: start this \
             data directory with a newer version"
        );
    }

    #[test]
    fn damage_is_refused() {
        let whole = manifest().encode();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&whole[..at]).is_err(), "cut at {at}");
        }
        assert!(Manifest::decode(&[0xff; 100]).is_err());
        for (from, to) in [
            ("\"journal/12/image-0\"", "\"/etc/passwd\""),
            ("\"journal/12/image-0\"", "\"journal/../topics/x\""),
            ("\"journal/rings/0.1\"", "\"topics/0.1\""),
            ("\"shard\": 1", "\"shard\": 70000"),
            ("\"boot\": 12", "\"boot\": 12, \"more\": 1"),
            ("power-loss", "hope"),
        ] {
            let text = summed(&VERSION_1.replace(from, to));
            let fault = Manifest::decode(&text).expect_err(to);
            assert!(matches!(fault, ManifestFault::Damaged(_)), "{to}: {fault}");
        }
    }

    #[test]
    fn holes_need_the_mode_and_a_machine_crash() {
        let mut manifest = manifest();
        let same = manifest.kernel_boot_id.clone();
        assert!(!manifest.holes_are_legitimate("other"));
        manifest.durability = Durability::ProcessCrash;
        assert!(manifest.holes_are_legitimate("other"));
        assert!(!manifest.holes_are_legitimate(&same));
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }

    #[test]
    fn names_are_fixed() {
        let tp = TopicPartition { topic: TopicId([0xfb; 16]), partition: PartitionIndex(42) };
        assert_eq!(manifest_path(), Path::new("journal/manifest"));
        assert_eq!(image_path(BootNumber(3), ShardId(1)), Path::new("journal/3/image-1"));
        assert_eq!(ring_file_path(ShardId(1), 2), Path::new("journal/rings/1.2"));
        let stranded = "-_v7-_v7-_v7-_v7-_v7-w-42";
        assert_eq!(stranded_path(tp), Path::new("journal/stranded").join(stranded));
        assert_eq!(stranded_partition(stranded), Some(tp));
        for other in ["", "-_v7-_v7-_v7-_v7-_v7-w-042", "-_v7-_v7-_v7-_v7-_v7-w--1", "a-1"] {
            assert_eq!(stranded_partition(other), None, "{other}");
        }
    }

    #[test]
    fn the_format_file_refuses_what_is_newer() {
        assert_eq!(encode_data_format(), b"ringlog-data 1\n");
        assert_eq!(check_data_format(b"ringlog-data 1\n"), Ok(1));
        assert_eq!(check_data_format(b"ringlog-data 2\n"), Err(DataFormatFault::Newer(2)));
        assert_eq!(
            DataFormatFault::Newer(2).to_string(),
            "the data directory has on-disk format 2, this version of Ringlog knows up to 1: \
             start it with a newer version"
        );
        let bad: [&[u8]; 6] =
            [b"", b"ringlog-data 1", b"ringlog-data 0\n", b"1\n", b"ringlog-data x\n", b"\xff\n"];
        for content in bad {
            assert_eq!(check_data_format(content), Err(DataFormatFault::Damaged));
        }
    }
}
