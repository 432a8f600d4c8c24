//! The four codecs of record batches: bounded inflation as a stream, and compression.
//!
//! Owns the codec ids and what is read of each codec: gzip members, xerial or raw snappy, one LZ4
//! frame, zstd frames. Inflation gives out at most the agreed number of bytes and never allocates
//! for a length that the compressed bytes cannot hold; memory is one block (LZ4, snappy) or one
//! window (gzip, zstd). Compression writes what Kafka's clients write: xerial blocks of 32 KiB, LZ4
//! blocks of 64 KiB. The LZ4 library has a single level, so LZ4 levels are taken and ignored.
//! Source: Kafka's `Compression` classes.

use std::io::{self, Read, Write};

use bytes::buf::{Chain, Reader};
use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::stream::zio;
use zstd::zstd_safe::CParameter;

use super::contexts::{Compressing, Inflating};
use super::lz4::Frame;
use super::snappy::{SnappyFault, SnappyReader, XerialWriter};
use crate::limits::ZSTD_WINDOW_LOG_MAX;

/// A codec of record batches, by its id in the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Compression {
    /// Not compressed.
    None = 0,
    /// gzip.
    Gzip = 1,
    /// Snappy, in xerial blocks or raw.
    Snappy = 2,
    /// An LZ4 frame.
    Lz4 = 3,
    /// zstd.
    Zstd = 4,
}

impl Compression {
    /// The codec with this id; ids 5 to 7 have none.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Compression> {
        match id {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            2 => Some(Compression::Snappy),
            3 => Some(Compression::Lz4),
            4 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Id in the attributes of a batch.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Name as Kafka spells it in configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// What a topic's `compression.type` and level ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionTarget {
    /// Keep what the producer chose.
    Producer,
    /// Store uncompressed.
    Uncompressed,
    /// gzip at level 1 to 9; anything else means the default.
    Gzip(i32),
    /// Snappy.
    Snappy,
    /// LZ4; the level has no effect here.
    Lz4(i32),
    /// zstd at this level, clamped to what the library knows.
    Zstd(i32),
}

impl CompressionTarget {
    /// The target of a codec at Kafka's default level.
    #[must_use]
    pub fn of(codec: Compression) -> CompressionTarget {
        match codec {
            Compression::None => CompressionTarget::Uncompressed,
            Compression::Gzip => CompressionTarget::Gzip(-1),
            Compression::Snappy => CompressionTarget::Snappy,
            Compression::Lz4 => CompressionTarget::Lz4(LZ4_LEVEL_DEFAULT),
            Compression::Zstd => CompressionTarget::Zstd(ZSTD_LEVEL_DEFAULT),
        }
    }

    /// The codec of a batch that a producer sent with codec `source`.
    #[must_use]
    pub fn codec(self, source: Compression) -> Compression {
        match self {
            CompressionTarget::Producer => source,
            CompressionTarget::Uncompressed => Compression::None,
            CompressionTarget::Gzip(_) => Compression::Gzip,
            CompressionTarget::Snappy => Compression::Snappy,
            CompressionTarget::Lz4(_) => Compression::Lz4,
            CompressionTarget::Zstd(_) => Compression::Zstd,
        }
    }
}

/// Why compressed records do not inflate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InflateFault {
    /// The bytes are not what the codec writes.
    #[error("{} data is damaged: {detail}", .codec.name())]
    Damaged {
        /// The codec.
        codec: Compression,
        /// What the codec found.
        detail: String,
    },
    /// A zstd window that is larger than Kafka's own decoder takes, or one, or LZ4 blocks, that
    /// there is no memory for.
    #[error("asks for a larger window or block than is allowed")]
    WindowTooLarge,
    /// More bytes come out than agreed.
    #[error("inflates to more than the allowed number of bytes")]
    TooLarge,
}

/// Inflates as a stream.
pub struct Inflater {
    codec: Compression,
    source: Source,
    left: usize,
}

