//! zstd contexts, used again instead of made anew.
//!
//! Owns, for each thread, a few contexts that are at rest. Making one asks the processor what it
//! can do, which a virtual machine answers by a trap of tens of microseconds, and a new one clears
//! its tables before the first byte; for batches of a few kilobytes that was most of the work. Must
//! never keep much: a context that has grown beyond what ordinary batches need is freed.
//!
//! Invariant: a context is reset, parameters and all, before it is used again; what it was used for
//! before, and how that ended, makes no difference.

use std::cell::RefCell;
use std::io;

use zstd::stream::raw::Operation;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, SafeResult, WriteBuf,
    get_error_name,
};

/// A context that inflates.
pub(super) struct Inflating {
    /// Absent once it is put back.
    context: Option<DCtx<'static>>,
}

/// A context that compresses.
pub(super) struct Compressing {
    /// Absent once it is put back.
    context: Option<CCtx<'static>>,
}

#[derive(Default)]
struct AtRest {
    inflating: Vec<DCtx<'static>>,
    compressing: Vec<CCtx<'static>>,
}

thread_local! {
    static AT_REST: RefCell<AtRest> = RefCell::default();
}

impl Inflating {
    /// One without parameters.
    pub(super) fn take() -> io::Result<Inflating> {
        let kept = AT_REST.with_borrow_mut(|at_rest| at_rest.inflating.pop());
        let made = kept.or_else(DCtx::try_create);
        let mut context = made.ok_or(io::ErrorKind::OutOfMemory)?;
        checked(context.reset(ResetDirective::SessionAndParameters))?;
        Ok(Inflating { context: Some(context) })
    }

    /// Refuses frames with a larger window.
    pub(super) fn window_log_max(&mut self, log: u32) -> io::Result<()> {
        checked(self.context().set_parameter(DParameter::WindowLogMax(log))).map(|_| ())
    }

    fn context(&mut self) -> &mut DCtx<'static> {
        self.context.as_mut().expect("invariant: it is put back at the end")
    }
}

impl Compressing {
    /// One of this level.
    pub(super) fn take(level: i32) -> io::Result<Compressing> {
        let kept = AT_REST.with_borrow_mut(|at_rest| at_rest.compressing.pop());
        let made = kept.or_else(CCtx::try_create);
        let mut context = made.ok_or(io::ErrorKind::OutOfMemory)?;
        checked(context.reset(ResetDirective::SessionAndParameters))?;
        let mut taken = Compressing { context: Some(context) };
        taken.set_parameter(CParameter::CompressionLevel(level))?;
        Ok(taken)
    }

    /// Sets what differs from the level's own.
    pub(super) fn set_parameter(&mut self, parameter: CParameter) -> io::Result<()> {
        checked(self.context().set_parameter(parameter)).map(|_| ())
    }

    fn context(&mut self) -> &mut CCtx<'static> {
        self.context.as_mut().expect("invariant: it is put back at the end")
    }
}

impl Operation for Inflating {
    fn run<C: WriteBuf + ?Sized>(
        &mut self,
        input: &mut InBuffer<'_>,
        output: &mut OutBuffer<'_, C>,
    ) -> io::Result<usize> {
        checked(self.context().decompress_stream(output, input))
    }

    fn reinit(&mut self) -> io::Result<()> {
        checked(self.context().reset(ResetDirective::SessionOnly)).map(|_| ())
    }

    fn finish<C: WriteBuf + ?Sized>(
        &mut self,
        _output: &mut OutBuffer<'_, C>,
        finished_frame: bool,
    ) -> io::Result<usize> {
        match finished_frame {
            true => Ok(0),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame")),
        }
    }
}

impl Operation for Compressing {
    fn run<C: WriteBuf + ?Sized>(
        &mut self,
        input: &mut InBuffer<'_>,
        output: &mut OutBuffer<'_, C>,
    ) -> io::Result<usize> {
        checked(self.context().compress_stream(output, input))
    }

    fn flush<C: WriteBuf + ?Sized>(&mut self, output: &mut OutBuffer<'_, C>) -> io::Result<usize> {
        checked(self.context().flush_stream(output))
    }

    fn reinit(&mut self) -> io::Result<()> {
        checked(self.context().reset(ResetDirective::SessionOnly)).map(|_| ())
    }

    fn finish<C: WriteBuf + ?Sized>(
        &mut self,
        output: &mut OutBuffer<'_, C>,
        _finished_frame: bool,
    ) -> io::Result<usize> {
        checked(self.context().end_stream(output))
    }
}

