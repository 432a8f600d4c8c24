//! Goal: whatever the moment of a crash or a failing call, the catalog reopens with exactly the
//! acknowledged changes, or those and the one in flight.
//!
//! Method: a disk in memory that keeps file contents and names apart, live and durable, counts
//! calls, and stops or fails at any of them with any part of a write done. A script of changes
//! with frequent rotations runs against every such moment, and the reopening likewise.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use futures_lite::future::block_on;

use super::*;
use crate::ids::TopicId;
use crate::io::{DirectoryEntry, File, LocalFuture, OpenMode, Space};

/// What happens at a chosen call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The world ends; nothing works any more.
    Crash,
    /// This call fails; the next ones work.
    Error,
}

/// Which changes of names survive a crash without a directory sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    None,
    All,
    Snapshot,
    Others,
}

const KEPT: [Kept; 4] = [Kept::None, Kept::All, Kept::Snapshot, Kept::Others];

type Names = BTreeMap<PathBuf, u64>;

#[derive(Default)]
struct FakeDisk {
    live: RefCell<Names>,
    durable: RefCell<Names>,
    contents: RefCell<BTreeMap<u64, Vec<u8>>>,
    next_inode: Cell<u64>,
    calls: Cell<usize>,
    fault: Cell<Option<(usize, Fault)>>,
    /// How much of a failing write is done: this many sixteenths.
    done_sixteenths: Cell<usize>,
    is_dead: Cell<bool>,
}

impl FakeDisk {
    fn fail_at(&self, call: usize, fault: Fault, done_sixteenths: usize) {
        self.fault.set(Some((self.calls.get() + call, fault)));
        self.done_sixteenths.set(done_sixteenths);
    }

    /// Comes back after the crash with some of the names that were not synced.
    fn restart(&self, kept: Kept) {
        let live = self.live.borrow().clone();
        let durable = self.durable.borrow().clone();
        let mut names = Names::new();
        for name in live.keys().chain(durable.keys()) {
            let is_snapshot = name.ends_with(SNAPSHOT);
            let survivor = match kept {
                Kept::All => live.get(name),
                Kept::Snapshot if is_snapshot => live.get(name),
                Kept::Others if !is_snapshot => live.get(name),
                _ => durable.get(name),
            };
            names.extend(survivor.map(|inode| (name.clone(), *inode)));
        }
        *self.live.borrow_mut() = names.clone();
        *self.durable.borrow_mut() = names;
        self.fault.set(None);
        self.is_dead.set(false);
    }

    fn call(&self) -> io::Result<()> {
        if self.is_dead.get() {
            return Err(io::Error::other("after the crash"));
        }
        let call = self.calls.get();
        self.calls.set(call + 1);
        match self.fault.get() {
            Some((at, fault)) if at == call => {
                self.is_dead.set(fault == Fault::Crash);
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Ok(()),
        }
    }

    fn write_from(&self, path: &Path, keep: usize, content: &[u8]) -> io::Result<()> {
        let was_dead = self.is_dead.get();
        let result = self.call();
        if was_dead {
            return result;
        }
        let inode = *self.live.borrow_mut().entry(path.to_owned()).or_insert_with(|| {
            self.next_inode.set(self.next_inode.get() + 1);
            self.next_inode.get()
        });
        let done = match result {
            Ok(()) => content.len(),
            Err(_) => content.len() * self.done_sixteenths.get() / 16,
        };
        let mut contents = self.contents.borrow_mut();
        let bytes = contents.entry(inode).or_default();
        bytes.truncate(keep);
        bytes.extend_from_slice(&content[..done]);
        result
    }

    fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = *self.live.borrow().get(path)?;
        self.contents.borrow().get(&inode).cloned()
    }

    fn set_content(&self, path: &Path, content: Vec<u8>) {
        let inode = self.live.borrow()[path];
        self.contents.borrow_mut().insert(inode, content);
    }

    fn names(&self) -> Vec<String> {
        let live = self.live.borrow();
        live.keys().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }
}

