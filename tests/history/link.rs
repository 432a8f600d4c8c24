//! A client's way to the broker through all weather: leaders and coordinators are found anew after
//! every disappointment, and every request has an end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
use kafka_protocol::protocol::Request;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::history::{Group, Line, Log};
use crate::run::Run;
use crate::support::client::Client;
use crate::support::requests;
use crate::support::transactions::{GROUP, TRANSACTION, find_coordinator};

/// Whom a request is for.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    Leader(Log),
    OfGroup(Group),
    OfLine(Line),
    Any,
}

/// What became of a request that was sent until somebody answered for good.
pub enum Answer<R> {
    /// An answer that is final. Whether an earlier attempt may have had an effect as well.
    Final { response: R, was_lost: bool },
    /// Patience is over.
    None,
}

/// Connections of one client.
pub struct Link<'a> {
    pub run: &'a Run,
    /// Its place among the clients.
    pub client: usize,
    cluster: Option<Cluster>,
    clients: HashMap<SocketAddr, Client>,
    coordinators: HashMap<(i8, String), SocketAddr>,
}

impl<'a> Link<'a> {
    pub fn new(run: &'a Run, client: usize) -> Link<'a> {
        let (clients, coordinators) = (HashMap::new(), HashMap::new());
        Link { run, client, cluster: None, clients, coordinators }
    }

    /// Sends once. After an error nothing of what was known is trusted.
    pub fn attempt<R: Request>(
        &mut self,
        node: Node,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        self.run.stand(self.client);
        let result = self.try_call(node, version, request);
        if result.is_err() {
            self.forget();
        }
        result
    }

    /// Sends until an answer is final, or time is over. `later` are codes that say: not now.
    pub fn insist<R: Request>(
        &mut self,
        (node, version): (Node, i16),
        request: &R,
        (what, later): (&'static str, &[i16]),
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Answer<R::Response> {
        let until = Instant::now() + PATIENCE;
        let mut was_lost = false;
        while Instant::now() < until {
            match self.attempt(node, version, request) {
                Err(_) => {
                    was_lost = true;
                    sleep(Duration::from_millis(20));
                }
                Ok(response) => {
                    let code = code_of(&response);
                    if code != 0 {
                        self.run.code(what, code);
                    }
                    if later.contains(&code) {
                        // Time was over there, which does not say that nothing was done.
                        was_lost |= code == REQUEST_TIMED_OUT;
                        self.later(code);
                        continue;
                    }
                    return Answer::Final { response, was_lost };
                }
            }
        }
        Answer::None
    }

    /// Somebody else has to be asked, or the same one a little later.
    pub fn later(&mut self, code: i16) {
        if MOVED.contains(&code) {
            self.forget_places();
        }
        sleep(Duration::from_millis(10));
    }

    pub fn forget(&mut self) {
        self.forget_places();
        self.clients.clear();
    }

    fn forget_places(&mut self) {
        self.cluster = None;
        self.coordinators.clear();
    }

    /// The id of a topic; none if the broker cannot be asked.
    pub fn topic_id(&mut self, name: &str) -> Option<Uuid> {
        self.cluster().ok()?.ids.get(name).copied()
    }

    fn try_call<R: Request>(
        &mut self,
        node: Node,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        let client = self.node(node)?;
        client.try_call(version, request)
    }

    /// The connection to a node.
    pub fn node(&mut self, node: Node) -> io::Result<&mut Client> {
        let address = match node {
            Node::Leader(log) => {
                let place = (log.name().to_owned(), log.index());
                let known = self.cluster()?.leaders.get(&place).copied();
                known.ok_or(io::ErrorKind::NotFound)?
            }
            Node::OfGroup(group) => self.coordinator(GROUP, group.name())?,
            Node::OfLine(line) => self.coordinator(TRANSACTION, line.name())?,
            Node::Any => self.run.bootstrap,
        };
        self.connection(address)
    }

    fn cluster(&mut self) -> io::Result<&Cluster> {
        if self.cluster.is_none() {
            let request: MetadataRequest = requests::metadata(&[]);
            let answer = self.connection(self.run.bootstrap)?.try_call(12, &request)?;
            self.cluster = Some(Cluster::of(answer));
        }
        self.cluster.as_ref().ok_or(io::ErrorKind::NotFound.into())
    }

    fn coordinator(&mut self, kind: i8, key: String) -> io::Result<SocketAddr> {
        if let Some(address) = self.coordinators.get(&(kind, key.clone())) {
            return Ok(*address);
        }
        let request: FindCoordinatorRequest = find_coordinator(kind, &key);
        let answer = self.connection(self.run.bootstrap)?.try_call(4, &request)?;
        let found = &answer.coordinators[0];
        if found.error_code != 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let address = format!("{}:{}", found.host.as_str(), found.port);
        let address: SocketAddr = address.parse().expect("an address");
        self.coordinators.insert((kind, key), address);
        Ok(address)
    }

    fn connection(&mut self, address: SocketAddr) -> io::Result<&mut Client> {
        Ok(match self.clients.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut client = Client::try_connect(address)?;
                client.set_timeout(REQUEST_TIMEOUT);
                place.insert(client)
            }
        })
    }
}

const REQUEST_TIMED_OUT: i16 = 7;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
pub const MOVED: &[i16] = &[6, 16, 15, 3];