enum Source {
    Plain(Reader<Bytes>),
    Gzip(Box<MultiGzDecoder<Reader<Bytes>>>),
    Snappy(SnappyReader),
    Lz4 { decoder: Box<FrameDecoder<Reader<Chain<Bytes, Bytes>>>>, memory_bytes: usize },
    Zstd(zio::Reader<Reader<Bytes>, Inflating>),
    Ended,
}

impl Inflater {
    /// Over the compressed record bytes of a batch; gives out at most `limit_bytes`.
    ///
    /// # Errors
    /// [`InflateFault::Damaged`] if the codec cannot start.
    pub fn new(
        codec: Compression,
        compressed: Bytes,
        limit_bytes: usize,
    ) -> Result<Inflater, InflateFault> {
        let source = match codec {
            Compression::None => Source::Plain(compressed.reader()),
            Compression::Gzip => Source::Gzip(Box::new(MultiGzDecoder::new(compressed.reader()))),
            Compression::Snappy => Source::Snappy(SnappyReader::new(compressed)),
            Compression::Lz4 => {
                let Frame { head, blocks, memory_bytes } = Frame::open(compressed);
                let decoder = Box::new(FrameDecoder::new(head.chain(blocks).reader()));
                Source::Lz4 { decoder, memory_bytes }
            }
            Compression::Zstd => {
                let context = Inflating::take().and_then(|mut context| {
                    context.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                    Ok(context)
                });
                let context = context.map_err(|error| damaged(codec, &error))?;
                Source::Zstd(zio::Reader::new(compressed.reader(), context))
            }
        };
        Ok(Inflater { codec, source, left: limit_bytes })
    }

    /// Takes no more than about so much memory: what asks for a larger window, or for a larger
    /// block that has to be inflated whole, is refused when it is read.
    ///
    /// # Errors
    /// [`InflateFault::Damaged`] if the codec cannot start.
    pub fn within(mut self, memory_bytes: usize) -> Result<Inflater, InflateFault> {
        match &mut self.source {
            Source::Zstd(decoder) => decoder
                .operation_mut()
                .window_log_max(window_log_within(memory_bytes))
                .map_err(|error| damaged(Compression::Zstd, &error))?,
            // Two blocks are there at once, where one waits in a lane beside another.
            Source::Snappy(reader) => reader.block_bytes_max = memory_bytes / 2,
            Source::Lz4 { memory_bytes: needed, .. } if *needed > memory_bytes => {
                return Err(InflateFault::WindowTooLarge);
            }
            _ => {}
        }
        Ok(self)
    }

    /// Fills the front of `buffer`; 0 means the end, which is final.
    ///
    /// # Errors
    /// Either [`InflateFault`]; after one, the end follows.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, InflateFault> {
        // One byte more than agreed may come out, so that its presence is noticed.
        let room = buffer.len().min(self.left.saturating_add(1));
        let window = buffer.get_mut(..room).unwrap_or(&mut []);
        let limit = self.left;
        let read = match &mut self.source {
            Source::Plain(reader) => reader.read(window),
            Source::Gzip(decoder) => decoder.read(window),
            Source::Snappy(reader) => match reader.read(window, limit) {
                Ok(read) => Ok(read),
                Err(SnappyFault::Damaged(detail)) => Err(io::Error::other(detail)),
                Err(SnappyFault::TooLarge) => {
                    self.source = Source::Ended;
                    return Err(InflateFault::TooLarge);
                }
            },
            Source::Lz4 { decoder, .. } => decoder.read(window),
            Source::Zstd(decoder) => decoder.read(window),
            Source::Ended => Ok(0),
        };
        let result = match read {
            Ok(read) if read > self.left => Err(InflateFault::TooLarge),
            Ok(read) => {
                self.left -= read;
                Ok(read)
            }
            Err(error) => Err(damaged(self.codec, &error)),
        };
        // The end is final: one LZ4 frame is all, and no codec is asked again after a fault.
        if room > 0 && !matches!(result, Ok(1..)) {
            self.source = Source::Ended;
        }
        result
    }

    /// Memory that it will take, as far as that is known before anything is inflated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.source {
            Source::Lz4 { memory_bytes, .. } => *memory_bytes,
            _ => 0,
        }
    }

    /// Bytes that may still come out.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Inflates all of `compressed`, at most to `limit_bytes`. Shares the memory if the codec is none.
