//! Splits a byte stream into frames: a big-endian 32-bit length, then that many bytes.
//!
//! Owns the length rule and how much a reader may reserve for the frame in progress. Must never
//! trust a length prefix further than bytes have arrived: a read asks for no more than is there,
//! and the buffer has room for [`FRAME_ROOM_FACTOR`] times as much, so a lying 100 MB prefix costs
//! nothing. A fault ends the connection: after it the position of the next frame is unknown.
//! Source: Kafka's `NetworkReceive`.

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::{FRAME_READ_BYTES_MIN, FRAME_ROOM_FACTOR, STREAM_READ_BYTES_MAX};

/// Splitter of one connection. Keeps no bytes of its own: they stay in the caller's buffer.
#[derive(Clone, Copy, Debug)]
pub struct FrameSplitter {
    max_bytes: usize,
}

/// Why no further frame can be read from this connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameFault {
    /// The length prefix is negative.
    #[error("negative frame length {0}")]
    Negative(i32),
    /// The length prefix is above the configured limit.
    #[error("frame of {length} bytes is over the limit of {max_bytes}")]
    TooLarge {
        /// The prefix, bytes.
        length: usize,
        /// The limit, bytes.
        max_bytes: usize,
    },
}

impl FrameSplitter {
    /// A splitter that takes frames of at most `max_bytes`, the prefix not counted
    /// (`socket.request.max.bytes`).
    #[must_use]
    pub fn new(max_bytes: usize) -> FrameSplitter {
        FrameSplitter { max_bytes }
    }

    /// Takes the next whole frame, without its prefix, off the front of `buffer`; `None` if it
    /// has not arrived yet. The frame shares the buffer's memory.
    ///
    /// # Errors
    /// The prefix is negative or over the limit; `buffer` is left as it was.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameFault> {
        let Some(length) = self.length(buffer)? else {
            return Ok(None);
        };
        if buffer.len() - PREFIX_BYTES < length {
            return Ok(None);
        }
        buffer.advance(PREFIX_BYTES);
        Ok(Some(buffer.split_to(length).freeze()))
    }

    /// Bytes still missing to the frame in progress: 0 if `buffer` is empty, holds a whole frame
    /// or a bad prefix. Within a prefix only the rest of the prefix is known to be missing.
    #[must_use]
    pub fn missing_bytes(&self, buffer: &BytesMut) -> usize {
        match self.length(buffer) {
            Ok(Some(length)) => (PREFIX_BYTES + length).saturating_sub(buffer.len()),
            Ok(None) if !buffer.is_empty() => PREFIX_BYTES - buffer.len(),
            _ => 0,
        }
    }

    /// How many bytes the reader may ask the socket for next: [`FRAME_READ_BYTES_MIN`], and towards
    /// a larger frame what is missing, but never more than has already arrived, there is room for,
    /// or a read takes: so much is counted before it is there. A larger frame is not read beyond
    /// its end, so that its buffer need not hold more.
    #[must_use]
    pub fn read_bytes(&self, buffer: &BytesMut) -> usize {
        let missing = self.missing_bytes(buffer);
        if missing == 0 || buffer.len() < FRAME_READ_BYTES_MIN {
            return FRAME_READ_BYTES_MIN;
        }
        let most = missing.min(buffer.len()).min(STREAM_READ_BYTES_MAX);
        match buffer.capacity() - buffer.len() {
            0 => most,
            room => most.min(room),
        }
    }

    /// Gives the buffer room for the frame in progress, if that is a large one: for all of it, or
    /// for so many times what has arrived. Left to itself a buffer doubles again and again, up to
    /// twice the frame, and each time moves what is there.
    pub fn make_room(&self, buffer: &mut BytesMut) {
        let arrived = buffer.len();
        if arrived < FRAME_READ_BYTES_MIN || self.read_bytes(buffer) <= buffer.capacity() - arrived
        {
            return;
        }
        let whole = arrived + self.missing_bytes(buffer);
        let mut larger = BytesMut::with_capacity(whole.min(arrived * FRAME_ROOM_FACTOR));
        larger.extend_from_slice(buffer);
        *buffer = larger;
    }

    fn length(&self, buffer: &BytesMut) -> Result<Option<usize>, FrameFault> {
        let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let signed = i32::from_be_bytes(*prefix);
        let length = usize::try_from(signed).map_err(|_| FrameFault::Negative(signed))?;
        if length > self.max_bytes {
            return Err(FrameFault::TooLarge { length, max_bytes: self.max_bytes });
        }
        Ok(Some(length))
    }
}

