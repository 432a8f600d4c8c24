//! The machine's floors: what no broker can be faster than.
//!
//! Owns the probes that a report names beside its own figures: a durable 4 KiB overwrite, a TCP
//! echo between two threads, a memory copy. Each is taken in the same minute as the load.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use hdrhistogram::Histogram;
use ringlog::doctor::probe;

use super::client::Fault;

/// Prints the floors.
pub fn run(data_dir: &Path) -> Result<(), Fault> {
    let dsync = durable_writes(data_dir)?;
    println!("dsync 4 KiB   p50 {} us  p99 {} us", us(&dsync, 0.5), us(&dsync, 0.99));
    let echo = echo()?;
    println!("TCP echo      p50 {} us  p99 {} us", us(&echo, 0.5), us(&echo, 0.99));
    println!("memcpy 64 MiB {:.1} GB/s", memory_copy());
    Ok(())
}

fn us(histogram: &Histogram<u64>, quantile: f64) -> u64 {
    histogram.value_at_quantile(quantile) / 1_000
}

/// Overwrites of written blocks with `O_DIRECT | O_DSYNC`, nanoseconds each.
pub fn durable_writes(data_dir: &Path) -> Result<Histogram<u64>, Fault> {
    Ok(probe::durable_writes(data_dir, PROBES)?)
}

/// Round trips of 64 bytes between two threads, nanoseconds each.
pub fn echo() -> Result<Histogram<u64>, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut message = [0u8; 64];
        while peer.read_exact(&mut message).is_ok() {
            peer.write_all(&message)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut histogram = Histogram::new(3)?;
    let mut message = [1u8; 64];
    for _ in 0..PROBES {
        let begun = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        histogram.record(begun.elapsed().as_nanos() as u64)?;
    }
    drop(stream);
    server.join().map_err(|_| "the echo server failed")??;
    Ok(histogram)
}

fn memory_copy() -> f64 {
    let source = vec![1u8; COPY_BYTES];
    let mut target = vec![0u8; COPY_BYTES];
    let begun = Instant::now();
    for _ in 0..4 {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut target);
    }
    (4 * COPY_BYTES) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

const PROBES: usize = 2_000;
const COPY_BYTES: usize = 64 * 1024 * 1024;