///
/// # Errors
/// Either [`InflateFault`].
pub fn inflate(
    codec: Compression,
    compressed: &Bytes,
    limit_bytes: usize,
) -> Result<Bytes, InflateFault> {
    if codec == Compression::None {
        if compressed.len() > limit_bytes {
            return Err(InflateFault::TooLarge);
        }
        return Ok(compressed.clone());
    }
    let mut inflater = Inflater::new(codec, compressed.clone(), limit_bytes)?;
    let mut inflated = Vec::new();
    let mut buffer = vec![0; INFLATE_BUFFER_BYTES];
    loop {
        let read = inflater.read(&mut buffer)?;
        if read == 0 {
            return Ok(Bytes::from(inflated));
        }
        inflated.extend_from_slice(buffer.get(..read).unwrap_or(&[]));
    }
}

/// Compresses `records` in one go. [`CompressionTarget::Producer`] leaves them as they are.
///
/// # Errors
/// Only if the codec cannot get memory.
pub fn compress(target: CompressionTarget, records: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflater = Deflater::new(target, Vec::new(), usize::MAX)?;
    deflater.write(records)?;
    Ok(deflater.finish()?.bytes)
}

/// Compresses as a stream.
pub struct Deflater {
    sink: Sink,
}

enum Sink {
    Plain(CappedVec),
    Gzip(GzEncoder<CappedVec>),
    Snappy(Box<XerialWriter>),
    Lz4(Box<FrameEncoder<CappedVec>>),
    /// With its level.
    Zstd(zio::Writer<CappedVec, Compressing>, i32),
}

/// What a [`Deflater`] wrote.
pub struct Deflated {
    /// The prefix and the compressed bytes, cut somewhere above the limit if they exceed it.
    pub bytes: Vec<u8>,
    /// Their whole length, also if they were cut.
    pub total_bytes: usize,
}

impl Deflater {
    /// Appends compressed bytes to `prefix`. What exceeds `limit_bytes`, prefix included, is
    /// counted but not kept.
    ///
    /// # Errors
    /// Only if the codec cannot get memory.
    pub fn new(
        target: CompressionTarget,
        prefix: Vec<u8>,
        limit_bytes: usize,
    ) -> io::Result<Deflater> {
        let out = CappedVec { total: prefix.len(), bytes: prefix, limit: limit_bytes };
        let sink = match target {
            CompressionTarget::Producer | CompressionTarget::Uncompressed => Sink::Plain(out),
            CompressionTarget::Gzip(level) => Sink::Gzip(GzEncoder::new(out, gzip_level(level))),
            CompressionTarget::Snappy => Sink::Snappy(Box::new(XerialWriter::new(out)?)),
            CompressionTarget::Lz4(_) => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                Sink::Lz4(Box::new(FrameEncoder::with_frame_info(info, out)))
            }
            CompressionTarget::Zstd(level) => {
                let range = zstd::compression_level_range();
                let level = level.clamp(*range.start(), *range.end());
                Sink::Zstd(zio::Writer::new(out, Compressing::take(level)?), level)
            }
        };
        Ok(Deflater { sink })
    }

    /// Takes no more than about so much memory, at the cost of a worse ratio at high levels.
    ///
    /// # Errors
    /// Only if the codec cannot get memory.
    pub fn within(mut self, memory_bytes: usize) -> io::Result<Deflater> {
        if let Sink::Zstd(encoder, level) = &mut self.sink {
            let log = memory_bytes.max(1).ilog2();
            let is_much = *level > ZSTD_LEVEL_SMALL_MAX && log < ZSTD_MEMORY_LOG_ENOUGH;
            if is_much || *level > ZSTD_LEVEL_ORDINARY_MAX {
                let log = log.min(ZSTD_MEMORY_LOG_ENOUGH + 2);
                // A quarter for the window, and one each for two tables of four bytes an entry.
                let (window, table) =
                    (log.saturating_sub(2).max(17), log.saturating_sub(4).max(15));
                let context = encoder.operation_mut();
                context.set_parameter(CParameter::WindowLog(window))?;
                context.set_parameter(CParameter::HashLog(table))?;
                context.set_parameter(CParameter::ChainLog(table))?;
            }
        }
        Ok(self)
    }

    /// Takes the next uncompressed bytes.
    ///
    /// # Errors
    /// Only if the codec cannot get memory.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(out) => out.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::Snappy(writer) => writer.write(bytes),
            Sink::Lz4(encoder) => encoder.write_all(bytes),
            Sink::Zstd(encoder, _) => encoder.write_all(bytes),
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// Only if the codec cannot get memory.
    pub fn finish(self) -> io::Result<Deflated> {
        let out = match self.sink {
            Sink::Plain(out) => out,
            Sink::Gzip(encoder) => encoder.finish()?,
            Sink::Snappy(writer) => writer.finish()?,
            Sink::Lz4(encoder) => encoder.finish().map_err(io::Error::other)?,
            Sink::Zstd(mut encoder, _) => {
                encoder.finish()?;
                encoder.into_inner().0
            }
        };
        Ok(Deflated { bytes: out.bytes, total_bytes: out.total })
    }
}

