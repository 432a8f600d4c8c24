//! Current leader and its endpoint: what Produce and Fetch tell a client that asked the wrong
//! shard, so that it need not ask for metadata.
//!
//! Owns the two structures and their encoding, the same in both APIs (Produce from v10; Fetch
//! from v12, endpoints from v16). Source: KIP-951.

use bytes::BufMut;
use kafka_protocol::protocol::StrBytes;

use super::encode::EncodeFault;
use super::primitive::{
    UVARINT_BYTES_MAX, put_count, put_no_tags, put_nullable_text, put_text, put_uvarint,
};
use crate::ids::LeaderEpoch;

/// Leader of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLeader {
    /// Node id.
    pub leader_id: i32,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
}

/// Where a node is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeEndpoint {
    /// Node id.
    pub node_id: i32,
    /// Host name or address.
    pub host: StrBytes,
    /// TCP port.
    pub port: i32,
    /// Rack, if configured.
    pub rack: Option<StrBytes>,
}

/// Writes one tagged field holding a leader; flexible versions only.
pub(super) fn put_leader_tag(out: &mut Vec<u8>, tag: u32, leader: CurrentLeader) {
    put_uvarint(out, tag);
    put_uvarint(out, 9);
    out.put_i32(leader.leader_id);
    out.put_i32(leader.leader_epoch.0);
    put_no_tags(out, true);
}

/// Writes the section of tagged fields that holds the endpoints as tag 0, if there are any.
pub(super) fn put_endpoint_tags(
    out: &mut Vec<u8>,
    endpoints: &[NodeEndpoint],
) -> Result<(), EncodeFault> {
    if endpoints.is_empty() {
        put_no_tags(out, true);
        return Ok(());
    }
    let mut field = Vec::with_capacity(endpoints_bytes_max(endpoints));
    put_count(&mut field, endpoints.len(), true)?;
    for endpoint in endpoints {
        field.put_i32(endpoint.node_id);
        put_text(&mut field, &endpoint.host, true)?;
        field.put_i32(endpoint.port);
        put_nullable_text(&mut field, endpoint.rack.as_deref(), true)?;
        put_no_tags(&mut field, true);
    }
    put_uvarint(out, 1);
    put_uvarint(out, 0);
    put_uvarint(out, u32::try_from(field.len()).map_err(|_| EncodeFault::TooLarge)?);
    out.put_slice(&field);
    Ok(())
}

/// An upper bound of what [`put_endpoint_tags`] writes.
pub(super) fn endpoints_bytes_max(endpoints: &[NodeEndpoint]) -> usize {
    let each = |endpoint: &NodeEndpoint| {
        let rack_bytes = endpoint.rack.as_ref().map_or(0, |rack| rack.len());
        9 + 2 * UVARINT_BYTES_MAX + endpoint.host.len() + rack_bytes
    };
    3 * UVARINT_BYTES_MAX + endpoints.iter().map(each).sum::<usize>()
}
