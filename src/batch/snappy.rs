//! Snappy as Kafka's clients frame it: xerial blocks, or one raw block.
//!
//! Owns the framing; the blocks are the library's. Must never make room for a length that the
//! compressed bytes cannot hold. Raw snappy has no blocks and is inflated whole, which its ratio of
//! at most [`SNAPPY_RATIO_MAX`] bounds. Source: snappy-java's `SnappyInputStream` and
//! `SnappyOutputStream`.

use std::io::{self, Write};

use bytes::{Buf, Bytes};

use super::compression::CappedVec;

/// Why snappy data does not inflate.
pub enum SnappyFault {
    /// The bytes are not what the codec writes, and why.
    Damaged(String),
    /// A block is larger than agreed.
    TooLarge,
}

/// Inflates as a stream.
pub struct SnappyReader {
    input: Bytes,
    block: Vec<u8>,
    given: usize,
    is_raw: bool,
    /// Largest block that is taken.
    pub block_bytes_max: usize,
}

impl SnappyReader {
    /// Over the compressed bytes.
    pub fn new(input: Bytes) -> SnappyReader {
        let is_raw = !input.starts_with(&XERIAL_MAGIC);
        let block_bytes_max = usize::MAX;
        SnappyReader { input, block: Vec::new(), given: 0, is_raw, block_bytes_max }
    }

    /// Fills the front of `buffer`, from blocks of at most `limit` bytes; 0 means the end.
    ///
    /// # Errors
    /// Either [`SnappyFault`].
    pub fn read(&mut self, buffer: &mut [u8], limit: usize) -> Result<usize, SnappyFault> {
        while self.given >= self.block.len() {
            if self.input.is_empty() {
                return Ok(0);
            }
            if self.is_raw {
                let whole = self.input.split_off(0);
                self.inflate_block(&whole, limit)?;
            } else if self.input.starts_with(&XERIAL_MAGIC) {
                // Concatenated streams repeat the header.
                self.skip_header()?;
            } else {
                let block = self.next_block()?;
                self.inflate_block(&block, limit)?;
            }
        }
        let ready = self.block.get(self.given..).unwrap_or(&[]);
        let given = ready.len().min(buffer.len());
        let (Some(from), Some(into)) = (ready.get(..given), buffer.get_mut(..given)) else {
            return Ok(0);
        };
        into.copy_from_slice(from);
        self.given += given;
        Ok(given)
    }

    fn skip_header(&mut self) -> Result<(), SnappyFault> {
        if self.input.len() < XERIAL_HEADER_BYTES {
            return Err(SnappyFault::Damaged("cut xerial header".to_owned()));
        }
        let header = self.input.split_to(XERIAL_HEADER_BYTES);
        let version = header.get(8..).and_then(|rest| rest.first_chunk::<4>());
        match version.map(|bytes| i32::from_be_bytes(*bytes)) {
            Some(version) if version >= XERIAL_VERSION => Ok(()),
            version => Err(SnappyFault::Damaged(format!("xerial version {version:?}"))),
        }
    }

    fn next_block(&mut self) -> Result<Bytes, SnappyFault> {
        let length = self.input.first_chunk::<4>().copied();
        let length = length.map(i32::from_be_bytes);
        let Some(Ok(length)) = length.map(usize::try_from) else {
            return Err(SnappyFault::Damaged(format!("block length {length:?}")));
        };
        self.input.advance(4);
        if length > self.input.len() {
            return Err(SnappyFault::Damaged("cut block".to_owned()));
        }
        Ok(self.input.split_to(length))
    }

    fn inflate_block(&mut self, block: &[u8], limit: usize) -> Result<(), SnappyFault> {
        self.block.clear();
        self.given = 0;
        let damaged = |error: snap::Error| SnappyFault::Damaged(error.to_string());
        let length = snap::raw::decompress_len(block).map_err(damaged)?;
        if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(SnappyFault::Damaged(format!(
                "{} bytes cannot inflate to {length}",
                block.len()
            )));
        }
        if length > limit.min(self.block_bytes_max) {
            return Err(SnappyFault::TooLarge);
        }
        self.block.resize(length, 0);
        let written =
            snap::raw::Decoder::new().decompress(block, &mut self.block).map_err(damaged)?;
        self.block.truncate(written);
        Ok(())
    }
}

/// Compresses as a stream, as Kafka's clients do.
pub struct XerialWriter {
    out: CappedVec,
    pending: Vec<u8>,
    encoder: snap::raw::Encoder,
    block: Vec<u8>,
}

impl XerialWriter {
    /// Writes the header.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: CappedVec) -> io::Result<XerialWriter> {
        out.write_all(&XERIAL_MAGIC)?;
        out.write_all(&XERIAL_VERSION.to_be_bytes())?;
        out.write_all(&XERIAL_VERSION.to_be_bytes())?;
        Ok(XerialWriter {
            out,
            pending: Vec::with_capacity(XERIAL_BLOCK_BYTES),
            encoder: snap::raw::Encoder::new(),
            block: vec![0; snap::raw::max_compress_len(XERIAL_BLOCK_BYTES)],
        })
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = XERIAL_BLOCK_BYTES.saturating_sub(self.pending.len());
            let (now, later) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            self.pending.extend_from_slice(now);
            rest = later;
            if self.pending.len() >= XERIAL_BLOCK_BYTES {
                self.flush_block()?;
            }
        }
        Ok(())
    }

    fn flush_block(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let length =
            self.encoder.compress(&self.pending, &mut self.block).map_err(io::Error::other)?;
        self.pending.clear();
        let framed = u32::try_from(length).map_err(io::Error::other)?;
        self.out.write_all(&framed.to_be_bytes())?;
        self.out.write_all(self.block.get(..length).unwrap_or(&[]))
    }

    /// Writes what is pending; gives all back.
    ///
    /// # Errors
    /// What `out` says.
    pub fn finish(mut self) -> io::Result<CappedVec> {
        self.flush_block()?;
        Ok(self.out)
    }
}

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_VERSION: i32 = 1;
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// A snappy copy of three bytes gives at most 64, so this is above any real ratio.
const SNAPPY_RATIO_MAX: usize = 22;
