//! The disk's promises, one small test each; the rest against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::ids::ShardId;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn writable(durable: bool) -> OpenMode {
    OpenMode { write: true, create: true, durable, ..OpenMode::default() }
}

fn block(fill: u8, length: usize) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(length);
    buffer.fill(fill);
    Arc::new(buffer)
}

fn run<T>(world: &World, future: impl Future<Output = io::Result<T>>) -> T {
    world.run_until(future).expect("no stall").expect("no error")
}

fn fail<T>(world: &World, future: impl Future<Output = io::Result<T>>) -> Option<i32> {
    let result = world.run_until(future).expect("no stall");
    result.err().and_then(|error| error.raw_os_error())
}

/// A world and a disk with `/d/f` open, its name durable.
fn with_file(seed: u64, durable: bool) -> (World, SimDisk, Rc<dyn File>) {
    let world = World::new(seed);
    let disk = SimDisk::new(&world);
    let file = run(&world, async {
        disk.create_directory(path("/d")).await?;
        let file = disk.open(path("/d/f"), writable(durable)).await?;
        disk.sync_directory(path("/")).await?;
        disk.sync_directory(path("/d")).await?;
        Ok(file)
    });
    (world, disk, file)
}

/// Contents of `/d/f` after a crash, over many seeds; `None` where the file is gone.
fn outcomes(case: impl Fn(&World, &SimDisk, &Rc<dyn File>), durable: bool) -> Outcomes {
    let mut seen = Outcomes::new();
    for seed in 0..200 {
        let (world, disk, file) = with_file(seed, durable);
        case(&world, &disk, &file);
        world.crash();
        let disk = disk.crash();
        seen.insert(disk.medium().read(path("/d/f")).ok());
    }
    seen
}

type Outcomes = BTreeSet<Option<Vec<u8>>>;

#[test]
fn a_finished_durable_write_survives_every_crash() {
    let seen = outcomes(|world, _, file| run(world, file.write_at(block(7, 8192), 0)), true);
    assert_eq!(seen, Outcomes::from([Some(vec![7; 8192])]));
}

#[test]
fn an_unfinished_durable_write_is_torn_at_sectors() {
    let seen = outcomes(
        |world, _, file| {
            run(world, file.write_at(block(1, 4096), 0));
            let file = Rc::clone(file);
            let runtime = world.runtime(ShardId(0));
            runtime.spawn(Box::pin(async move {
                let _ = file.write_at(block(2, 4096), 0).await;
            }));
            // One turn submits it; its completion lies ahead.
            assert_eq!(world.run_steps(1), 1);
        },
        true,
    );
    assert!(seen.contains(&Some(vec![1; 4096])) && seen.contains(&Some(vec![2; 4096])));
    assert!(seen.len() > 10);
    for content in seen.iter().flatten() {
        assert_eq!(content.len(), 4096);
        for sector in content.chunks(512) {
            assert!(sector == [1; 512] || sector == [2; 512]);
        }
    }
}

#[test]
fn an_ordinary_write_survives_by_luck_until_synced() {
    let write = |world: &World, _: &SimDisk, file: &Rc<dyn File>| {
        run(world, file.write_at(block(1, 4096), 0));
        run(world, file.sync_data());
        run(world, file.write_at(block(2, 4096), 0));
        run(world, file.write_at(block(3, 4096), 0));
    };
    let seen = outcomes(write, false);
    for fill in [1, 2, 3] {
        assert!(seen.contains(&Some(vec![fill; 4096])), "{fill} is possible");
    }
    let synced = outcomes(
        |world, disk, file| {
            write(world, disk, file);
            run(world, file.sync_data());
        },
        false,
    );
    assert_eq!(synced, Outcomes::from([Some(vec![3; 4096])]));
    let synced = outcomes(
        |world, disk, file| {
            write(world, disk, file);
            run(world, disk.sync_filesystem());
        },
        false,
    );
    assert_eq!(synced, Outcomes::from([Some(vec![3; 4096])]));
}

