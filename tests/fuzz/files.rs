//! Files of the data directory besides the rings: images, manifest, catalog, indexes.

use ringlog::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, PartitionIndex, ShardId, TopicId,
    TopicPartition,
};
use ringlog::journal::image::{Image, ImageWriter, encode_row};
use ringlog::journal::manifest::{Durability, Manifest, RingEntry, check_data_format};
use ringlog::journal::replay::Start;
use ringlog::journal::ring::JournalPoint;
use ringlog::log::aborted::AbortedIndex;
use ringlog::log::index::SegmentIndex;
use ringlog::log::layout::{SegmentFile, parse_partition_metadata};
use ringlog::metadata::records::{self, Record};
use ringlog::shard::empty_row;

use crate::allocation::within;
use crate::run;
use crate::sample::Choices;

fn topic(choices: &mut Choices<'_>) -> TopicId {
    let mut id = [0; 16];
    id.iter_mut().for_each(|byte| *byte = choices.byte());
    TopicId(id)
}

/// Rows become structures of up to a few times their size.
fn image_bytes_max(bytes: usize) -> usize {
    8_192 + 64 * bytes
}

#[test]
fn images() {
    run("images", |choices| {
        let mut writer = ImageWriter::new(BootNumber(choices.byte().into()), ShardId(0));
        for number in 0..choices.below(4) {
            let partition = PartitionIndex(number as i32);
            let mut row = empty_row(TopicPartition { topic: topic(choices), partition });
            for epoch in 0..choices.below(3) {
                row.epochs.push((LeaderEpoch(epoch as i32), Offset(epoch as i64 * 10)));
            }
            let mut row = encode_row(&row);
            // The checksum is taken over the damage too, so that it gets as far as the rows.
            if choices.chance(2) {
                choices.damage(&mut row);
            }
            writer.push_encoded(&row);
        }
        let start = Start {
            point: JournalPoint { position: 0, sequence: JournalSequence(1) },
            durable_through: JournalSequence(0),
        };
        let mut bytes = writer.finish(start, choices.chance(2));
        let decoded = within(image_bytes_max(bytes.len()), "an image", || Image::decode(&bytes));
        if let Ok(image) = decoded {
            assert_eq!(Image::decode(&image.encode()).expect("written here"), image);
        }
        choices.damage(&mut bytes);
        within(image_bytes_max(bytes.len()), "a damaged image", || {
            let _ = Image::decode(&bytes);
        });
    });
}

#[test]
fn manifests() {
    run("manifests", |choices| {
        let manifest = Manifest {
            boot: BootNumber(choices.byte().into()),
            durability: Durability::PowerLoss,
            kernel_boot_id: "0f2c".to_owned(),
            highest_epoch: LeaderEpoch(choices.byte().into()),
            highest_sequence: JournalSequence(choices.number() >> 8),
            rings: vec![RingEntry::new(BootNumber(3), ShardId(0), 4, 1 << 20)],
        };
        let mut bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).expect("written here"), manifest);
        choices.damage(&mut bytes);
        within(8_192 + 64 * bytes.len(), "a manifest", || {
            let _ = Manifest::decode(&bytes);
            let _ = check_data_format(&bytes);
        });
        let random = choices.rest();
        within(8_192 + 64 * random.len(), "a random manifest", || {
            let _ = Manifest::decode(random);
            let _ = check_data_format(random);
        });
    });
}

/// A frame of the catalog's log around any content.
fn catalog_frame(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let covered = [&length[..], content].concat();
    let crc = ringlog::batch::crc::crc32c(&covered);
    [&length[..], &crc.to_be_bytes(), content].concat()
}

#[test]
fn catalogs() {
    run("catalogs", |choices| {
        let groups: Vec<Vec<Record>> = (0..choices.below(4))
            .map(|_| {
                let ports = choices.bytes(3).into_iter().map(u16::from).collect();
                vec![
                    Record::BrokerPortsChosen { ports },
                    Record::TombstoneGone { id: topic(choices) },
                ]
            })
            .collect();
        let mut log = groups.iter().flat_map(|group| records::encode(group)).collect::<Vec<u8>>();
        let decoded = records::decode(&log).expect("written here");
        assert_eq!((decoded.groups, decoded.intact_bytes), (groups.clone(), log.len()));
        // Content that is wrong, in a frame that is right.
        if let Some(group) = groups.first() {
            let mut content = records::encode(group)[8..].to_vec();
            choices.damage(&mut content);
            log.extend(catalog_frame(&content));
        }
        let catalog_bytes_max = |bytes: usize| 8_192 + 256 * bytes;
        within(catalog_bytes_max(log.len()), "a catalog", || {
            let _ = records::decode(&log);
        });
        choices.damage(&mut log);
        within(catalog_bytes_max(log.len()), "a damaged catalog", || {
            let _ = records::decode(&log);
        });
    });
}

#[test]
fn indexes_and_names() {
    run("indexes and names", |choices| {
        let times = choices.bytes(48);
        let offsets = choices.rest();
        within(4_096 + 8 * (offsets.len() + times.len()), "indexes", || {
            let index = SegmentIndex::decode(Offset(5), offsets, &times);
            let _ = index.position_of(Offset(choices_offset(offsets)));
            let _ = index.position_of_time(17);
            let aborted = AbortedIndex::decode(offsets);
            assert!(aborted.encode().len() <= offsets.len());
            let _ = parse_partition_metadata(offsets);
            if let Ok(name) = std::str::from_utf8(offsets) {
                let _ = SegmentFile::parse(name);
            }
        });
    });
}

fn choices_offset(bytes: &[u8]) -> i64 {
    bytes.first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}
