//! What the network costs a busy shard: a request that asks least, beside a bare echo of its bytes.
//!
//! Owns both sides. ListOffsets of one partition reads a number that is in memory: parsed, answered
//! and sent as every request, and no more. The echo is a tokio server in a child on the broker's
//! core, which reads as many bytes and answers as many. Both serve the same connections, all of
//! which have a request in flight, in the same minute. What is left of the broker's time above the
//! echo's is parsing, answering and its own way of waiting; the network alone is less.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::calibrate::broker_core;
use super::client::{Client, Fault, frame_of};
use super::load::Load;
use super::measure::Usage;
use super::target::{Own, Server};

/// CPU-microseconds per request of the broker and of the echo.
pub fn measure(server: &Server, own: &Own, load: &Load) -> Result<(f64, f64), Fault> {
    let leader = Client::connect(&server.address)?.leaders(&load.topic, 1)?.swap_remove(0);
    let partition =
        ListOffsetsPartition::default().with_timestamp(-1).with_current_leader_epoch(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(TopicName(StrBytes::from_string(load.topic.clone())))
        .with_partitions(vec![partition]);
    let ask = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let frame = frame_of(4, &ask)?;
    let mut client = Client::connect(&leader)?;
    client.send(&frame)?;
    let answer_bytes = client.receive()?.len() + 4;
    let ours = cpu_us((&leader, server.pid, server.core), &frame, load)?;
    let echo = Echo::start(broker_core(&own.data_dir), (frame.len(), answer_bytes))?;
    let theirs = cpu_us((&echo.address, echo.child.id(), server.core), &frame, load)?;
    Ok((ours, theirs))
}

/// CPU-microseconds per request of a process that is asked the same again and again.
fn cpu_us(
    (address, pid, core): (&str, u32, usize),
    frame: &[u8],
    load: &Load,
) -> Result<f64, Fault> {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let each = load.connections.div_ceil(THREADS).max(1);
    let ask = || -> Result<(), Fault> {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
        let clients: Result<Vec<Client>, Fault> =
            (0..each).map(|_| Client::connect(address)).collect();
        let mut clients = clients?;
        while !over.load(Ordering::Relaxed) {
            for client in &mut clients {
                client.send(frame)?;
            }
            for client in &mut clients {
                client.receive()?;
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        std::thread::sleep(Duration::from_secs(load.warm_up_seconds.max(1)));
        let (before, from) = (Usage::of(pid), answered.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_secs(load.seconds.max(1)));
        let (used, to) = (Usage::of(pid).since(&before), answered.load(Ordering::Relaxed));
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a client's thread failed")??;
        }
        Ok(used.cpu_seconds * 1e6 / (to - from).max(1) as f64)
    })
}

/// A child that echoes.
struct Echo {
    child: Child,
    address: String,
}

impl Echo {
    fn start(core: usize, (request, answer): (usize, usize)) -> Result<Echo, Fault> {
        let mut command = Command::new(std::env::current_exe()?);
        let words = [core, request, answer].map(|number| number.to_string());
        command.arg("echo").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut address = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        let read = BufReader::new(output).read_line(&mut address);
        let echo = Echo { child, address: address.trim().to_owned() };
        read?;
        if echo.address.is_empty() { Err("the echo did not start".into()) } else { Ok(echo) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Echoes on `core` until its standard input ends, as it does with its parent.
pub fn echo(core: usize, request_bytes: usize, answer_bytes: usize) -> Result<(), Fault> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    core_affinity::set_for_current(core_affinity::CoreId { id: core });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (mut peer, _) = listener.accept().await?;
            peer.set_nodelay(true)?;
            tokio::task::spawn(async move {
                let mut request = vec![0; request_bytes];
                let mut answer = vec![0; answer_bytes];
                answer[..4].copy_from_slice(&(answer_bytes as u32 - 4).to_be_bytes());
                while peer.read_exact(&mut request).await.is_ok() {
                    if peer.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

const THREADS: usize = 4;