pub(super) struct CappedVec {
    bytes: Vec<u8>,
    limit: usize,
    total: usize,
}

impl Write for CappedVec {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.total <= self.limit {
            self.bytes.extend_from_slice(bytes);
        }
        self.total = self.total.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The largest zstd window that fits into so much memory, as the power of two it is.
#[must_use]
pub fn window_log_within(memory_bytes: usize) -> u32 {
    memory_bytes.max(1).ilog2().clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX)
}

fn damaged(codec: Compression, error: &io::Error) -> InflateFault {
    let detail = error.to_string();
    if codec == Compression::Zstd && detail == ZSTD_WINDOW_TOO_LARGE {
        return InflateFault::WindowTooLarge;
    }
    InflateFault::Damaged { codec, detail }
}

/// What zstd says of a frame whose window is over its limit.
const ZSTD_WINDOW_TOO_LARGE: &str = "Frame requires too much memory for decoding";

fn gzip_level(level: i32) -> flate2::Compression {
    match u32::try_from(level) {
        Ok(level @ 1..=9) => flate2::Compression::new(level),
        _ => flate2::Compression::default(),
    }
}

/// Bytes inflated at once.
pub(super) const INFLATE_BUFFER_BYTES: usize = 64 * 1024;

/// The smallest window that there is.
const ZSTD_WINDOW_LOG_MIN: u32 = 10;

/// Levels up to here take a few megabytes.
const ZSTD_LEVEL_SMALL_MAX: i32 = 3;

/// Levels up to here take less than two to the power of [`ZSTD_MEMORY_LOG_ENOUGH`] bytes for each
/// of their tables; those beyond, hundreds of megabytes.
const ZSTD_LEVEL_ORDINARY_MAX: i32 = 19;
const ZSTD_MEMORY_LOG_ENOUGH: u32 = 25;

