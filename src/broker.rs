//! The broker process: start-up order, shards, signals, orderly end.
//!
//! Owns what happens once: preflight, the lock, the format file, catalog, recovery, ports, and the
//! five lines a start prints. Everything that serves is in the shards. Must never open a port to
//! requests before every shard can answer them.

pub mod accept;

use std::cell::Cell;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use accept::Doors;

use crate::config::HostPort;
use crate::config::broker::{Advertise, BrokerConfig, Durability};
use crate::crash;
use crate::ids::{JournalSequence, ShardId};
use crate::io::cores::cores_near;
use crate::io::executor::{ExecutorOptions, GlommioRuntime, run_here, run_shards};
use crate::io::file::RingDisk;
use crate::io::listener::Listener;
use crate::io::mailbox::{Mailbox, MeshLimits, OutsideSender, mesh};
use crate::io::{Disk, Runtime, process};
use crate::journal::manifest;
use crate::limits::{DRAIN_MS, SMALL_MEMORY_BELOW_BYTES, SMALL_MEMORY_KEPT_MS};
use crate::metadata::Image;
use crate::metadata::records::Record;
use crate::metadata::store::CatalogStore;
use crate::preflight;
use crate::recovery::Recovered;
use crate::shard::build::{self, CATALOG, RESERVE, Started};
use crate::shard::endpoint::Endpoint;
use crate::shard::message::Message;
use crate::shard::quota::ConnectionQuota;
use crate::shard::space::DiskFull;
use crate::shard::{Context, Node, RecoveredPartition, Shard};

/// Why the broker did not start, or ended with a fault: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BrokerError(pub String);

impl BrokerError {
    fn from<E: std::fmt::Display>(error: E) -> BrokerError {
        BrokerError(error.to_string())
    }
}

/// Runs a broker until SIGTERM or SIGINT.
///
/// # Errors
/// A problem at the start, or a shard that failed.
pub fn run(config: BrokerConfig) -> Result<(), BrokerError> {
    let config = Arc::new(config);
    process::take_small_pages();
    if config.memory_bytes < SMALL_MEMORY_BELOW_BYTES {
        process::keep_freed_memory(SMALL_MEMORY_KEPT_MS);
    }
    std::fs::create_dir_all(&config.data_dir)
        .map_err(|error| BrokerError(format!("{}: {error}", config.data_dir.display())))?;
    let data_dir = config.data_dir.canonicalize().map_err(BrokerError::from)?;
    let ring_bytes = config.journal_ring_bytes * u64::from(config.shards);
    // The reserve is given up when the disk is full, and a start must be possible then.
    let is_new = !data_dir.join(manifest::rings_directory()).exists();
    let cleared = preflight::clear(&preflight::Wanted {
        data_dir: data_dir.clone(),
        shards: usize::from(config.shards),
        power_loss: config.durability == Durability::PowerLoss,
        space_bytes: ring_bytes * if is_new { 2 } else { 1 },
        space_taken_bytes: taken_bytes(&data_dir),
    })
    .map_err(BrokerError::from)?;
    for warning in &cleared.warnings {
        tracing::warn!("{warning}");
    }
    crash::install(&data_dir).map_err(BrokerError::from)?;
    let mut started =
        run_here(prepare(Arc::clone(&config), data_dir.clone())).map_err(BrokerError::from)??;
    let listeners = listen(&config, &started.image)?;
    let chosen = listeners.extra_ports();
    if chosen != started.image.extra_ports() && config.listen_address().port != 0 {
        let record = Record::BrokerPortsChosen { ports: chosen };
        let opened = run_here(append(Arc::clone(&config), data_dir.clone(), vec![record]));
        started.image = opened.map_err(BrokerError::from)??;
    }
    let context = Arc::new(Context {
        data_dir,
        shards: config.shards,
        boot: started.recovered.boot,
        nodes: listeners.nodes(&config),
        config,
    });
    print_start(&context, &started.recovered);
    if let Some(address) = listeners.metrics.as_ref().and_then(|socket| socket.local_addr().ok()) {
        say(&format!("metrics http://{address}/metrics, readiness http://{address}/ready"));
    }
    let descriptors = preflight::Descriptors::share(cleared.open_files, context.shards);
    serve(&context, started, listeners, &descriptors)
}

