//! A client's end of a simulated connection to one shard, served by the broker's own connection
//! code.
//!
//! Owns framing and typed calls. An answer that does not come (the connection breaks, the caller
//! stops waiting) leaves the request where it is: the broker may still do it. An answer that cannot
//! be decoded is a panic.

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use ringlog::io::Stream;
use ringlog::shard::quota::{ConnectionLimits, ConnectionQuota};
use ringlog::shard::{Shard, connection};
use ringlog::sim::{NetOptions, Network, SimStream};

use crate::support::client::{decode_response, request_frame};

/// One connection.
pub struct Wire {
    stream: Rc<SimStream>,
    buffer: BytesMut,
    next_correlation_id: i32,
}

impl Wire {
    /// Connects to a shard.
    pub fn connect(network: &Network, shard: &Rc<Shard>) -> Wire {
        let (near, far) = network.pair(NetOptions::default(), ["client", "broker"]);
        let quota = Arc::<ConnectionQuota>::default();
        let limits = ConnectionLimits::of(&shard.context.config);
        let address = Ipv4Addr::LOCALHOST.into();
        let place = quota.take(address, &limits).expect("the first of all");
        connection::spawn(shard, far, place);
        Wire { stream: near, buffer: BytesMut::new(), next_correlation_id: 1 }
    }

    /// Sends a request and waits for its answer; `None` if the connection breaks before.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let frame = request_frame(version, correlation_id, Some("sim"), request);
        self.send(&frame).await?;
        let answer = self.receive().await?;
        let decoded = decode_response::<R>(version, correlation_id, answer);
        Some(decoded.unwrap_or_else(|what| panic!("API {} v{version}: {what}", R::KEY)))
    }

    /// Sends a frame.
    pub async fn send(&self, frame: &[u8]) -> Option<()> {
        let mut bytes = BytesMut::with_capacity(4 + frame.len());
        bytes.put_u32(u32::try_from(frame.len()).expect("a small frame"));
        bytes.put_slice(frame);
        self.stream.write_all(&mut vec![bytes.freeze()]).await.ok()
    }

    /// Receives a frame.
    pub async fn receive(&mut self) -> Option<Bytes> {
        loop {
            if let Some(prefix) = self.buffer.first_chunk::<4>() {
                let length = u32::from_be_bytes(*prefix) as usize;
                if self.buffer.len() >= 4 + length {
                    self.buffer.advance(4);
                    return Some(self.buffer.split_to(length).freeze());
                }
            }
            match self.stream.read(&mut self.buffer, 64 * 1024).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}
