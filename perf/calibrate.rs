//! The machine's floors: what no broker can be faster than.
//!
//! Owns the probes that a report names beside its own figures: durable overwrites, small and large,
//! TCP echoes between two cores, the least durable server, a memory copy, sequential direct reads.
//! Each is taken in the same minute as the load, on the cores that broker and load have.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringlog::doctor::probe;
use ringlog::io::buffers::AlignedBuffer;
use ringlog::io::cores::cores_near;

use super::client::{Client, Fault};
use super::measure::thread_cpu_seconds;
use super::report::{Figures, Report, figures, number};

/// Floors of one minute, microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Floors {
    /// A durable 4 KiB overwrite.
    pub dsync_us: f64,
    /// The slowest of a hundred of them.
    pub dsync_p99_us: f64,
    /// A TCP echo whose server sleeps in between, as an idle broker does.
    pub echo_us: f64,
    /// A TCP echo whose server polls.
    pub echo_spinning_us: f64,
    /// CPU time of a durable overwrite that one thread waits for, which is the kernel's.
    pub dsync_cpu_us: f64,
    /// CPU time of the server of an echo that sleeps in between.
    pub echo_cpu_us: f64,
}

impl Floors {
    /// Takes them: what a broker does on its first shard's core, the client of
    /// echoes on `core`.
    pub fn take(data_dir: &Path, core: usize) -> Result<Floors, Fault> {
        let broker = broker_core(data_dir);
        let (dsync, dsync_cpu_us) = durable_writes(data_dir, broker)?;
        let us = |quantile| dsync.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Floors {
            dsync_us: us(0.5),
            dsync_p99_us: us(0.99),
            dsync_cpu_us,
            echo_cpu_us: echo([broker, core], Waiting::Asleep, Asking::Own)?.server_cpu_us,
            echo_us: lowest_echo_us([broker, core], Waiting::Asleep)?,
            echo_spinning_us: lowest_echo_us([broker, core], Waiting::Polling)?,
        })
    }

    /// One durable write and one round trip.
    pub fn both_us(&self) -> f64 {
        self.dsync_us + self.echo_us
    }

    /// CPU-microseconds of both: what a durable request costs at least, one after the other.
    pub fn both_cpu_us(&self) -> f64 {
        self.dsync_cpu_us + self.echo_cpu_us
    }

    /// For a report, with what else the machine is doing.
    pub fn figures(&self) -> Figures {
        figures([
            ("floor_dsync_p50_us", number(self.dsync_us)),
            ("floor_dsync_p99_us", number(self.dsync_p99_us)),
            ("floor_echo_p50_us", number(self.echo_us)),
            ("floor_echo_spinning_p50_us", number(self.echo_spinning_us)),
            ("floor_dsync_cpu_seconds_per_million", number(self.dsync_cpu_us)),
            ("floor_echo_cpu_seconds_per_million", number(self.echo_cpu_us)),
            ("load_average", number(load_average())),
        ])
    }
}

/// The floors that take seconds: large durable writes, and the least durable server there can be.
pub fn under_load(data_dir: &Path, core: usize) -> Result<Figures, Fault> {
    let bytes_per_second = durable_bytes_per_second(data_dir)?;
    let times = paced(data_dir, [broker_core(data_dir), core])?;
    let us = |quantile| number(times.value_at_quantile(quantile) as f64 / 1e3);
    Ok(figures([
        (DSYNC_MEGABYTES_PER_SECOND, number(bytes_per_second / 1e6)),
        ("floor_paced_p50_us", us(0.5)),
        ("floor_paced_p99_us", us(0.99)),
        ("floor_paced_p999_us", us(0.999)),
    ]))
}

/// Prints the floors.
pub fn run(data_dir: &Path, json: bool) -> Result<(), Fault> {
    let core = load_core(data_dir);
    let mut report = Report::new("calibrate");
    report.add_all(Floors::take(data_dir, core)?.figures());
    report.add_all(under_load(data_dir, core)?);
    for (server, waiting) in [("asleep", Waiting::Asleep), ("polling", Waiting::Polling)] {
        for (client, asking) in
            [("blocking", Asking::Blocking), ("polling", Asking::Polling), ("own", Asking::Own)]
        {
            let times = echo([broker_core(data_dir), core], waiting, asking)?.times;
            let us = |quantile| number(times.value_at_quantile(quantile) as f64 / 1e3);
            report.add(&format!("echo_server_{server}_client_{client}_p50_us"), us(0.5));
            report.add(&format!("echo_server_{server}_client_{client}_p99_us"), us(0.99));
        }
    }
    report.add("memory_copy_gb_per_s", number(memory_copy()));
    report.print(json);
    Ok(())
}