/// Opens the catalog and recovers; on a temporary executor.
async fn prepare(config: Arc<BrokerConfig>, data_dir: PathBuf) -> Result<Started, BrokerError> {
    let disk = open_disk(&data_dir)?;
    let runtime = GlommioRuntime::new();
    build::prepare(&disk, &runtime, &config, &data_dir, &process::kernel_boot_id())
        .await
        .map_err(BrokerError)
}

async fn append(
    config: Arc<BrokerConfig>,
    data_dir: PathBuf,
    records: Vec<Record>,
) -> Result<Image, BrokerError> {
    let disk = open_disk(&data_dir)?;
    let opened = CatalogStore::open(disk, &data_dir.join(CATALOG), config, "").await;
    let (mut store, _) = opened.map_err(BrokerError::from)?;
    store.append(&records).await.map_err(BrokerError::from)
}

fn open_disk(data_dir: &Path) -> Result<Rc<dyn Disk>, BrokerError> {
    let disk = RingDisk::new(data_dir).map_err(BrokerError::from)?;
    Ok(Rc::new(disk))
}

/// Bytes of rings and reserve that are on the disk already.
fn taken_bytes(data_dir: &Path) -> u64 {
    let rings = std::fs::read_dir(data_dir.join(manifest::rings_directory()));
    let rings: u64 = rings
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    let reserve = std::fs::metadata(data_dir.join(RESERVE)).map_or(0, |metadata| metadata.len());
    rings + reserve
}

/// The listening sockets, shard 0's first; one only with `advertise = single`.
struct Listeners {
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    fn extra_ports(&self) -> Vec<u16> {
        self.addresses.iter().skip(1).map(SocketAddr::port).collect()
    }

    /// The brokers that clients see.
    fn nodes(&self, config: &BrokerConfig) -> Vec<Node> {
        let (host, port) = config.advertised_address();
        self.addresses
            .iter()
            .enumerate()
            .map(|(index, address)| Node {
                id: index as i32,
                host: host.clone(),
                port: match port {
                    Some(port) if index == 0 => port,
                    _ => address.port(),
                },
            })
            .collect()
    }
}

fn resolve(wanted: &HostPort) -> Result<SocketAddr, BrokerError> {
    let resolved = (wanted.host.as_str(), wanted.port)
        .to_socket_addrs()
        .map_err(|error| BrokerError(format!("cannot resolve {}: {error}", wanted.host)))?
        .next();
    resolved.ok_or_else(|| BrokerError(format!("{} resolves to no address", wanted.host)))
}

fn listen(config: &BrokerConfig, image: &Image) -> Result<Listeners, BrokerError> {
    let first = resolve(&config.listen_address())?;
    let mut sockets = vec![preflight::listen(first).map_err(BrokerError::from)?];
    if config.advertise == Advertise::PerCore && config.shards > 1 {
        let extra = usize::from(config.shards) - 1;
        sockets.extend(listen_extra(config, image, first, extra)?);
    }
    let addresses = sockets
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()
        .map_err(BrokerError::from)?;
    let metrics = match config.metrics_address() {
        Some(wanted) => Some(preflight::listen(resolve(&wanted)?).map_err(BrokerError::from)?),
        None => None,
    };
    Ok(Listeners { sockets, addresses, metrics })
}