fn ready<T: 'static>(value: io::Result<T>) -> LocalFuture<'static, io::Result<T>> {
    Box::pin(async move { value })
}

impl Disk for FakeDisk {
    fn open<'a>(&'a self, _: &'a Path, _: OpenMode) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        ready(
            self.call()
                .and_then(|()| self.content(path).ok_or_else(|| io::ErrorKind::NotFound.into())),
        )
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        ready(self.write_from(path, 0, content))
    }

    fn append<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        ready(self.write_from(path, usize::MAX, content))
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
        _: bool,
        _: &'a [&'a str],
    ) -> LocalFuture<'a, io::Result<Vec<DirectoryEntry>>> {
        ready(self.call().map(|()| {
            let live = self.live.borrow();
            live.keys()
                .filter_map(|name| name.strip_prefix(path).ok())
                .map(|name| DirectoryEntry {
                    path: name.to_owned(),
                    is_directory: false,
                    length: 0,
                    content: None,
                })
                .collect()
        }))
    }

    fn create_directory<'a>(&'a self, _: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        ready(self.call())
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        ready(self.call().map(|()| {
            let mut live = self.live.borrow_mut();
            if let Some(inode) = live.remove(from) {
                live.insert(to.to_owned(), inode);
            }
        }))
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        ready(self.call().map(|()| {
            self.live.borrow_mut().remove(path);
        }))
    }

    fn remove_tree<'a>(&'a self, _: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, io::Result<()>> {
        ready(self.call().map(|()| {
            let mut durable = self.durable.borrow_mut();
            durable.retain(|name, _| name.parent() != Some(path));
            let live = self.live.borrow();
            let synced = live.iter().filter(|(name, _)| name.parent() == Some(path));
            durable.extend(synced.map(|(name, inode)| (name.clone(), *inode)));
        }))
    }

    fn sync_filesystem(&self) -> LocalFuture<'_, io::Result<()>> {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn space(&self) -> LocalFuture<'_, io::Result<Space>> {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

fn directory() -> &'static Path {
    Path::new("/data/catalog")
}

fn open(disk: &Rc<FakeDisk>) -> Result<CatalogStore, StoreError> {
    let disk: Rc<dyn Disk> = Rc::clone(disk) as Rc<dyn Disk>;
    let (mut store, image) = block_on(CatalogStore::open(disk, directory(), broker(), "cluster"))?;
    assert_eq!(image.to_records(), store.image().to_records());
    store.log_bytes_max = 300;
    Ok(store)
}

/// Changes of one to three records each.
fn script() -> Vec<Vec<Record>> {
    (0..12_u8)
        .map(|step| {
            let topic = |part: u8| Record::TopicCreated {
                name: format!("topic-{step}-{part}"),
                id: TopicId([step * 4 + part + 1; 16]),
                preferred: vec![u16::from(step)],
                overrides: BTreeMap::new(),
                next_preferred: u16::from(step) + 1,
            };
            (0..=step % 3).map(topic).collect()
        })
        .collect()
}

/// The snapshot of the catalog after the first `count` changes.
fn expected(count: usize) -> &'static [Record] {
    static SNAPSHOTS: OnceLock<Vec<Vec<Record>>> = OnceLock::new();
    let snapshots = SNAPSHOTS.get_or_init(|| {
        let created = Record::ClusterCreated { cluster_id: "cluster".to_owned() };
        let mut image = Image::new(broker()).apply(&created);
        let mut snapshots = vec![image.to_records()];
        for change in script() {
            image = image.apply_all(&change);
            snapshots.push(image.to_records());
        }
        snapshots
    });
    &snapshots[count.min(script().len())]
}

fn broker() -> Arc<BrokerConfig> {
    static BROKER: OnceLock<Arc<BrokerConfig>> = OnceLock::new();
    let make = || Arc::new(BrokerConfig::with_overrides(&[]).expect("configuration"));
    Arc::clone(BROKER.get_or_init(make))
}

