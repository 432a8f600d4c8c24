//! A broker with few descriptors, and more connections than those.

use std::net::TcpStream;
use std::time::Duration;

use kafka_protocol::messages::ApiVersionsRequest;

use crate::stage::{Stage, arguments, limited_program, until};
use crate::support::broker::Broker;
use crate::support::client::Client;

#[test]
fn without_descriptors_newcomers_wait_and_files_are_written_all_the_same() {
    let program = limited_program(400);
    // Segments of a kilobyte, so that files have to be opened all the time.
    let mut broker =
        Broker::prepare_program(&program, &arguments(&["--set", "log.segment.bytes=1048576"]));
    broker.restart();
    let mut stage = Stage::of(broker, 64 << 20);
    let address = stage.broker.addresses()[0];
    let flood: Vec<TcpStream> =
        (0..600).map(|_| TcpStream::connect(address).expect("the backlog takes it")).collect();
    assert_eq!(stage.said("no descriptors are left"), 1);
    let process_id = stage.broker.process_id();
    let open = || {
        let listed = std::fs::read_dir(format!("/proc/{process_id}/fd"));
        listed.expect("the process runs").count()
    };
    let count = open();
    assert!(count < 400, "{count} descriptors are open: some are kept for files");
    let mut waiting = Client::connect(address);
    let sent = waiting.send(0, &ApiVersionsRequest::default());
    waiting.expect_silence(Duration::from_millis(300));
    for _ in 0..20 {
        stage.old_witness_is_served();
    }
    assert_eq!(stage.broker.stderr().matches("no descriptors are left").count(), 1, "once");
    assert!(!stage.broker.stderr().contains("offline"), "{}", stage.broker.stderr());
    // They return when connections go.
    drop(flood);
    assert_eq!(waiting.receive(sent).error_code, 0);
    until(Duration::from_secs(10), "the descriptors are back", || open() < 100);
    stage.witness_is_served();
    stage.memory_is_kept(400);
    std::fs::remove_file(program).expect("it was there");
}