/// Ports of the shards after the first: those of the last start, or the first free block.
fn listen_extra(
    config: &BrokerConfig,
    image: &Image,
    first: SocketAddr,
    count: usize,
) -> Result<Vec<TcpListener>, BrokerError> {
    let bind_all = |ports: &[u16]| -> Result<Vec<TcpListener>, preflight::PreflightError> {
        let at = |port: &u16| preflight::listen(SocketAddr::new(first.ip(), *port));
        ports.iter().map(at).collect()
    };
    if first.port() == 0 {
        return bind_all(&vec![0; count]).map_err(BrokerError::from);
    }
    let known = image.extra_ports();
    if known.len() == count
        && let Ok(sockets) = bind_all(known)
    {
        return Ok(sockets);
    }
    let start = usize::from(config.extra_port_first);
    let mut from = start;
    while from + count <= usize::from(u16::MAX) {
        let block: Vec<u16> = (from..from + count).map(|port| port as u16).collect();
        match bind_all(&block) {
            Ok(sockets) => return Ok(sockets),
            Err(preflight::PreflightError::PortTaken { address }) => {
                from = usize::from(address.port()) + 1;
            }
            Err(error) => return Err(BrokerError::from(error)),
        }
    }
    Err(BrokerError(format!("no {count} free ports in a row from {start} on")))
}

fn print_start(context: &Context, recovered: &Recovered) {
    let config = &context.config;
    say(&format!(
        "ringlog {}: {} shard{}, data in {}, durability {}, boot {}",
        env!("CARGO_PKG_VERSION"),
        context.shards,
        if context.shards == 1 { "" } else { "s" },
        context.data_dir.display(),
        config.durability.text(),
        context.boot,
    ));
    let split = config.memory_split();
    say(&format!(
        "memory per shard: {} MiB tail, {} MiB read cache, {} MiB connections, {} MiB inflating",
        split.tail_bytes >> 20,
        split.cache_bytes >> 20,
        split.connection_bytes >> 20,
        split.inflation_bytes >> 20
    ));
    if recovered.batches_replayed > 0 {
        say(&format!("recovered {} batches from the journal", recovered.batches_replayed));
    }
    for note in &recovered.notes {
        tracing::warn!("{note}");
    }
}

/// One line of standard output. A closed pipe is no reason to stop serving.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// What a shard's thread starts with.
struct Seed {
    context: Arc<Context>,
    mailbox: Mailbox<Message>,
    listener: Option<TcpListener>,
    image: Arc<Image>,
    recovered: Vec<RecoveredPartition>,
    first_sequence: JournalSequence,
    full: DiskFull,
    together: Arc<Together>,
    /// Listener of the metrics endpoint, on shard 0.
    metrics: Option<TcpListener>,
    doors: Doors,
    segment_files: usize,
}

/// How far the shards are, all together.
#[derive(Default)]
struct Together {
    ready: AtomicU16,
    drained: AtomicU16,
}

fn serve(
    context: &Arc<Context>,
    started: Started,
    listeners: Listeners,
    descriptors: &preflight::Descriptors,
) -> Result<(), BrokerError> {
    let doors = Doors {
        quota: Arc::new(ConnectionQuota::default()),
        descriptors: descriptors.connections,
        is_said: Cell::new(false),
    };
    let image = Arc::new(started.image);
    let together = Arc::new(Together::default());
    let full = DiskFull::default();
    let mailboxes = mesh::<Message>(context.shards, MeshLimits::default());
    let stoppers: Vec<OutsideSender<Message>> =
        mailboxes.iter().map(Mailbox::outside_sender).collect();
    let addresses = listeners.addresses.clone();
    let mut sockets = listeners.sockets.into_iter();
    let mut metrics = listeners.metrics;
    let mut partitions = started.recovered.partitions.into_iter();
    let seeds: Vec<Seed> = mailboxes
        .into_iter()
        .map(|mailbox| Seed {
            context: Arc::clone(context),
            mailbox,
            listener: sockets.next(),
            image: Arc::clone(&image),
            recovered: partitions.next().unwrap_or_default(),
            first_sequence: started.recovered.first_sequence,
            full: full.clone(),
            together: Arc::clone(&together),
            metrics: metrics.take(),
            doors: doors.clone(),
            segment_files: descriptors.segment_files,
        })
        .collect();
    watch_signals(stoppers)?;
    announce(Arc::clone(&together), context.shards, addresses);
    let options = ExecutorOptions {
        cores: cores_near(&context.config.data_dir),
        spin_before_park: context.config.mode.spin_before_park(),
    };
    let outcome = run_shards(options, seeds, run_shard);
    outcome.map_err(BrokerError::from)
}

