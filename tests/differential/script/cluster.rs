//! ApiVersions, DescribeCluster, and requests that nobody serves.

use kafka_protocol::messages::{ApiVersionsRequest, DescribeClusterRequest};
use kafka_protocol::protocol::StrBytes;

use super::topics::metadata_of;
use crate::peer::{CORRELATION_ID, Peer};
use crate::support::client::{raw_request_frame, request_frame};

pub fn ask(peer: &mut Peer) {
    api_versions(peer);
    describe_cluster(peer);
    not_served(peer);
}

fn api_versions(peer: &mut Peer) {
    let named = |name: &'static str, version: &'static str| {
        ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(name))
            .with_client_software_version(StrBytes::from_static_str(version))
    };
    for version in [0, 1, 2] {
        peer.ask("ApiVersions", version, &ApiVersionsRequest::default());
    }
    for version in [3, 4] {
        peer.ask("ApiVersions", version, &named("a-client", "1.0"));
        peer.ask("ApiVersions without a name", version, &named("", "1.0"));
        peer.ask("ApiVersions with a bad name", version, &named("a client", "1.0"));
        peer.ask("ApiVersions with a bad version", version, &named("a", "-1-"));
    }
    for version in [5, 99, -1] {
        let case = format!("ApiVersions of version {version}");
        peer.ask_raw(&case, &raw_request_frame(18, version, 2, CORRELATION_ID, Some(b"c"), &[]));
    }
    let cut = raw_request_frame(18, 3, 2, CORRELATION_ID, Some(b"c"), &[9]);
    peer.ask_raw("ApiVersions v3 cut short", &cut);
}

fn describe_cluster(peer: &mut Peer) {
    for version in [0, 1, 2] {
        peer.ask("DescribeCluster", version, &DescribeClusterRequest::default());
        let request =
            DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        peer.ask("DescribeCluster with operations", version, &request);
    }
    for version in [1, 2] {
        for endpoint in [2, 3] {
            let request = DescribeClusterRequest::default().with_endpoint_type(endpoint);
            peer.ask(&format!("DescribeCluster of endpoints {endpoint}"), version, &request);
        }
    }
    let request = DescribeClusterRequest::default().with_include_fenced_brokers(true);
    peer.ask("DescribeCluster with fenced brokers", 2, &request);
}

fn not_served(peer: &mut Peer) {
    for (key, version) in [(999, 0), (93, 0), (4, 0), (0, 2), (0, 99), (1, 3), (1, 99), (2, 0)] {
        let case = format!("API {key} version {version}");
        let header = if version > 12 { 2 } else { 1 };
        peer.ask_raw(
            &case,
            &raw_request_frame(key, version, header, CORRELATION_ID, None, &[0; 8]),
        );
    }
    let frame = |cut: usize, more: &[u8]| {
        let mut frame = request_frame(1, CORRELATION_ID, Some("c"), &metadata_of("m"));
        frame.truncate(frame.len() - cut);
        frame.extend_from_slice(more);
        frame
    };
    peer.ask_raw("Metadata v1 cut short", &frame(1, &[]));
    peer.ask_raw("a header cut short", &[0, 3, 0, 1, 0]);
    peer.ask_raw("an empty frame", &[]);
}
