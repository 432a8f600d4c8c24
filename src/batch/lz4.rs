//! How much memory the blocks of an LZ4 frame need, read from the frame before it is inflated.
//!
//! Owns the frame descriptor as it is given to the decoder. The decoder makes room for the largest
//! block that the descriptor allows and fills it with zeros first. Clients in Go declare blocks of
//! 4 MiB, however little they send; so where the blocks that are there turn out smaller, a smaller
//! size is declared in their place. Must never judge a frame: one that is not as the format says
//! is handed on as it is, for the decoder to refuse. Invariant: what inflates under the descriptor
//! that was sent inflates to the same bytes under the one that is given on.
//! Source: the LZ4 frame format 1.6.4 and block format.

use bytes::{Buf, Bytes, BytesMut};
use xxhash_rust::xxh32::xxh32;

use crate::limits::VALIDATE_SLICE_BYTES;

/// A frame that is to be inflated.
pub struct Frame {
    /// The frame, its descriptor perhaps another.
    pub head: Bytes,
    /// What follows the descriptor.
    pub blocks: Bytes,
    /// Most bytes that the decoder holds: room for blocks, and a compressed block.
    pub memory_bytes: usize,
}

impl Frame {
    /// Reads the descriptor, and the blocks if a smaller size may do for them.
    #[must_use]
    pub fn open(mut frame: Bytes) -> Frame {
        let Some(descriptor) = Descriptor::read(&frame) else {
            // Whatever it is, there are no blocks in it that the decoder would take.
            return Frame { head: Bytes::new(), blocks: frame, memory_bytes: 0 };
        };
        let mut head = frame.split_to(descriptor.bytes);
        let mut size_id = descriptor.size_id;
        let largest = largest_block(&frame, &descriptor);
        if let Some(largest) = largest {
            let fits = |id: &u8| block_bytes(*id) >= largest.inflated;
            size_id = (SIZE_ID_MIN..size_id).find(fits).unwrap_or(size_id);
        }
        if size_id != descriptor.size_id {
            head = with_size(&head, size_id);
        }
        let block = block_bytes(size_id);
        let room = if descriptor.is_linked { 2 * block + WINDOW_BYTES } else { block };
        let compressed = largest.map_or(frame.len().min(block), |largest| largest.compressed);
        Frame { head, blocks: frame, memory_bytes: room + compressed }
    }
}

/// What the descriptor says, as far as it matters here.
struct Descriptor {
    /// Magic and checksum included.
    bytes: usize,
    is_linked: bool,
    has_block_checksums: bool,
    size_id: u8,
}

impl Descriptor {
    /// `None` if it is not one that the decoder takes.
    fn read(frame: &[u8]) -> Option<Descriptor> {
        let rest = frame.strip_prefix(&MAGIC)?;
        let [flags, sizes, ..] = *rest.first_chunk::<2>()?;
        let content_size = if flags & CONTENT_SIZE_BIT != 0 { 8 } else { 0 };
        let dictionary = if flags & DICTIONARY_BIT != 0 { 4 } else { 0 };
        let (fields, after) = rest.split_at_checked(2 + content_size + dictionary)?;
        let size_id = sizes >> SIZE_ID_SHIFT;
        let is_good = (SIZE_ID_MIN..=SIZE_ID_MAX).contains(&size_id)
            && after.first() == Some(&checksum(fields));
        is_good.then_some(Descriptor {
            bytes: MAGIC.len() + fields.len() + 1,
            is_linked: flags & INDEPENDENT_BIT == 0,
            has_block_checksums: flags & BLOCK_CHECKSUMS_BIT != 0,
            size_id,
        })
    }
}

/// The largest there are among the blocks of a frame.
#[derive(Clone, Copy, Default)]
struct Largest {
    inflated: usize,
    compressed: usize,
}

/// `None` if it is not known, or not worth a look: a long walk, or blocks of the smallest size.
fn largest_block(blocks: &[u8], descriptor: &Descriptor) -> Option<Largest> {
    if descriptor.size_id == SIZE_ID_MIN || blocks.len() > VALIDATE_SLICE_BYTES {
        return None;
    }
    let mut rest = blocks;
    let mut largest = Largest::default();
    loop {
        let size = rest.try_get_u32_le().ok()?;
        if size == END_MARK {
            return Some(largest);
        }
        let length = usize::try_from(size & !STORED_BIT).ok()?;
        let (block, after) = rest.split_at_checked(length)?;
        if size & STORED_BIT != 0 {
            largest.inflated = largest.inflated.max(length);
        } else {
            largest.inflated = largest.inflated.max(inflated_bytes(block)?);
            largest.compressed = largest.compressed.max(length);
        }
        let checksum_bytes = if descriptor.has_block_checksums { 4 } else { 0 };
        rest = after.get(checksum_bytes..)?;
    }
}