const PREFIX_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(bytes: &[u8]) -> BytesMut {
        BytesMut::from(bytes)
    }

    #[test]
    fn frames_come_off_whole_and_in_order() {
        let mut splitter = FrameSplitter::new(100);
        let mut input = buffer(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 3, 1]);
        assert_eq!(splitter.next(&mut input), Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(splitter.next(&mut input), Ok(Some(Bytes::new())));
        assert_eq!(splitter.next(&mut input), Ok(None));
        assert_eq!(splitter.missing_bytes(&input), 2);
        input.extend_from_slice(&[2, 3]);
        assert_eq!(splitter.missing_bytes(&input), 0);
        assert_eq!(splitter.next(&mut input), Ok(Some(Bytes::from_static(&[1, 2, 3]))));
        assert!(input.is_empty());
        assert_eq!(splitter.missing_bytes(&input), 0);
        input.extend_from_slice(&[0, 0]);
        assert_eq!(splitter.next(&mut input), Ok(None));
        assert_eq!(splitter.missing_bytes(&input), 2);
    }

    #[test]
    fn bad_prefixes_are_faults_and_the_limit_itself_is_allowed() {
        let mut splitter = FrameSplitter::new(5);
        assert_eq!(
            splitter.next(&mut buffer(&[255, 255, 255, 255])),
            Err(FrameFault::Negative(-1))
        );
        assert_eq!(
            splitter.next(&mut buffer(&[0, 0, 0, 6])),
            Err(FrameFault::TooLarge { length: 6, max_bytes: 5 })
        );
        assert_eq!(splitter.next(&mut buffer(&[0, 0, 0, 5])), Ok(None));
        let largest = [0x7f, 255, 255, 255];
        assert_eq!(
            FrameSplitter::new(usize::MAX).missing_bytes(&buffer(&largest)),
            i32::MAX as usize
        );
    }

    #[test]
    fn a_lying_length_reserves_no_more_than_has_arrived() {
        let splitter = FrameSplitter::new(100 * 1024 * 1024);
        let mut input = buffer(&(100 * 1024 * 1024_i32).to_be_bytes());
        assert_eq!(splitter.read_bytes(&input), FRAME_READ_BYTES_MIN);
        input.resize(3 * FRAME_READ_BYTES_MIN, 0);
        assert_eq!(splitter.read_bytes(&input), 3 * FRAME_READ_BYTES_MIN);
        // Near its end a frame asks for what is missing, and no more.
        let mut near = buffer(&(300 * 1024_i32).to_be_bytes());
        near.resize(200 * 1024, 0);
        assert_eq!(splitter.read_bytes(&near), 100 * 1024 + PREFIX_BYTES);
        near.resize(300 * 1024, 0);
        assert_eq!(splitter.read_bytes(&near), PREFIX_BYTES);
        near.resize(300 * 1024 + PREFIX_BYTES, 0);
        assert_eq!(splitter.read_bytes(&near), FRAME_READ_BYTES_MIN);
    }

    #[test]
    fn a_large_frame_grows_in_few_steps_to_its_own_size() {
        let splitter = FrameSplitter::new(8 << 20);
        let whole = 4_000_000;
        let mut input = BytesMut::with_capacity(FRAME_READ_BYTES_MIN);
        input.extend_from_slice(&(whole as i32).to_be_bytes());
        let mut capacities = vec![input.capacity()];
        while splitter.missing_bytes(&input) > 0 {
            splitter.make_room(&mut input);
            if capacities.last() != Some(&input.capacity()) {
                capacities.push(input.capacity());
            }
            let space = input.capacity() - input.len();
            let count = splitter.read_bytes(&input).min(space);
            assert!(count > 0 && count <= input.len().max(FRAME_READ_BYTES_MIN));
            input.resize(input.len() + count, 7);
        }
        let small = FRAME_READ_BYTES_MIN;
        assert_eq!(capacities, [small, FRAME_ROOM_FACTOR * small, whole + PREFIX_BYTES]);
        let mut splitter = splitter;
        assert_eq!(splitter.next(&mut input).expect("valid").expect("whole").len(), whole);
    }

    proptest! {
        #![proptest_config(crate::wire::tests::cases(256))]

        #[test]
        fn any_split_of_the_stream_gives_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            step in 1_usize..13,
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend_from_slice(&(frame.len() as i32).to_be_bytes());
                stream.extend_from_slice(frame);
            }
            let mut splitter = FrameSplitter::new(64);
            let mut input = BytesMut::new();
            let mut seen = Vec::new();
            for piece in stream.chunks(step) {
                input.extend_from_slice(piece);
                while let Some(frame) = splitter.next(&mut input).expect("valid stream") {
                    seen.push(frame.to_vec());
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(input.is_empty());
        }
    }
}