/// Processes that want a core, over the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// What the server of an echo does between two messages.
#[derive(Clone, Copy)]
enum Waiting {
    Asleep,
    Polling,
}

/// How its client waits for the answer.
#[derive(Clone, Copy)]
enum Asking {
    Blocking,
    Polling,
    /// As the load does.
    Own,
}

/// The median of the client that is served fastest.
fn lowest_echo_us(cores: [usize; 2], waiting: Waiting) -> Result<f64, Fault> {
    let mut lowest = f64::INFINITY;
    for asking in [Asking::Blocking, Asking::Polling, Asking::Own] {
        let times = echo(cores, waiting, asking)?.times;
        lowest = lowest.min(times.value_at_quantile(0.5) as f64 / 1e3);
    }
    Ok(lowest)
}

/// The core for the load: the last that a shard would take.
pub fn load_core(data_dir: &Path) -> usize {
    cores_near(data_dir).last().copied().unwrap_or(0)
}

/// The core of a broker's first shard.
pub fn broker_core(data_dir: &Path) -> usize {
    cores_near(data_dir).first().copied().unwrap_or(0)
}

/// Durable writes of a thread on `core`: nanoseconds each, and CPU-microseconds of one.
fn durable_writes(data_dir: &Path, core: usize) -> Result<(Histogram<u64>, f64), Fault> {
    let probe = || -> std::io::Result<(Histogram<u64>, f64)> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let begun = thread_cpu_seconds();
        // None: what it costs to make the file and to remove it.
        probe::durable_writes(data_dir, 0)?;
        let made = thread_cpu_seconds();
        let taken = probe::durable_writes(data_dir, PROBES)?;
        let spent = (thread_cpu_seconds() - made) - (made - begun);
        Ok((taken, spent * 1e6 / PROBES as f64))
    };
    let taken = std::thread::scope(|scope| scope.spawn(probe).join());
    Ok(taken.map_err(|_| "the durable writes failed")??)
}

/// What the device takes of large durable writes, as a journal under full load does them.
fn durable_bytes_per_second(data_dir: &Path) -> Result<f64, Fault> {
    on_durable_file(data_dir, |file| Ok(large_writes(file)?))
}

/// Works on a file whose writes are direct and durable, and removes it.
fn on_durable_file<T>(
    data_dir: &Path,
    work: impl FnOnce(&File) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let path = data_dir.join(format!(".ringlog-perf-{}", std::process::id()));
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    let file = OpenOptions::new().write(true).create(true).custom_flags(flags).open(&path)?;
    let done = work(&file);
    std::fs::remove_file(&path)?;
    done
}

fn large_writes(file: &File) -> std::io::Result<f64> {
    let block = AlignedBuffer::zeroed(LARGE_WRITE_BYTES);
    let write_all = || -> std::io::Result<()> {
        (0..LARGE_WRITES).try_for_each(|n| file.write_all_at(&block, n * LARGE_WRITE_BYTES as u64))
    };
    // The first time the file grows, and that is not what is asked.
    write_all()?;
    let begun = Instant::now();
    write_all()?;
    Ok((LARGE_WRITES * LARGE_WRITE_BYTES as u64) as f64 / begun.elapsed().as_secs_f64())
}

/// Nanoseconds of each round trip, and CPU-microseconds of its server for one.
struct Echoed {
    times: Histogram<u64>,
    server_cpu_us: f64,
}

/// Round trips of 64 bytes between two threads, the server's core first.
fn echo([server, client]: [usize; 2], waiting: Waiting, asking: Asking) -> Result<Echoed, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> std::io::Result<f64> {
        core_affinity::set_for_current(core_affinity::CoreId { id: server });
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        peer.set_nonblocking(matches!(waiting, Waiting::Polling))?;
        let mut message = [0u8; MESSAGE_BYTES];
        let begun = thread_cpu_seconds();
        while read_all(&mut peer, &mut message).is_ok() {
            peer.write_all(&message)?;
        }
        Ok((thread_cpu_seconds() - begun) * 1e6 / PROBES as f64)
    });
    let client = std::thread::spawn(move || -> Result<Histogram<u64>, Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: client });
        match asking {
            Asking::Own => echo_own(&address.to_string()),
            Asking::Blocking => echo_plain(TcpStream::connect(address)?),
            Asking::Polling => {
                let stream = TcpStream::connect(address)?;
                stream.set_nonblocking(true)?;
                echo_plain(stream)
            }
        }
    });
    let times = client.join().map_err(|_| "the echo client failed")??;
    let server_cpu_us = server.join().map_err(|_| "the echo server failed")??;
    Ok(Echoed { times, server_cpu_us })
}