/// Runs the script until something fails; returns how many changes were acknowledged.
fn run(disk: &Rc<FakeDisk>) -> usize {
    let Ok(mut store) = open(disk) else { return 0 };
    for (acknowledged, change) in script().iter().enumerate() {
        match block_on(store.append(change)) {
            Ok(image) => assert_eq!(image.to_records(), expected(acknowledged + 1)),
            Err(_) => return acknowledged,
        }
    }
    script().len()
}

fn calls_of_a_run() -> usize {
    let disk = Rc::new(FakeDisk::default());
    assert_eq!(run(&disk), script().len());
    disk.calls.get()
}

#[test]
fn changes_survive_reopening_and_rotation() {
    let disk = Rc::new(FakeDisk::default());
    assert_eq!(run(&disk), 12);
    let mut store = open(&disk).expect("open");
    assert_eq!(store.image().to_records(), expected(12));
    assert!(store.sequence > 2, "the script rotates: {}", store.sequence);
    assert_eq!(disk.names(), [log_name(store.sequence), SNAPSHOT.to_owned()]);
    block_on(store.compact()).expect("compact");
    assert_eq!(open(&disk).expect("open").image().to_records(), expected(12));
}

#[test]
fn a_crash_at_any_call_keeps_what_was_acknowledged() {
    for call in 0..calls_of_a_run() {
        for done in [0, 1, 8, 15, 16] {
            for kept in KEPT {
                let disk = Rc::new(FakeDisk::default());
                disk.fail_at(call, Fault::Crash, done);
                let acknowledged = run(&disk);
                assert!(disk.is_dead.get(), "call {call} is reached");
                disk.restart(kept);
                let case = format!("call {call}, {done}/16 done, names kept: {kept:?}");
                check_reopened(&disk, acknowledged, &case);
            }
        }
    }
}