#[test]
fn a_durable_write_buries_the_volatile_ones_before_it() {
    let seen = outcomes(
        |world, disk, file| {
            run(world, file.write_at(block(1, 8192), 0));
            let durable = run(world, disk.open(path("/d/f"), writable(true)));
            run(world, durable.write_at(block(2, 4096), 0));
        },
        false,
    );
    assert!(seen.len() > 2);
    let fronts = seen.iter().flatten().map(|content| content[..4096].to_vec());
    assert_eq!(fronts.collect::<BTreeSet<_>>(), BTreeSet::from([vec![2; 4096]]));
}

#[test]
fn a_sync_does_not_cover_a_write_that_ended_after_it_began() {
    let seen = outcomes(
        |world, disk, file| {
            disk.plan(|plan| {
                plan.delays.slow_one_in = 0;
                plan.delays.max_ns = plan.delays.min_ns;
            });
            run(world, file.write_at(block(1, 4096), 0));
            run(world, file.sync_data());
            let (writer, syncer) = (Rc::clone(file), Rc::clone(file));
            run(world, async {
                let write = writer.write_at(block(2, 4096), 0);
                let sync = syncer.sync_data();
                let (written, synced) = futures_lite::future::zip(write, sync).await;
                written.and(synced)
            });
        },
        false,
    );
    assert!(seen.contains(&Some(vec![1; 4096])), "the sync overtook the write");
}

#[test]
fn a_failed_sync_is_not_made_good_by_a_second_one() {
    let seen = outcomes(
        |world, disk, file| {
            run(world, file.write_at(block(1, 4096), 0));
            disk.plan(|plan| plan.fail_once(Operation::SyncData, "/d/f", 0));
            assert_eq!(fail(world, file.sync_data()), Some(libc::EIO));
            run(world, file.sync_data());
        },
        false,
    );
    assert!(seen.contains(&Some(vec![1; 4096])) && seen.contains(&Some(Vec::new())));
    let seen = outcomes(
        |world, disk, file| {
            run(world, file.write_at(block(1, 4096), 0));
            disk.plan(|plan| plan.fail_once(Operation::SyncFilesystem, "", 0));
            assert_eq!(fail(world, disk.sync_filesystem()), Some(libc::EIO));
            run(world, disk.sync_filesystem());
        },
        false,
    );
    assert!(seen.contains(&Some(Vec::new())));
}

#[test]
fn a_length_is_volatile_until_synced() {
    let cut = |world: &World, _: &SimDisk, file: &Rc<dyn File>| {
        run(world, file.write_at(block(1, 8192), 0));
        run(world, file.sync_data());
        run(world, file.set_length(1000));
    };
    let seen = outcomes(cut, false);
    let both = [Some(vec![1; 8192]), Some(vec![1; 1000])];
    assert_eq!(seen, Outcomes::from(both));
    let seen = outcomes(
        |world, disk, file| {
            cut(world, disk, file);
            run(world, file.sync_data());
            run(world, file.set_length(2000));
            run(world, file.sync_data());
        },
        false,
    );
    let mut grown = vec![1; 1000];
    grown.resize(2000, 0);
    assert_eq!(seen, Outcomes::from([Some(grown)]));
}

#[test]
fn a_write_behind_a_volatile_cut_makes_the_cut_durable() {
    let seen = outcomes(
        |world, _, file| {
            run(world, file.write_at(block(1, 8192), 0));
            run(world, file.set_length(0));
            run(world, file.write_at(block(2, 4096), 0));
        },
        true,
    );
    assert_eq!(seen, Outcomes::from([Some(vec![2; 4096])]));
}

#[test]
fn a_new_name_may_vanish_with_its_synced_content_until_its_directory_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (world, disk, _file) = with_file(seed, false);
        run(&world, disk.write(path("/d/new"), b"content"));
        world.crash();
        seen.insert(disk.crash().medium().read(path("/d/new")).ok());
    }
    assert_eq!(seen, BTreeSet::from([None, Some(b"content".to_vec())]));
    for seed in 0..100 {
        let (world, disk, _file) = with_file(seed, false);
        run(&world, disk.write(path("/d/new"), b"content"));
        run(&world, disk.sync_directory(path("/d")));
        world.crash();
        let after = disk.crash().medium();
        assert_eq!(after.read(path("/d/new")).expect("there"), b"content");
    }
}