/// What the least durable server there can be answers in at a steady rate: it sleeps until a
/// message comes, overwrites 4 KiB durably, answers. From the intended time, as the load counts.
fn paced(data_dir: &Path, [server, client]: [usize; 2]) -> Result<Histogram<u64>, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    on_durable_file(data_dir, |file| {
        std::thread::scope(|scope| {
            scope.spawn(|| serve_durably(&listener, file, server));
            let asking = scope.spawn(move || -> Result<Histogram<u64>, Fault> {
                core_affinity::set_for_current(core_affinity::CoreId { id: client });
                ask_at_a_rate(TcpStream::connect(address)?)
            });
            asking.join().map_err(|_| "the client of the paced server failed")?
        })
    })
}

/// Until its peer is gone.
fn serve_durably(listener: &TcpListener, file: &File, core: usize) -> std::io::Result<()> {
    core_affinity::set_for_current(core_affinity::CoreId { id: core });
    let (mut peer, _) = listener.accept()?;
    peer.set_nodelay(true)?;
    let block = AlignedBuffer::zeroed(PACED_BLOCK_BYTES);
    let places = (0..PACED_BLOCKS).map(|block| block * PACED_BLOCK_BYTES as u64);
    // Once before it counts: later writes make the file no longer.
    places.clone().try_for_each(|place| file.write_all_at(&block, place))?;
    let mut message = [0u8; MESSAGE_BYTES];
    for place in places.cycle() {
        read_all(&mut peer, &mut message)?;
        file.write_all_at(&block, place)?;
        peer.write_all(&message)?;
    }
    Ok(())
}

fn ask_at_a_rate(mut stream: TcpStream) -> Result<Histogram<u64>, Fault> {
    stream.set_nodelay(true)?;
    let mut times = Histogram::new(3)?;
    let mut message = [1u8; MESSAGE_BYTES];
    let begun = Instant::now();
    for number in 0..PACED_SECONDS * PACED_RATE {
        let intended = begun + Duration::from_secs(1) * number / PACED_RATE;
        std::thread::sleep(intended.saturating_duration_since(Instant::now()));
        stream.write_all(&message)?;
        read_all(&mut stream, &mut message)?;
        times.record(intended.elapsed().as_nanos() as u64)?;
    }
    Ok(times)
}

fn echo_plain(mut stream: TcpStream) -> Result<Histogram<u64>, Fault> {
    stream.set_nodelay(true)?;
    let mut times = Histogram::new(3)?;
    let mut message = [1u8; MESSAGE_BYTES];
    for _ in 0..PROBES {
        let begun = Instant::now();
        stream.write_all(&message)?;
        read_all(&mut stream, &mut message)?;
        times.record(begun.elapsed().as_nanos() as u64)?;
    }
    Ok(times)
}

fn echo_own(address: &str) -> Result<Histogram<u64>, Fault> {
    let mut client = Client::connect(address)?;
    let mut times = Histogram::new(3)?;
    let mut frame = vec![0; MESSAGE_BYTES];
    frame[3] = MESSAGE_BYTES as u8 - 4;
    for _ in 0..PROBES {
        let begun = Instant::now();
        client.send(&frame)?;
        client.receive()?;
        times.record(begun.elapsed().as_nanos() as u64)?;
    }
    Ok(times)
}

/// Reads a whole message, again and again where the socket does not wait by itself.
fn read_all(stream: &mut TcpStream, message: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes per second of reading a file from its begin to its end past the page cache.
pub fn direct_read_bytes_per_second(path: &Path) -> Result<f64, Fault> {
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
    let begun = Instant::now();
    let mut position = 0;
    loop {
        match file.read_at(&mut buffer, position)? {
            0 => break,
            bytes => position += bytes as u64,
        }
    }
    Ok(position as f64 / begun.elapsed().as_secs_f64())
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

/// Name of that figure in reports.
pub const DSYNC_MEGABYTES_PER_SECOND: &str = "floor_dsync_megabytes_per_second";

const LARGE_WRITE_BYTES: usize = 1024 * 1024;
const LARGE_WRITES: u64 = 256;
const PACED_RATE: u32 = 1_000;
const PACED_SECONDS: u32 = 4;
const PACED_BLOCK_BYTES: usize = 4096;
const PACED_BLOCKS: u64 = 64;
const PROBES: usize = 2_000;
const MESSAGE_BYTES: usize = 64;
const READ_BYTES: usize = 1024 * 1024;
const COPY_BYTES: usize = 64 * 1024 * 1024;