/// The catalog is one of the two legitimate ones, takes changes, and keeps them.
fn check_reopened(disk: &Rc<FakeDisk>, acknowledged: usize, case: &str) {
    let mut store = open(disk).unwrap_or_else(|error| panic!("{case}: {error}"));
    let found = store.image().to_records();
    let count = [acknowledged, acknowledged + 1]
        .into_iter()
        .find(|count| found == expected(*count))
        .unwrap_or_else(|| panic!("{case}: neither {acknowledged} changes nor one more"));
    for change in &script()[count..] {
        block_on(store.append(change)).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    drop(store);
    disk.restart(Kept::None);
    let store = open(disk).unwrap_or_else(|error| panic!("{case}, again: {error}"));
    assert_eq!(store.image().to_records(), expected(script().len()), "{case}, again");
}

#[test]
fn a_crash_while_reopening_changes_nothing() {
    for first in (0..calls_of_a_run()).step_by(3) {
        for second in 0..12 {
            for kept in KEPT {
                let disk = Rc::new(FakeDisk::default());
                disk.fail_at(first, Fault::Crash, 8);
                let acknowledged = run(&disk);
                disk.restart(kept);
                disk.fail_at(second, Fault::Crash, 8);
                let _ = open(&disk);
                disk.restart(kept);
                check_reopened(&disk, acknowledged, &format!("calls {first} and {second}"));
            }
        }
    }
}

#[test]
fn after_a_failed_call_the_store_goes_on() {
    for call in 0..calls_of_a_run() {
        for done in [0, 8, 16] {
            let disk = Rc::new(FakeDisk::default());
            disk.fail_at(call, Fault::Error, done);
            let mut store = match open(&disk) {
                Ok(store) => store,
                Err(error) => {
                    assert!(error.is_full(), "{error}");
                    open(&disk).expect("the second time")
                }
            };
            for (step, change) in script().iter().enumerate() {
                if let Err(error) = block_on(store.append(change)) {
                    assert!(error.is_full(), "{error}");
                    assert_eq!(store.image().to_records(), expected(step));
                    block_on(store.append(change)).expect("the second time");
                }
                assert_eq!(store.image().to_records(), expected(step + 1));
            }
            disk.restart(Kept::None);
            let reopened = open(&disk).expect("open");
            assert_eq!(reopened.image().to_records(), expected(12), "call {call}, {done}/16");
        }
    }
}

#[test]
fn a_log_cut_at_any_byte_keeps_the_changes_before_it() {
    let disk = Rc::new(FakeDisk::default());
    let mut store = open(&disk).expect("open");
    store.log_bytes_max = u64::MAX;
    let mut ends = vec![0];
    for change in script() {
        block_on(store.append(&change)).expect("append");
        ends.push(usize::try_from(store.log_bytes).expect("small"));
    }
    let path = store.log_path(store.sequence);
    let log = disk.content(&path).expect("log");
    assert_eq!(ends.last(), Some(&log.len()));
    drop(store);
    for cut in 0..=log.len() {
        let copy = Rc::new(FakeDisk::default());
        *copy.live.borrow_mut() = disk.live.borrow().clone();
        *copy.contents.borrow_mut() = disk.contents.borrow().clone();
        copy.set_content(&path, log[..cut].to_vec());
        let mut store = open(&copy).expect("a torn tail");
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(store.image().to_records(), expected(whole), "cut at {cut}");
        if let Some(change) = script().get(whole) {
            block_on(store.append(change)).expect("append");
            let reopened = open(&copy).expect("open");
            assert_eq!(reopened.image().to_records(), expected(whole + 1), "cut at {cut}");
        }
    }
}

#[test]
fn damage_and_missing_files_are_errors() {
    let disk = Rc::new(FakeDisk::default());
    let mut store = open(&disk).expect("open");
    store.log_bytes_max = u64::MAX;
    for change in script() {
        block_on(store.append(&change)).expect("append");
    }
    let log = store.log_path(store.sequence);
    let snapshot = directory().join(SNAPSHOT);
    let intact = (disk.content(&log).expect("log"), disk.content(&snapshot).expect("snapshot"));
    let message = |disk: &Rc<FakeDisk>| open(disk).map(|_| ()).expect_err("damage").to_string();

    let mut damaged = intact.0.clone();
    damaged[20] ^= 1;
    disk.set_content(&log, damaged);
    let second = encode(&script()[0]).len();
    assert_eq!(
        message(&disk),
        format!(
            "catalog /data/catalog/log-1: byte 0: damaged, although an intact entry follows at \
             byte {second}; acknowledged catalog changes are lost"
        )
    );
    disk.set_content(&log, intact.0);

    for byte in 0..intact.1.len() {
        let mut damaged = intact.1.clone();
        damaged[byte] ^= 1;
        disk.set_content(&snapshot, damaged);
        assert!(message(&disk).starts_with("catalog /data/catalog/snapshot: "), "byte {byte}");
        disk.set_content(&snapshot, intact.1[..byte].to_vec());
        assert!(message(&disk).starts_with("catalog /data/catalog/snapshot: "), "cut {byte}");
    }
    disk.set_content(&snapshot, intact.1);

    let inode = disk.live.borrow_mut().remove(&log).expect("log");
    assert_eq!(message(&disk), "catalog /data/catalog/log-1: entity not found");
    disk.live.borrow_mut().insert(log, inode);
    disk.live.borrow_mut().remove(&snapshot);
    assert_eq!(
        message(&disk),
        "catalog /data/catalog/snapshot: missing, although log-1 holds changes that follow it"
    );
}

#[test]
fn the_cluster_id_is_chosen_once() {
    let disk = Rc::new(FakeDisk::default());
    assert_eq!(open(&disk).expect("open").image().cluster_id(), "cluster");
    let shared: Rc<dyn Disk> = Rc::clone(&disk) as Rc<dyn Disk>;
    let opened = CatalogStore::open(shared, directory(), broker(), "another");
    assert_eq!(block_on(opened).expect("open").1.cluster_id(), "cluster");
}