#[test]
fn a_rename_is_old_or_new_and_replace_is_durable() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (world, disk, _file) = with_file(seed, false);
        run(&world, disk.replace(path("/d/a"), b"old"));
        run(&world, disk.write(path("/d/a.tmp"), b"new"));
        run(&world, disk.rename(path("/d/a.tmp"), path("/d/a")));
        world.crash();
        let after = disk.crash().medium();
        let tmp = after.read(path("/d/a.tmp")).ok();
        seen.insert((after.read(path("/d/a")).expect("never neither"), tmp));
    }
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    let expected = [(old.clone(), None), (old, Some(new.clone())), (new, None)];
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn names_of_different_directories_survive_independently() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (world, disk, _file) = with_file(seed, false);
        run(&world, disk.create_directory(path("/e")));
        run(&world, disk.sync_directory(path("/")));
        run(&world, disk.write(path("/d/x"), b"x"));
        run(&world, disk.write(path("/e/y"), b"y"));
        run(&world, disk.remove(path("/d/f")));
        world.crash();
        let after = disk.crash().medium();
        let has = |name| after.resolve(path(name)).is_ok();
        seen.insert((has("/d/x"), has("/e/y"), has("/d/f")));
    }
    assert_eq!(seen.len(), 8, "every combination");
}

#[test]
fn a_process_that_is_killed_loses_no_finished_write() {
    for seed in 0..50 {
        let (world, disk, file) = with_file(seed, false);
        run(&world, file.write_at(block(5, 4096), 0));
        world.crash();
        let disk = disk.kill_process();
        assert_eq!(run(&world, disk.read(path("/d/f"))), vec![5; 4096]);
    }
}

#[test]
fn a_full_disk_refuses_new_blocks_and_accepts_old_ones() {
    let (world, disk, file) = with_file(1, false);
    disk.plan(|plan| plan.capacity_bytes = Some(3 * 4096));
    run(&world, file.allocate(0, 8192));
    let space = run(&world, disk.space());
    assert_eq!((space.total_bytes, space.available_bytes), (12_288, 4096));
    assert_eq!(fail(&world, file.allocate(8192, 8192)), Some(libc::ENOSPC));
    // What fits of a write is written, and the length says so.
    let long = file.write_at(block(6, 16_384), 0);
    assert_eq!(fail(&world, long), Some(libc::ENOSPC));
    assert_eq!(run(&world, file.length()), 12_288);
    run(&world, file.write_at(block(7, 12_288), 0));
    assert_eq!(fail(&world, disk.write(path("/d/x"), b"x")), Some(libc::ENOSPC));
    disk.plan(|plan| plan.capacity_bytes = Some(4 * 4096));
    run(&world, disk.write(path("/d/x"), b"x"));
    run(&world, disk.remove(path("/d/x")));
    assert_eq!(run(&world, disk.space()).available_bytes, 4096);
    disk.plan(|plan| plan.full = true);
    assert_eq!(fail(&world, disk.write(path("/d/y"), b"")), Some(libc::ENOSPC));
    let open = disk.open(path("/d/y"), writable(false));
    assert_eq!(fail(&world, open), Some(libc::ENOSPC));
    run(&world, file.write_at(block(8, 12_288), 0));
}

