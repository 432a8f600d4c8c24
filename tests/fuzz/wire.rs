//! Frames, headers, shape checks and decoding, of every API and version.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use ringlog::wire::decode::{DecodeFault, decode};
use ringlog::wire::frame::FrameSplitter;
use ringlog::wire::header;
use ringlog::wire::shapes::shape_of;
use ringlog::wire::versions::SERVED;

use crate::allocation::within;
use crate::run;
use crate::sample::{Choices, body};

/// Decoding takes at most 144 bytes for each element and some 450 for an unknown tag of three
/// bytes, next to texts and errors.
fn decoded_bytes_max(body_bytes: usize) -> usize {
    4_096 + 160 * body_bytes
}

#[test]
fn streams_of_frames() {
    run("streams of frames", |choices| {
        let frame_bytes_max = choices.below(300);
        let mut splitter = FrameSplitter::new(frame_bytes_max);
        let mut sent = Vec::new();
        for _ in 0..choices.below(6) {
            let frame = choices.bytes(64);
            sent.extend((frame.len() as i32).to_be_bytes());
            sent.extend(frame);
        }
        choices.damage(&mut sent);
        let mut buffer = BytesMut::new();
        let mut taken = 0;
        let pieces = sent.chunks(1 + choices.below(40));
        'stream: for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                let asked = splitter.read_bytes(&buffer);
                assert!(asked <= buffer.len().max(ringlog::limits::FRAME_READ_BYTES_MIN));
                assert!(splitter.missing_bytes(&buffer) <= frame_bytes_max + 4);
                match splitter.next(&mut buffer) {
                    Ok(Some(frame)) => {
                        assert!(frame.len() <= frame_bytes_max);
                        taken += 4 + frame.len();
                    }
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            assert!(taken + buffer.len() <= sent.len());
        }
    });
}

#[test]
fn random_frames() {
    run("random frames", |choices| {
        let frame = Bytes::copy_from_slice(choices.rest());
        within(decoded_bytes_max(frame.len()), "a random frame", || {
            if let Ok((header, body)) = header::parse(frame)
                && header.is_served()
            {
                let _ = decode(header.api, header.api_version, body);
            }
        });
    });
}

/// The frame of a request that fits its description, and where its body begins.
fn frame(choices: &mut Choices<'_>) -> (Vec<u8>, usize) {
    let row = &SERVED[choices.below(SERVED.len())];
    let versions = usize::try_from(row.max - row.min).expect("an ordered range") + 1;
    let version = row.min + choices.below(versions) as i16;
    let mut frame = Vec::new();
    frame.extend(row.api.key().to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend((choices.number() as i32).to_be_bytes());
    frame.extend(b"\0\x02me");
    if row.api.is_flexible(version) {
        frame.push(0);
    }
    let start = frame.len();
    frame.extend(body(shape_of(row.api), version, choices));
    (frame, start)
}

#[test]
fn requests_that_fit_their_description_are_decoded() {
    let [all, decoded] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    run("requests that fit", |choices| {
        all.fetch_add(1, Ordering::Relaxed);
        let (frame, start) = frame(choices);
        let length = frame.len();
        let (header, body) = header::parse(Bytes::from(frame)).expect("a sound header");
        assert_eq!(body.len(), length - start);
        within(decoded_bytes_max(body.len()), "a request that fits", || {
            match decode(header.api, header.api_version, body) {
                Ok(_) => {
                    decoded.fetch_add(1, Ordering::Relaxed);
                }
                // What the codec refuses beyond the shape: values that no field of its type has.
                Err(DecodeFault::Codec(_)) => {}
                Err(fault) => panic!("{:?} v{}: {fault}", header.api, header.api_version),
            }
        });
    });
    let [all, decoded] = [all.into_inner(), decoded.into_inner()];
    assert!(decoded * 10 > all * 9, "only {decoded} of {all} were decoded");
}

#[test]
fn damaged_requests() {
    run("damaged requests", |choices| {
        let (mut frame, _) = frame(choices);
        choices.damage(&mut frame);
        let frame = Bytes::from(frame);
        within(decoded_bytes_max(frame.len()), "a damaged request", || {
            if let Ok((header, body)) = header::parse(frame)
                && header.is_served()
                && let Err(DecodeFault::Undecoded(left)) =
                    decode(header.api, header.api_version, body)
            {
                panic!("{:?}: {left} bytes were left", header.api);
            }
        });
    });
}