/// Prints the last line of the start once every shard accepts requests.
fn announce(together: Arc<Together>, shards: u16, addresses: Vec<SocketAddr>) {
    std::thread::spawn(move || {
        while together.ready.load(Ordering::Acquire) < shards {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        say(&format!("ready {}", texts.join(", ")));
    });
}

/// The first signal stops orderly, the second at once.
fn watch_signals(stoppers: Vec<OutsideSender<Message>>) -> Result<(), BrokerError> {
    let signals = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT];
    let mut signals = signal_hook::iterator::Signals::new(signals).map_err(BrokerError::from)?;
    std::thread::spawn(move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 {
                std::process::exit(1);
            }
            for stopper in &stoppers {
                stopper.send(Message::Stop);
            }
        }
    });
    Ok(())
}

async fn run_shard(id: ShardId, mut seed: Seed) -> Result<(), String> {
    let together = Arc::clone(&seed.together);
    let shards = seed.context.shards;
    let listener = seed.listener.as_ref().map(TcpListener::try_clone);
    let runtime: Rc<dyn Runtime> = Rc::new(GlommioRuntime::new());
    let endpoint = Endpoint::new(Rc::clone(&runtime));
    if let Some(socket) = seed.metrics.take() {
        let listener = Listener::new(socket).map_err(|error| error.to_string())?;
        let endpoint = Rc::clone(&endpoint);
        runtime.spawn(Box::pin(accept::accept_scrapes(endpoint, listener)));
    }
    let doors = seed.doors.clone();
    let segment_files = seed.segment_files;
    let shard = build_shard(id, seed, runtime).await?;
    endpoint.attach(&shard);
    shard.files.borrow_mut().keep_at_most(segment_files);
    shard.start();
    if id == ShardId(0) {
        shard.space.restore_reserve(&shard).await;
    }
    together.ready.fetch_add(1, Ordering::AcqRel);
    wait_for_all(&shard, &together.ready, shards).await;
    endpoint.serve_from_now_on();
    if let Some(listener) = listener {
        let listener = listener.map_err(|error| error.to_string())?;
        let accepting = Rc::clone(&shard);
        shard.runtime.spawn(Box::pin(accept::accept(accepting, listener, doors)));
    }
    shard.stopped().await;
    let deadline = shard.runtime.now().plus_ms(DRAIN_MS);
    shard.drained(deadline).await;
    // A shard may still be asked by others until all have drained.
    together.drained.fetch_add(1, Ordering::AcqRel);
    wait_for_all(&shard, &together.drained, shards).await;
    match shard.close().await {
        Ok(()) => Ok(()),
        Err(error) => {
            tracing::error!(shard = %id, "no clean stop: {error}; the journal is replayed instead");
            Ok(())
        }
    }
}

async fn wait_for_all(shard: &Rc<Shard>, count: &AtomicU16, shards: u16) {
    while count.load(Ordering::Acquire) < shards {
        let next = shard.runtime.now().plus_ms(1);
        shard.runtime.sleep_until(next).await;
    }
}

async fn build_shard(
    id: ShardId,
    seed: Seed,
    runtime: Rc<dyn Runtime>,
) -> Result<Rc<Shard>, String> {
    let data_dir = &seed.context.data_dir;
    let disk = RingDisk::new(data_dir).map_err(|error| error.to_string())?;
    build::build(build::Inputs {
        id,
        context: Arc::clone(&seed.context),
        runtime,
        disk: Rc::new(disk),
        mailbox: seed.mailbox,
        catalog: seed.image,
        recovered: seed.recovered,
        first_sequence: seed.first_sequence,
        full: seed.full,
    })
    .await
}