#[test]
fn a_failed_write_leaves_every_sector_old_or_new() {
    let (world, disk, file) = with_file(2, true);
    run(&world, file.write_at(block(1, 4096), 0));
    disk.plan(|plan| plan.fail_once(Operation::Write, "/d/f", 0));
    let write = file.write_at(block(2, 4096), 0);
    assert_eq!(fail(&world, write), Some(libc::EIO));
    let content = run(&world, file.read_at(0, 4096));
    assert!(content.chunks(512).all(|sector| sector == [1; 512] || sector == [2; 512]));
    disk.plan(|plan| plan.fail_once(Operation::Read, "/d/f", 0));
    assert_eq!(fail(&world, file.read_at(0, 4096)), Some(libc::EIO));
    run(&world, file.write_at(block(3, 4096), 0));
    assert_eq!(run(&world, file.read_at(0, 8192)), vec![3; 4096]);
}

#[test]
fn names_answer_as_the_operating_system_does() {
    let (world, disk, _file) = with_file(3, false);
    let none = OpenMode::default();
    let new = OpenMode { create_new: true, ..writable(false) };
    let missing = fail(&world, disk.open(path("/d/none"), none));
    assert_eq!(missing, Some(libc::ENOENT));
    let exists = fail(&world, disk.open(path("/d/f"), new));
    assert_eq!(exists, Some(libc::EEXIST));
    assert_eq!(fail(&world, disk.open(path("/d"), none)), Some(libc::EISDIR));
    let through = disk.create_directory(path("/d/f/g"));
    assert_eq!(fail(&world, through), Some(libc::EEXIST));
    assert_eq!(fail(&world, disk.remove(path("/d"))), Some(libc::EISDIR));
    assert_eq!(fail(&world, disk.list(path("/x"), true, &[])), Some(libc::ENOENT));
    run(&world, disk.create_directory(path("/d/sub/deep")));
    run(&world, disk.append(path("/d/sub/note"), b"one"));
    run(&world, disk.append(path("/d/sub/note"), b"two"));
    let onto = disk.rename(path("/d/f"), path("/d/sub"));
    assert_eq!(fail(&world, onto), Some(libc::EISDIR));
    let entries = run(&world, disk.list(path("/d"), true, &["note"]));
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (entry.path.to_str(), entry.is_directory, entry.length))
        .collect();
    let expected = [
        (Some("f"), false, 0),
        (Some("sub"), true, 0),
        (Some("sub/deep"), true, 0),
        (Some("sub/note"), false, 6),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[3].content.as_deref(), Some(&b"onetwo"[..]));
    assert_eq!(run(&world, disk.list(path("/d"), false, &[])).len(), 2);
    run(&world, disk.remove_tree(path("/d/sub")));
    run(&world, disk.remove_tree(path("/d/sub")));
    assert_eq!(run(&world, disk.list(path("/d"), true, &[])).len(), 1);
}

#[test]
fn completions_arrive_out_of_order() {
    let (world, _disk, file) = with_file(4, true);
    let order = Rc::new(RefCell::new(Vec::new()));
    for index in 0..20u64 {
        let (file, order) = (Rc::clone(&file), Rc::clone(&order));
        world.runtime(ShardId(0)).spawn(Box::pin(async move {
            let write = file.write_at(block(1, 4096), index * 4096);
            write.await.expect("no fault");
            order.borrow_mut().push(index);
        }));
    }
    world.run_for(1_000).expect("no stall");
    let order = order.borrow().clone();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    assert_ne!(order, sorted);
}

fn panics(case: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(case).expect_err("misuse panics");
    let text = panic.downcast_ref::<String>().cloned();
    text.expect("a formatted message")
}

#[test]
fn misuse_panics() {
    let overlap = panics(|| {
        let (world, _disk, file) = with_file(5, true);
        let _ = world.run_until(futures_lite::future::zip(
            file.write_at(block(1, 8192), 0),
            file.write_at(block(2, 4096), 4096),
        ));
    });
    assert!(overlap.contains("meets a write"), "{overlap}");
    let read = panics(|| {
        let (world, _disk, file) = with_file(5, true);
        let _ = world.run_until(futures_lite::future::zip(
            file.read_at(0, 8192),
            file.write_at(block(2, 4096), 4096),
        ));
    });
    assert!(read.contains("meets a read"), "{read}");
    let late = panics(|| {
        let (world, _disk, file) = with_file(5, true);
        run(&world, Rc::clone(&file).close());
        run(&world, file.write_at(block(2, 4096), 4096));
    });
    assert!(late.contains("Write after close of /d/f"), "{late}");
    let twice = panics(|| {
        let (world, _disk, file) = with_file(5, true);
        run(&world, Rc::clone(&file).close());
        run(&world, file.close());
    });
    assert!(twice.contains("double close of /d/f"), "{twice}");
    let unaligned = panics(|| {
        let (world, _disk, file) = with_file(5, true);
        run(&world, file.write_at(block(2, 4096), 100));
    });
    assert!(unaligned.contains("unaligned position 100"), "{unaligned}");
}