const LZ4_LEVEL_DEFAULT: i32 = 9;
const ZSTD_LEVEL_DEFAULT: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Compression; 4] =
        [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    fn mixed(length: usize) -> Vec<u8> {
        (0..length).map(|n| ((n / 7) ^ (n * n / 1000)) as u8).collect()
    }

    fn inflated(codec: Compression, bytes: &[u8], limit: usize) -> Result<Vec<u8>, InflateFault> {
        inflate(codec, &Bytes::copy_from_slice(bytes), limit).map(|bytes| bytes.to_vec())
    }

    fn raw_snappy(bytes: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(bytes).expect("compresses")
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        for codec in CODECS {
            for length in [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 300_000] {
                let records = mixed(length);
                let packed = compress(CompressionTarget::of(codec), &records).expect("compresses");
                assert_eq!(inflated(codec, &packed, length), Ok(records), "{codec:?} {length}");
            }
        }
    }

    #[test]
    fn memory_bounds_windows_and_whole_blocks() {
        assert_eq!([0, 1 << 20, (8 << 20) - 1, 8 << 20].map(window_log_within), [10, 20, 22, 23]);
        assert_eq!(window_log_within(usize::MAX), ZSTD_WINDOW_LOG_MAX);
        let records = mixed(300_000);
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
        encoder.window_log(20).expect("a window");
        encoder.write_all(&records).expect("memory");
        let packed = Bytes::from(encoder.finish().expect("memory"));
        let all = |codec, packed: &Bytes, memory_bytes| {
            let inflater = Inflater::new(codec, packed.clone(), records.len()).expect("starts");
            let mut inflater = inflater.within(memory_bytes).expect("starts");
            let mut buffer = vec![0; records.len() + 1];
            let mut length = 0;
            loop {
                match inflater.read(&mut buffer[length..])? {
                    0 => return Ok(buffer[..length] == records),
                    read => length += read,
                }
            }
        };
        assert_eq!(all(Compression::Zstd, &packed, 1 << 20), Ok(true));
        assert_eq!(
            all(Compression::Zstd, &packed, (1 << 20) - 1),
            Err(InflateFault::WindowTooLarge)
        );
        let raw = Bytes::from(raw_snappy(&records));
        assert_eq!(all(Compression::Snappy, &raw, 2 * records.len()), Ok(true));
        let refused = all(Compression::Snappy, &raw, 2 * records.len() - 1);
        assert_eq!(refused, Err(InflateFault::TooLarge));
        let blocks = Bytes::from(compress(CompressionTarget::Snappy, &records).expect("memory"));
        assert_eq!(all(Compression::Snappy, &blocks, 1 << 16), Ok(true), "a block at a time");
    }

    #[test]
    fn high_levels_stay_within_the_memory_they_get() {
        let records = mixed(3_000_000);
        for level in [3, 4, 19, 22] {
            let target = CompressionTarget::Zstd(level);
            let deflater = Deflater::new(target, Vec::new(), usize::MAX).expect("starts");
            let mut deflater = deflater.within(8 << 20).expect("starts");
            deflater.write(&records).expect("writes");
            let packed = Bytes::from(deflater.finish().expect("ends").bytes);
            let inflater = Inflater::new(Compression::Zstd, packed, records.len());
            let mut inflater = inflater.and_then(|of| of.within(4 << 20)).expect("starts");
            let mut buffer = vec![0; 1 << 16];
            let mut inflated = Vec::new();
            while let Some(read @ 1..) = Some(inflater.read(&mut buffer).expect("sound")) {
                inflated.extend_from_slice(&buffer[..read]);
            }
            assert!(inflated == records, "level {level}");
        }
    }

    #[test]
    fn levels_are_taken() {
        let records = mixed(100_000);
        let targets = (-1..=9)
            .map(CompressionTarget::Gzip)
            .chain([1, 9, 17].map(CompressionTarget::Lz4))
            .chain([i32::MIN, -5, 1, 19, 22, i32::MAX].map(CompressionTarget::Zstd));
        for target in targets {
            let packed = compress(target, &records).expect("compresses");
            let codec = target.codec(Compression::None);
            assert_eq!(inflated(codec, &packed, 100_000).as_ref(), Ok(&records), "{target:?}");
        }
    }

    #[test]
    fn one_byte_above_the_limit_is_too_large() {
        for codec in CODECS {
            let packed = compress(CompressionTarget::of(codec), &mixed(1000)).expect("compresses");
            assert_eq!(inflated(codec, &packed, 999), Err(InflateFault::TooLarge), "{codec:?}");
        }
        assert_eq!(inflated(Compression::None, &[0; 10], 9), Err(InflateFault::TooLarge));
        assert_eq!(inflated(Compression::None, &[7; 10], 10), Ok(vec![7; 10]));
    }

    #[test]
    fn snappy_is_read_raw_and_in_blocks() {
        let records = mixed(100_000);
        let raw = raw_snappy(&records);
        assert_eq!(inflated(Compression::Snappy, &raw, 100_000), Ok(records.clone()));
        let blocks = compress(CompressionTarget::Snappy, &records).expect("compresses");
        assert_eq!(
            blocks[..16],
            [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1]
        );
        // Streams one after the other, as a writer that was flushed leaves them.
        let twice = [&blocks[..], &blocks].concat();
        let expected = [&records[..], &records].concat();
        assert_eq!(inflated(Compression::Snappy, &twice, 200_000), Ok(expected));
    }

    #[test]
    fn snappy_lengths_are_not_believed() {
        let check = |bytes: &[u8], detail: &str| {
            let expected =
                InflateFault::Damaged { codec: Compression::Snappy, detail: detail.to_owned() };
            assert_eq!(inflated(Compression::Snappy, bytes, 1 << 30), Err(expected));
        };
        // A raw block that claims 512 MiB in six bytes.
        check(&[0x80, 0x80, 0x80, 0x80, 0x02, 0], "6 bytes cannot inflate to 536870912");
        let header = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
        let with = |tail: &[u8]| [&header[..], tail].concat();
        check(&with(&[0, 0, 1]), "block length None");
        check(&with(&[0, 0, 0, 9, 1]), "cut block");
        check(&header[..15], "cut xerial header");
        let mut version_0 = with(&[]);
        version_0[11] = 0;
        check(&version_0, "xerial version Some(0)");
        assert!(inflated(Compression::Snappy, &with(&[0xFF; 4]), 100).is_err());
        assert_eq!(inflated(Compression::Snappy, &with(&[]), 100), Ok(Vec::new()));
    }

    #[test]
    fn gzip_members_and_linked_lz4_blocks_are_read() {
        let records = mixed(200_000);
        let member = compress(CompressionTarget::Gzip(6), &records).expect("compresses");
        let twice = [&member[..], &member].concat();
        let expected = [&records[..], &records].concat();
        assert_eq!(inflated(Compression::Gzip, &twice, 400_000), Ok(expected));
        let info = FrameInfo::new()
            .block_mode(BlockMode::Linked)
            .block_size(BlockSize::Max64KB)
            .content_checksum(true)
            .block_checksums(true);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&records).expect("compresses");
        let frame = encoder.finish().expect("compresses");
        assert_eq!(inflated(Compression::Lz4, &frame, 200_000), Ok(records));
    }

    #[test]
    fn lz4_frames_are_what_kafka_writes() {
        let frame = compress(CompressionTarget::Lz4(9), b"").expect("compresses");
        // Magic, version 1 with independent blocks, 64 KiB blocks, header checksum, end mark.
        assert_eq!(frame, [0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0]);
    }

    #[test]
    fn cut_streams_are_not_silently_short() {
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Zstd] {
            let packed = compress(CompressionTarget::of(codec), &mixed(5000)).expect("compresses");
            let cut = inflated(codec, &packed[..packed.len() / 2], 5000);
            assert!(matches!(cut, Err(InflateFault::Damaged { .. })), "{codec:?}");
        }
    }

    #[test]
    fn a_capped_stream_counts_what_it_drops() {
        let mut deflater =
            Deflater::new(CompressionTarget::Uncompressed, vec![0; 3], 10).expect("starts");
        for _ in 0..100 {
            deflater.write(&[1; 4]).expect("writes");
        }
        let deflated = deflater.finish().expect("ends");
        assert_eq!((deflated.bytes.len(), deflated.total_bytes), (11, 403));
    }
}
