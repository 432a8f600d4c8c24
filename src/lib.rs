//! Ringlog: a Kafka-protocol broker for one Linux machine.
//!
//! # The picture
//!
//! ```text
//!            clients (Java, librdkafka, franz-go, ...)
//!               |  one TCP port per core (or one port for all)
//!   +-----------v-----------+        +-----------------------+
//!   | core 0 = broker id 0  |        | core 1 = broker id 1  |   one executor per core
//!   |  connections          |        |  connections          |
//!   |  API handlers         |<------>|  API handlers         |   mailboxes: forwarded requests,
//!   |  partitions it owns   | mailbox|  partitions it owns   |   catalog changes
//!   |  journal              |        |  journal              |
//!   +-----------+-----------+        +-----------+-----------+
//!               | io_uring, O_DIRECT             |
//!        its ring, its partitions' segments    its ring, its partitions' segments
//! ```
//!
//! A Produce request is read from its socket ([`io`], [`wire`]), validated ([`batch`]), checked
//! against its producer's state and appended to its partition's log in one turn ([`log`],
//! [`shard`]), and copied once, into the open block of the shard's [`journal`]. When that block is
//! on the medium the high watermark moves, readers wake, and the response leaves. The block stays
//! in memory as the tail that fetches are served from, until write-behind has copied it into
//! segments. A checkpoint makes segments durable and writes an image of every partition's state at
//! their end; only then may ring space be used again. A start ([`recovery`]) reads manifest,
//! images and rings, cuts segments to what the images vouch for, and applies the rest.
//!
//! A transaction ends in two records of its coordinator, which is the shard that owns the id's
//! partition of `__transaction_state` ([`coordinator`] has the rules, [`shard::transactions`] the
//! rest). EndTxn is answered when the first, Prepare, is on the medium; then every shard that owns
//! a partition of the transaction gets one message with its markers, and when all of them are on
//! the medium the second, Complete, follows. A start goes on from whatever is there.
//!
//! # Where things are
//!
//! - [`broker`]: the process: start-up order, shards, signals, orderly end.
//! - [`doctor`]: what a host gives, and what would mend it.
//! - [`preflight`]: what the machine must give before anything is touched.
//! - [`crash`]: which request was in hand when the process panicked, and frames refused since.
//! - [`config`], [`cli`]: keys, files and options; the commands.
//! - [`io`]: the seams to the machine, and the only code that names the runtime.
//! - [`sim`]: the second implementation of those seams: one seed decides everything.
//! - [`wire`]: frames, headers, shape checks, and the table of what is served.
//! - [`api`]: one file per Kafka API.
//! - [`batch`]: record batches.
//! - [`shard`]: what one core owns, and the tasks that run on it.
//! - [`log`]: one partition's log as a state machine, and Kafka's file formats.
//! - [`journal`]: framing, ring, images, manifest: what is acknowledged and not yet in segments.
//! - [`coordinator`]: groups and their offsets, as rules without I/O.
//! - [`recovery`]: from what is on disk to what the shards start with.
//! - [`metadata`]: the catalog: topics, configurations, placement.
//! - [`coordinator`]: transactional ids and groups: what their internal topics mean.
//! - [`metrics`]: what the shards count, and how it is told.
//! - [`tools`]: looking at the files of a stopped broker.
//! - [`ids`], [`error_code`], [`limits`]: numbers with names, answers with codes, every bound.
//!
//! # Invariants
//!
//! What holds everywhere; most of it says what is absent.
//!
//! - **Acknowledged means on the medium.** No response leaves before the journal position of the
//!   newest state it was computed from is durable.
//! - **A bound never moves back.** High watermark, last stable offset, log start and leader epoch
//!   of a partition only rise, over crashes too.
//! - **One writer.** A partition's log, producer state and files belong to one shard. Nothing on
//!   the data path is shared between threads; shards exchange messages, first in first out.
//! - **No await between check and append.** A request's place is fixed in one turn; durability and
//!   other shards come later; responses leave in request order.
//! - **Rules know no machine.** What decides something takes `now` and bytes and returns values. It
//!   names no runtime, no clock, no file system; `src/io` decides nothing about Kafka.
//! - **Segments hold journaled bytes only.** One task at a time writes them, never a later boot;
//!   they are not recycled. Beyond the synced end of the last image none of them is trusted; below
//!   the segment it names, compaction puts new ones in the place of old ones.
//! - **Ring space is used again only after an image that no longer needs it.** No client can forge
//!   a block: their checksums are keyed by a secret of the boot.
//! - **Nothing is retried as if clean.** After a failed write or sync of the journal the shard
//!   takes no more. A full disk is another matter, and passes.
//! - **Input is hostile.** Counts and lengths from the wire are compared with the bytes that are
//!   there before anything is allocated; malformed frames close their connection and no other.
//! - **Everything is bounded.** A shard over its budget stops reading sockets. It drops nothing.
//! - **Nothing on the hot path is O(partitions), O(connections) or O(waiters).**
//! - **Record bytes are served as they were sent,** unless the topic's configuration says not to.
//!
//! `tests/tidy.rs` holds the code to those of them that can be read off it.
//!
//! # Dependencies, and why
//!
//! - `glommio`: the pinned executor per core that runs the tasks. The fork `glommio-ng` is the one
//!   that is maintained; pinned, since all of it is wrapped in [`io`].
//! - `io-uring`: the ring on which a core's sockets, files and timers wait, entered once per sleep.
//! - `kafka-protocol`: encoding and decoding of small requests and responses. Pinned: what it
//!   aborts on is checked before it is called.
//! - `bytes`: slices that share a frame's or a block's memory.
//! - `crossbeam-channel`: the queue between two shards.
//! - `hdrhistogram`: latency distributions of the load generator.
//! - `core_affinity`: which cores there are.
//! - `clap`: the command line.
//! - `tracing`, `tracing-subscriber`: what is said on standard error, and at which level.
//! - `anyhow`: the error type in the interface of `kafka-protocol`.
//! - `thiserror`: error enums with their sentences.
//! - `crc-fast`: CRC-32C at the speed of memory, with combination for patched headers.
//! - `xxhash-rust`: XXH3, keyed, for blocks, images and the manifest.
//! - `lz4_flex`, `snap`, `zstd`, `flate2`: the codecs of record batches, all with bounded output.
//! - `serde`, `serde_json`, `toml`: configuration, manifest and catalog as text.
//! - `hashbrown`, `foldhash`: hash maps on hot paths.
//! - `smallvec`: short lists without an allocation.
//! - `slab`: numbered places for things that come and go.
//! - `socket2`: listeners with every option said explicitly.
//! - `libc`, `rustix`: system calls that the standard library has not.
//! - `getrandom`: secrets and ids.
//! - `futures-lite`: the first of two futures, and tests.
//! - `signal-hook`: SIGTERM and SIGINT as events.
//! - `regex`: patterns of transactional ids, in linear time and bounded space.
//! - `tokio`: `ringlog-perf` only: the bare echo that a request is held against.
//! - `mimalloc`, `libmimalloc-sys`: the binary's allocator; memory is freed where it was taken.
//! - `uuid`: topic ids in the types of `kafka-protocol`.
//! - `sha2`, `hmac`: what is kept of a SCRAM password.
//! - `bolero`: tests only: fuzz targets that run in `cargo test`.
//! - `proptest`, `tempfile`: tests only; so is `rdkafka`, as a client that everyone uses.

pub mod api;
pub mod batch;
pub mod broker;
pub mod cli;
pub mod config;
pub mod coordinator;
pub mod crash;
pub mod doctor;
pub mod error_code;
pub mod ids;
pub mod io;
pub mod journal;
pub mod limits;
pub mod log;
pub mod metadata;
pub mod metrics;
pub mod preflight;
pub mod recovery;
pub mod shard;
pub mod sim;
pub mod tools;
pub mod wire;