#[test]
fn a_seed_gives_the_same_disk() {
    let trial = |seed| {
        let (world, disk, _file) = with_file(seed, false);
        let mut random = world.random("trial");
        random_run(&world, &disk, &mut random, 40);
        world.crash();
        let disk = disk.crash();
        (world.event_hash(), disk.medium().tree())
    };
    let mut hashes = BTreeSet::new();
    for seed in 0..20 {
        let (hash, tree) = trial(seed);
        assert_eq!(trial(seed), (hash, tree));
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 20);
}

/// What a sector may hold after a crash, and what it must not have lost: the naive model.
#[derive(Default)]
struct Possible {
    durable: BTreeMap<(usize, u64), u8>,
    volatile: BTreeMap<(usize, u64), BTreeSet<u8>>,
}

/// Random writes and syncs on three files, one after the other; returns what is possible after.
fn random_run(world: &World, disk: &SimDisk, random: &mut Random, steps: u64) -> Possible {
    let mut model = Possible::default();
    let names = ["/d/0", "/d/1", "/d/2"];
    // The last file is durable by itself.
    let files: Vec<_> = (0..3)
        .map(|index| run(world, disk.open(path(names[index]), writable(index == 2))))
        .collect();
    run(world, disk.sync_directory(path("/d")));
    for step in 0..steps {
        let index = random.index(3);
        let file = &files[index];
        match random.below(6) {
            0 => {
                run(world, file.sync_data());
                settle(&mut model, world, disk, &names, Some(index));
            }
            1 => {
                run(world, disk.sync_filesystem());
                settle(&mut model, world, disk, &names, None);
            }
            _ => {
                let fill = 1 + (step % 250) as u8;
                let first = random.below(8) * 8;
                let count = (1 + random.below(3)) * 8;
                let write = file.write_at(block(fill, count as usize * 512), first * 512);
                run(world, write);
                for sector in first..first + count {
                    let key = (index, sector);
                    if index == 2 {
                        model.durable.insert(key, fill);
                    } else {
                        model.volatile.entry(key).or_default().insert(fill);
                    }
                }
            }
        }
    }
    model
}

fn settle(
    model: &mut Possible,
    world: &World,
    disk: &SimDisk,
    names: &[&str],
    file: Option<usize>,
) {
    let keys: Vec<_> = model.volatile.keys().copied().collect();
    for (index, sector) in keys {
        if file.is_none_or(|file| file == index) {
            let content = run(world, disk.read(path(names[index])));
            model.volatile.remove(&(index, sector));
            model.durable.insert((index, sector), content[sector as usize * 512]);
        }
    }
}

#[test]
fn after_a_crash_every_sector_is_the_durable_or_a_later_one() {
    for seed in 0..300 {
        let (world, disk, _file) = with_file(seed, false);
        let mut random = world.random("model");
        let steps = random.below(40);
        let model = random_run(&world, &disk, &mut random, steps);
        world.crash();
        let after = disk.crash().medium();
        for (index, name) in ["/d/0", "/d/1", "/d/2"].iter().enumerate() {
            let content = after.read(path(name)).expect("its name is durable");
            let sectors = content.len() as u64 / 512;
            for (&(_, sector), _) in model.durable.iter().filter(|((file, _), _)| *file == index) {
                assert!(sector < sectors, "seed {seed}: a durable sector is cut off");
            }
            for sector in 0..sectors {
                let bytes = &content[sector as usize * 512..][..512];
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn sector");
                let key = (index, sector);
                let old = model.durable.get(&key).copied().unwrap_or(0);
                let later = model.volatile.get(&key);
                let is_later = later.is_some_and(|later| later.contains(&bytes[0]));
                assert!(bytes[0] == old || is_later, "seed {seed}: {key:?} is {}", bytes[0]);
            }
        }
    }
}