/// Bytes to which a block inflates, by its lengths alone; `None` if they do not end with it.
fn inflated_bytes(block: &[u8]) -> Option<usize> {
    let mut rest = block;
    let mut inflated = 0_usize;
    loop {
        let token = take_byte(&mut rest)?;
        let literals = length(token >> 4, &mut rest)?;
        rest = rest.get(literals..)?;
        inflated = inflated.checked_add(literals)?;
        // The last sequence has literals only.
        if rest.is_empty() {
            return Some(inflated);
        }
        rest = rest.get(OFFSET_BYTES..)?;
        let matched = length(token & LENGTH_MAX, &mut rest)?;
        inflated = inflated.checked_add(matched)?.checked_add(MATCH_BYTES_MIN)?;
    }
}

/// A length that starts in a token; 15 and 255 say that it goes on.
fn length(in_token: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(in_token);
    let mut goes_on = in_token == LENGTH_MAX;
    while goes_on {
        let byte = take_byte(rest)?;
        length += usize::from(byte);
        goes_on = byte == u8::MAX;
    }
    Some(length)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    Some(*first)
}

/// The descriptor with another size of blocks, and the checksum that belongs to it.
fn with_size(head: &[u8], size_id: u8) -> Bytes {
    let mut head = BytesMut::from(head);
    if let [_, _, _, _, fields @ .., last] = &mut head[..] {
        if let Some(sizes) = fields.get_mut(1) {
            *sizes = *sizes & RESERVED_BITS | size_id << SIZE_ID_SHIFT;
        }
        *last = checksum(fields);
    }
    head.freeze()
}

/// Second byte of the hash of the fields between magic and checksum.
fn checksum(fields: &[u8]) -> u8 {
    xxh32(fields, 0).to_le_bytes()[1]
}

