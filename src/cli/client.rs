//! A blocking client of the Kafka protocol, for commands that ask a live broker.
//!
//! Owns one connection per node and the list of nodes. One request at a time, each bounded in
//! time. Must never be used by the broker itself: it blocks its thread.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::limits::CLIENT_RESPONSE_BYTES_MAX;

/// A cluster as seen from one of its nodes.
pub struct Cluster {
    bootstrap: String,
    connections: BTreeMap<i32, TcpStream>,
    addresses: BTreeMap<i32, String>,
}

impl Cluster {
    /// Connects to one node and asks it for the others.
    ///
    /// # Errors
    /// One sentence.
    pub fn connect(bootstrap: &str) -> Result<Cluster, String> {
        let stream = connect(bootstrap)?;
        let mut cluster = Cluster {
            bootstrap: bootstrap.to_owned(),
            connections: BTreeMap::from([(BOOTSTRAP, stream)]),
            addresses: BTreeMap::from([(BOOTSTRAP, bootstrap.to_owned())]),
        };
        let request = MetadataRequest::default().with_topics(Some(Vec::new()));
        for broker in cluster.call(BOOTSTRAP, METADATA_VERSION, &request)?.brokers {
            let address = format!("{}:{}", broker.host, broker.port);
            cluster.addresses.insert(broker.node_id.0, address);
        }
        Ok(cluster)
    }

    /// The node it was told of.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Ids of all nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<i32> {
        self.addresses.keys().copied().filter(|&node| node != BOOTSTRAP).collect()
    }

    /// What the cluster knows of one topic.
    ///
    /// # Errors
    /// One sentence.
    pub fn describe_topic(&mut self, name: &str) -> Result<MetadataResponse, String> {
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![MetadataRequestTopic::default().with_name(Some(name))]))
            .with_allow_auto_topic_creation(false);
        self.call(BOOTSTRAP, METADATA_VERSION, &request)
    }

    /// Sends a request to a node and waits for its response.
    ///
    /// # Errors
    /// One sentence.
    pub fn call<R: Request>(
        &mut self,
        node: i32,
        version: i16,
        request: &R,
    ) -> Result<R::Response, String> {
        let address = self.addresses.get(&node).cloned();
        let address = address.ok_or_else(|| format!("there is no node {node}"))?;
        let stream = match self.connections.entry(node) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(connect(&address)?),
        };
        exchange(stream, version, request).map_err(|reason| format!("{address}: {reason}"))
    }
}

fn connect(address: &str) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("cannot connect to {address}: {error}");
    let resolved = address.to_socket_addrs().map_err(failed)?.next();
    let resolved = resolved.ok_or_else(|| format!("{address} resolves to no address"))?;
    let stream = TcpStream::connect_timeout(&resolved, TIMEOUT).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    Ok(stream)
}

fn exchange<R: Request>(
    stream: &mut TcpStream,
    version: i16,
    request: &R,
) -> Result<R::Response, String> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("ringlog-cli")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|error| error.to_string())?;
    request.encode(&mut frame, version).map_err(|error| error.to_string())?;
    let length = u32::try_from(frame.len() - 4).map_err(|error| error.to_string())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&frame).map_err(|error| error.to_string())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| error.to_string())?;
    let length = u32::from_be_bytes(length) as usize;
    if length > CLIENT_RESPONSE_BYTES_MAX {
        return Err(format!("a response of {length} bytes"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(|error| error.to_string())?;
    let mut body = Bytes::from(body);
    ResponseHeader::decode(&mut body, R::Response::header_version(version))
        .map_err(|error| error.to_string())?;
    let response = R::Response::decode(&mut body, version).map_err(|error| error.to_string())?;
    match body.remaining() {
        0 => Ok(response),
        left => Err(format!("{left} bytes after a response")),
    }
}

/// The number under which the first connection is kept.
const BOOTSTRAP: i32 = -1;
const METADATA_VERSION: i16 = 9;
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What comes of a response whose length field is this, and after which nothing comes.
    fn answered_with(length: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let broker = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut prefix = [0; 4];
            stream.read_exact(&mut prefix).expect("a request");
            let mut request = vec![0; u32::from_be_bytes(prefix) as usize];
            stream.read_exact(&mut request).expect("a request");
            let length = u32::try_from(length).expect("four bytes");
            stream.write_all(&length.to_be_bytes()).expect("taken");
        });
        let Err(reason) = Cluster::connect(&address) else { panic!("there is no response") };
        broker.join().expect("it has answered");
        reason.replace(&address, "broker")
    }

    #[test]
    fn a_response_that_is_too_large_is_not_read() {
        let beyond = CLIENT_RESPONSE_BYTES_MAX + 1;
        assert_eq!(answered_with(beyond), format!("broker: a response of {beyond} bytes"));
        let most = answered_with(CLIENT_RESPONSE_BYTES_MAX);
        assert!(!most.contains("a response of"), "it is read, and is cut: {most}");
    }
}