/// Names as a naive model has them: what each path held since the last sync, oldest first.
#[derive(Default)]
struct NameModel {
    held: BTreeMap<String, Vec<Option<u64>>>,
    /// Content that had a name, one or another, ever since the last sync.
    always: BTreeSet<u64>,
}

impl NameModel {
    fn now(&self, name: &str) -> Option<u64> {
        let held = self.held.get(name)?;
        held.last().copied().flatten()
    }

    fn set(&mut self, name: &str, content: Option<u64>) {
        let held = self.held.entry(name.to_owned());
        held.or_insert_with(|| vec![None]).push(content);
    }

    fn sync(&mut self) {
        for held in self.held.values_mut() {
            held.drain(..held.len() - 1);
        }
        let now = self.held.values().filter_map(|held| held[0]);
        self.always = now.collect();
    }

    /// Creates, renames, removes or syncs.
    fn step(&mut self, world: &World, disk: &SimDisk, random: &mut Random, content: u64) {
        let mut draw = || format!("/{}/{}", ["d", "e"][random.index(2)], random.below(3));
        let (name, target) = (draw(), draw());
        let there = self.now(&name);
        match (random.below(8), there) {
            (0, _) => {
                run(world, disk.sync_filesystem());
                self.sync();
            }
            (1, Some(gone)) => {
                run(world, disk.remove(path(&name)));
                self.set(&name, None);
                self.always.remove(&gone);
            }
            (_, Some(moved)) if name != target => {
                run(world, disk.rename(path(&name), path(&target)));
                if let Some(replaced) = self.now(&target) {
                    self.always.remove(&replaced);
                }
                self.set(&name, None);
                self.set(&target, Some(moved));
            }
            (_, None) => {
                run(world, disk.write(path(&name), &content.to_be_bytes()));
                self.set(&name, Some(content));
            }
            _ => {}
        }
    }
}

#[test]
fn after_a_crash_every_name_is_the_durable_or_a_later_one() {
    for seed in 0..300 {
        let (world, disk, _file) = with_file(seed, false);
        run(&world, disk.create_directory(path("/e")));
        run(&world, disk.sync_directory(path("/")));
        let mut random = world.random("names");
        let mut model = NameModel::default();
        for content in 0..random.below(60) {
            model.step(&world, &disk, &mut random, content);
        }
        world.crash();
        let after = disk.crash().medium();
        let mut found = Vec::new();
        for (name, held) in &model.held {
            let bytes = after.read(path(name)).ok();
            let content = bytes.map(|bytes| {
                u64::from_be_bytes(bytes.try_into().expect("a name has its whole content"))
            });
            assert!(held.contains(&content), "seed {seed}: {name} is {content:?}");
            found.extend(content);
        }
        let distinct: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(distinct.len(), found.len(), "seed {seed}: a rename is atomic");
        assert!(distinct.is_superset(&model.always), "seed {seed}: a file is gone");
    }
}

#[test]
fn crashes_repeat_and_corruption_stays() {
    let (world, disk, file) = with_file(9, true);
    run(&world, file.write_at(block(1, 4096), 0));
    disk.corrupt(path("/d/f"), 10, &[0xff]).expect("there");
    world.crash();
    let disk = disk.crash();
    world.crash();
    let disk = disk.crash();
    let mut expected = vec![1; 4096];
    expected[10] = 0xff;
    assert_eq!(run(&world, disk.read(path("/d/f"))), expected);
    assert_eq!(disk.medium().used_bytes(), 4096);
}