/// Bytes of a block by the number that the descriptor has for them: 64 KiB to 4 MiB.
fn block_bytes(size_id: u8) -> usize {
    1 << (8 + 2 * u32::from(size_id))
}

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
const INDEPENDENT_BIT: u8 = 1 << 5;
const BLOCK_CHECKSUMS_BIT: u8 = 1 << 4;
const CONTENT_SIZE_BIT: u8 = 1 << 3;
const DICTIONARY_BIT: u8 = 1;
const SIZE_ID_SHIFT: u8 = 4;
/// Beside the size; the decoder judges them.
const RESERVED_BITS: u8 = 0x0F;
const SIZE_ID_MIN: u8 = 4;
const SIZE_ID_MAX: u8 = 7;
const END_MARK: u32 = 0;
/// Of a block's size: its bytes are not compressed.
const STORED_BIT: u32 = 1 << 31;
const LENGTH_MAX: u8 = 15;
const OFFSET_BYTES: usize = 2;
const MATCH_BYTES_MIN: usize = 4;
/// How far back a linked block reaches.
const WINDOW_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::task::Poll;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
    use proptest::prelude::*;

    use super::*;
    use crate::batch::build::{BatchBuilder, finish_batch};
    use crate::batch::{
        BatchHeader, Compression, CompressionTarget, HEADER_BYTES, ValidateRules, Validator,
    };
    use crate::limits::INFLATION_ORDINARY_PART;
    use crate::metrics::Limit;

    const NOW_MS: i64 = 1_700_000_000_000;

    const SIZES: [BlockSize; 4] =
        [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB];

    fn framed(info: FrameInfo, content: &[u8]) -> Bytes {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(content).expect("memory");
        Bytes::from(encoder.finish().expect("memory"))
    }

    fn inflated(frame: &Frame) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let reader = frame.head.clone().chain(frame.blocks.clone()).reader();
        FrameDecoder::new(reader).read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn a_small_frame_of_large_blocks_needs_little_memory() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
        let content = vec![7; 10_000];
        let frame = Frame::open(framed(info, &content));
        assert!(frame.memory_bytes < (64 << 10) + 100, "{}", frame.memory_bytes);
        assert_eq!(inflated(&frame).expect("a good frame"), content);
    }

    #[test]
    fn a_bomb_of_large_blocks_is_told_by_their_size() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB);
        let frame = Frame::open(framed(info.clone(), &vec![0; 9 << 20]));
        assert!((4 << 20..5 << 20).contains(&frame.memory_bytes), "{}", frame.memory_bytes);
        let frame = Frame::open(framed(info.block_mode(BlockMode::Linked), &vec![0; 9 << 20]));
        assert!((8 << 20..9 << 20).contains(&frame.memory_bytes), "{}", frame.memory_bytes);
    }

    #[test]
    fn a_wrong_checksum_is_left_for_the_decoder_to_find() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB);
        let mut damaged = BytesMut::from(&framed(info, b"records")[..]);
        damaged[6] ^= 1;
        let frame = Frame::open(damaged.clone().freeze());
        assert_eq!(frame.blocks, damaged);
        assert!(inflated(&frame).is_err());
    }

    /// Zeros in LZ4 blocks of 4 MiB.
    fn lz4_in_large_blocks(value_bytes: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new(CompressionTarget::Producer);
        builder.push(NOW_MS, None, Some(&vec![0; value_bytes]), &[]);
        let plain = builder.finish();
        let info = FrameInfo::new().block_size(BlockSize::Max4MB);
        let mut encoder = FrameEncoder::with_frame_info(info, vec![0; HEADER_BYTES]);
        encoder.write_all(&plain[HEADER_BYTES..]).expect("memory");
        let mut header = BatchHeader::read(&plain).expect("a whole batch");
        header.attributes |= i16::from(Compression::Lz4.id());
        finish_batch(header, encoder.finish().expect("memory"))
    }

    #[test]
    fn large_lz4_blocks_are_told_before_they_take_memory() {
        let start = |value_bytes, memory_bytes| {
            let batch = Bytes::from(lz4_in_large_blocks(value_bytes));
            Validator::start(Some(batch), &ValidateRules::DEFAULT, NOW_MS).within(memory_bytes)
        };
        let needed = (4 << 20)..(5 << 20);
        let mut large = start(20 << 20, needed.end);
        assert!(large.step(64 << 20).is_pending(), "nothing is inflated yet");
        assert!(needed.contains(&large.inflation_bytes()), "{} bytes", large.inflation_bytes());
        assert!(large.step(64 << 20).is_ready());
        // With memory enough there is no reason to wait.
        let mut roomy = start(20 << 20, needed.end * INFLATION_ORDINARY_PART);
        assert!(roomy.step(64 << 20).is_ready());
        let mut small = start(10_000, needed.end);
        assert!(small.step(1 << 20).is_ready());
        let Poll::Ready(Err(refusal)) = start(20 << 20, needed.start).step(1 << 20) else {
            panic!("there is no memory for it")
        };
        assert_eq!(refusal.limit(), Some(Limit::InflationWindow));
    }

    proptest! {
        #[test]
        fn the_same_bytes_come_out(
            size in 0_usize..4,
            is_linked in any::<bool>(),
            checksums in any::<[bool; 2]>(),
            says_size in any::<bool>(),
            run in 1_usize..300,
            noise in proptest::collection::vec(any::<u8>(), 1..300),
            repeats in 0_usize..1_500,
        ) {
            let mut content = Vec::new();
            for n in 0..repeats {
                content.extend(std::iter::repeat_n(n as u8, run));
                content.extend(&noise[..n % noise.len()]);
            }
            let info = FrameInfo::new()
                .block_size(SIZES[size])
                .block_mode(if is_linked { BlockMode::Linked } else { BlockMode::Independent })
                .block_checksums(checksums[0])
                .content_checksum(checksums[1])
                .content_size(says_size.then_some(content.len() as u64));
            let sent = framed(info, &content);
            let frame = Frame::open(sent.clone());
            let largest = content.len().min(block_bytes(SIZE_ID_MIN + size as u8));
            prop_assert!(inflated(&frame).expect("a good frame") == content);
            let room = frame.memory_bytes - sent.len().min(frame.memory_bytes);
            prop_assert!(room <= 2 * (4 * largest.max(64 << 10)) + WINDOW_BYTES);
        }

        #[test]
        fn what_is_refused_is_refused_still(
            at in any::<prop::sample::Index>(),
            by in 1_u8..,
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let info = FrameInfo::new().block_size(BlockSize::Max1MB).content_checksum(true);
            let content: Vec<u8> = (0..2_000_u32).flat_map(|n| (n / 9).to_le_bytes()).collect();
            let mut sent = framed(info, &content).to_vec();
            if is_cut {
                sent.truncate(cut.index(sent.len()));
            } else {
                let at = at.index(sent.len());
                sent[at] ^= by;
            }
            let plain = Frame { head: Bytes::new(), blocks: sent.clone().into(), memory_bytes: 0 };
            let expected = inflated(&plain).ok();
            prop_assert_eq!(inflated(&Frame::open(Bytes::from(sent))).ok(), expected);
        }
    }
}