impl Drop for Inflating {
    fn drop(&mut self) {
        let kept = self.context.take().filter(|context| context.sizeof() <= INFLATING_BYTES_MAX);
        // A thread that ends keeps nothing.
        let _ = AT_REST.try_with(|at_rest| {
            let mut at_rest = at_rest.borrow_mut();
            if at_rest.inflating.len() < INFLATING_MAX {
                at_rest.inflating.extend(kept);
            }
        });
    }
}

impl Drop for Compressing {
    fn drop(&mut self) {
        let kept = self.context.take().filter(|context| context.sizeof() <= COMPRESSING_BYTES_MAX);
        let _ = AT_REST.try_with(|at_rest| {
            let mut at_rest = at_rest.borrow_mut();
            if at_rest.compressing.is_empty() {
                at_rest.compressing.extend(kept);
            }
        });
    }
}

fn checked(result: SafeResult) -> io::Result<usize> {
    result.map_err(|code| io::Error::other(get_error_name(code)))
}

/// Contexts kept at rest that inflate: lanes of one batch may want several.
const INFLATING_MAX: usize = 4;

/// Above what one of them holds: 160 KiB, and the window of what it inflated last.
const INFLATING_BYTES_MAX: usize = 512 * 1024;

/// Above what the one at rest holds at Kafka's default level: window, tables and buffers.
const COMPRESSING_BYTES_MAX: usize = 5 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::compression::{
        Compression, CompressionTarget, Deflater, InflateFault, Inflater, compress, inflate,
    };
    use super::*;

    fn at_rest() -> (usize, usize) {
        AT_REST.with_borrow(|at_rest| (at_rest.inflating.len(), at_rest.compressing.len()))
    }

    #[test]
    fn what_a_context_was_used_for_makes_no_difference() {
        let records: Vec<u8> = (0..200_000_usize).map(|n| ((n / 9) ^ (n % 251)) as u8).collect();
        let target = CompressionTarget::Zstd(3);
        let packed = Bytes::from(compress(target, &records).expect("memory"));
        for spoil in 0..4 {
            match spoil {
                // Given up in the middle of a stream.
                0 => {
                    let mut half = Deflater::new(target, Vec::new(), usize::MAX).expect("memory");
                    half.write(&records[..70_000]).expect("memory");
                    let mut reader =
                        Inflater::new(Compression::Zstd, packed.clone(), 1 << 20).expect("memory");
                    assert!(reader.read(&mut [0; 1_000]).expect("sound") > 0);
                }
                // Failed.
                1 => {
                    let cut = packed.slice(..packed.len() / 2);
                    let outcome = inflate(Compression::Zstd, &cut, 1 << 20);
                    assert!(matches!(outcome, Err(InflateFault::Damaged { .. })));
                    let mut damaged = packed.to_vec();
                    damaged[6..].fill(0xFF);
                    let outcome = inflate(Compression::Zstd, &damaged.into(), 1 << 20);
                    assert!(matches!(outcome, Err(InflateFault::Damaged { .. })));
                }
                // With other parameters.
                2 => {
                    compress(CompressionTarget::Zstd(1), &records).expect("memory");
                    let narrow =
                        Inflater::new(Compression::Zstd, packed.clone(), 1 << 20).expect("memory");
                    let refused = narrow.within(1 << 10).expect("memory").read(&mut [0; 1_000]);
                    assert_eq!(refused, Err(InflateFault::WindowTooLarge));
                }
                _ => {}
            }
            let again = compress(target, &records).expect("memory");
            assert!(again == packed, "spoilt by {spoil}");
            assert_eq!(inflate(Compression::Zstd, &packed, 1 << 20), Ok(records.clone().into()));
        }
    }

    #[test]
    fn little_is_kept() {
        let small = Bytes::from(compress(CompressionTarget::Zstd(3), &[7; 3_000]).expect("memory"));
        let inflater = || Inflater::new(Compression::Zstd, small.clone(), 1 << 20).expect("memory");
        drop((0..9).map(|_| inflater()).collect::<Vec<_>>());
        let deflater =
            || Deflater::new(CompressionTarget::Zstd(3), Vec::new(), 100).expect("memory");
        drop((0..3).map(|_| deflater()).collect::<Vec<_>>());
        assert_eq!(at_rest(), (INFLATING_MAX, 1));
        // Large ones are freed: what is at rest gets less.
        let large = vec![5; 3 << 20];
        let packed = compress(CompressionTarget::Zstd(19), &large).expect("memory");
        assert_eq!(at_rest(), (INFLATING_MAX, 0));
        let unpacked = inflate(Compression::Zstd, &packed.into(), large.len()).expect("sound");
        assert_eq!((unpacked.len(), at_rest()), (large.len(), (INFLATING_MAX - 1, 0)));
    }
}
