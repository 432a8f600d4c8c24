//! What all threads of a soak share: where the broker is, and whether they are to end.
//!
//! A broker that dies and comes back is a new generation. Between two generations everybody waits,
//! so that the checker finds logs at rest. A connection that breaks while the broker is meant to
//! live is a fault.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kafka_protocol::messages::FindCoordinatorRequest;
use kafka_protocol::protocol::Request;

use crate::book::Book;
use crate::cluster::Cluster;
use crate::support::client::Client;
use crate::support::transactions::find_coordinator;

/// Longest time between two generations, a check of everything included.
const BREAK_MAX: Duration = Duration::from_secs(180);

/// What the threads share. One that panics says more than those that find its locks poisoned.
pub struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
    book: Mutex<Book>,
    ending: AtomicBool,
}

#[derive(Default)]
struct Scene {
    generation: u64,
    /// `None` from the moment at which the broker is told to die.
    cluster: Option<Arc<Cluster>>,
    abandoned: bool,
}

impl Stage {
    /// Nothing runs yet.
    pub fn new(book: Book) -> Stage {
        Stage {
            scene: Mutex::default(),
            changed: Condvar::new(),
            book: Mutex::new(book),
            ending: AtomicBool::new(false),
        }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker lives: everybody may go on.
    pub fn open(&self, cluster: Cluster) {
        let mut scene = self.scene();
        scene.generation += 1;
        scene.cluster = Some(Arc::new(cluster));
        self.changed.notify_all();
    }

    /// The broker is about to die.
    pub fn close(&self) {
        self.scene().cluster = None;
    }

    /// Everybody is to come to an end, with nothing left open.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Nobody will open the stage again.
    pub fn abandon(&self) {
        self.scene().abandoned = true;
        self.changed.notify_all();
    }

    /// Waits for a generation after this one.
    fn after(&self, generation: u64) -> (u64, Arc<Cluster>) {
        let is_late = |scene: &mut Scene| {
            !scene.abandoned && (scene.cluster.is_none() || scene.generation <= generation)
        };
        let (scene, timeout) = (self.changed)
            .wait_timeout_while(self.scene(), BREAK_MAX, is_late)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out() && !scene.abandoned, "the broker does not come back");
        (scene.generation, Arc::clone(scene.cluster.as_ref().expect("just seen")))
    }

    /// Panics unless the broker of this generation has been told to die.
    fn broken(&self, generation: u64, error: &io::Error) {
        let scene = self.scene();
        assert!(generation != NONE, "the broker died under the checker: {error}");
        let dead = scene.generation > generation || scene.cluster.is_none();
        assert!(dead, "a connection broke under a living broker: {error}");
    }
}

/// Whom a request is for.
#[derive(Clone, Copy)]
pub enum Node<'a> {
    Leader(&'a str, i32),
    /// Of a key of this type.
    Coordinator(i8, &'a str),
    Any,
}

/// Connections to all nodes that are made anew after every crash. A request is sent until it is
/// answered, as clients do.
pub struct Session<'a> {
    stage: &'a Stage,
    generation: u64,
    cluster: Arc<Cluster>,
    clients: HashMap<SocketAddr, Client>,
    coordinators: HashMap<(i8, String), SocketAddr>,
}

impl<'a> Session<'a> {
    /// Waits until there is a broker.
    pub fn begin(stage: &'a Stage) -> Session<'a> {
        let (generation, cluster) = stage.after(0);
        let (clients, coordinators) = (HashMap::new(), HashMap::new());
        Session { stage, generation, cluster, clients, coordinators }
    }

    /// For one who looks while the others wait: no crash is due.
    pub fn of(stage: &'a Stage, cluster: Cluster) -> Session<'a> {
        let (clients, coordinators) = (HashMap::new(), HashMap::new());
        Session { stage, generation: NONE, cluster: Arc::new(cluster), clients, coordinators }
    }

    /// Goes up with every crash that was noticed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Sends until there is an answer.
    pub fn call<R: Request>(&mut self, node: Node<'_>, version: i16, request: &R) -> R::Response {
        loop {
            match self.try_call(node, version, request) {
                Ok(response) => return response,
                Err(error) => self.renew(&error),
            }
        }
    }

    fn renew(&mut self, error: &io::Error) {
        self.stage.broken(self.generation, error);
        self.clients.clear();
        self.coordinators.clear();
        (self.generation, self.cluster) = self.stage.after(self.generation);
    }

    fn try_call<R: Request>(
        &mut self,
        node: Node<'_>,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        let address = match node {
            Node::Leader(topic, partition) => self.cluster.leader(topic, partition),
            Node::Coordinator(kind, key) => self.coordinator(kind, key)?,
            Node::Any => self.any(),
        };
        self.client(address)?.try_call(version, request)
    }

    fn any(&self) -> SocketAddr {
        *self.cluster.leaders.values().min().expect("a partition is led")
    }

    fn coordinator(&mut self, kind: i8, key: &str) -> io::Result<SocketAddr> {
        if let Some(address) = self.coordinators.get(&(kind, key.to_owned())) {
            return Ok(*address);
        }
        let request: FindCoordinatorRequest = find_coordinator(kind, key);
        let address = self.any();
        loop {
            let answer = self.client(address)?.try_call(4, &request)?;
            let found = &answer.coordinators[0];
            if found.error_code != 0 {
                assert_eq!(found.error_code, COORDINATOR_NOT_AVAILABLE, "{key}");
                pause(5);
                continue;
            }
            let address = format!("{}:{}", found.host.as_str(), found.port);
            let address: SocketAddr = address.parse().expect("an address");
            self.coordinators.insert((kind, key.to_owned()), address);
            return Ok(address);
        }
    }

    fn client(&mut self, address: SocketAddr) -> io::Result<&mut Client> {
        Ok(match self.clients.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Client::try_connect(address)?),
        })
    }
}

/// Lets time pass: the pace of a load.
pub fn pause(milliseconds: u64) {
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// In the place of a generation.
const NONE: u64 = u64::MAX;

pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
