//! One verdict after another, each by one change of a good host.

use super::*;

/// A host with nothing to mend.
fn facts() -> Facts {
    Facts {
        kernel: "6.18.2-generic".to_owned(),
        uring_refused: None,
        memlock_bytes: None,
        memlock_refused: None,
        open_files: Some(65_536),
        shards: 2,
        shard_cores: vec![0, 1],
        polls: false,
        cores_online: 2,
        interrupts: None,
        cores_isolated: String::new(),
        governor: None,
        clock_source: Some("tsc".to_owned()),
        huge_pages_always: false,
        swappiness: None,
        backlog: Some(4096),
        wake: Some(Spread { p50_us: 20.0, p99_us: 90.0 }),
        disk: DiskFacts {
            directory: PathBuf::from("/data"),
            file_system: Ok(None),
            free_bytes: Some(100 << 30),
            wanted_bytes: 1 << 30,
            device: Some("vda".to_owned()),
            block_bytes: Some(512),
            write_back: Some(true),
            fua: Some(true),
            dsync: Some(Spread { p50_us: 110.0, p99_us: 400.0 }),
        },
    }
}

/// The findings that are not good, after a change of the good host.
fn after(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Level, String, String)> {
    let mut facts = facts();
    change(&mut facts);
    let findings = examine(&facts);
    assert_eq!(findings.len(), 17, "one per subject, always");
    findings
        .into_iter()
        .filter(|finding| finding.level != Level::Good)
        .map(|finding| (finding.subject, finding.level, finding.found, finding.mend))
        .collect()
}

fn one(
    change: impl FnOnce(&mut Facts),
    subject: &'static str,
    level: Level,
    found: &str,
    mend: &str,
) {
    assert_eq!(after(change), [(subject, level, found.to_owned(), mend.to_owned())]);
}

#[test]
fn a_good_host_has_nothing_to_mend() {
    assert_eq!(after(|_| {}), []);
    assert!(can_serve(&examine(&facts())));
}

#[test]
fn old_kernels_are_told_from_old_enough_ones() {
    let kernel = |release: &str| {
        after(|facts| facts.kernel = release.to_owned()).first().map(|finding| finding.1)
    };
    assert_eq!(kernel("4.19.0"), Some(Level::Bad));
    assert_eq!(kernel("5.14.21-x"), Some(Level::Bad));
    assert_eq!(kernel("5.15-rc1"), Some(Level::Warn));
    assert_eq!(kernel("6.1.0"), None);
    assert_eq!(kernel("10.0"), None);
    assert_eq!(kernel("strange"), Some(Level::Warn));
}

#[test]
fn a_refusal_of_the_start_is_bad_and_keeps_its_words() {
    let sentence = "io_uring is switched off by kernel.io_uring_disabled = 2: set it to 0 with \
                    `sysctl -w kernel.io_uring_disabled=0`";
    let change = |facts: &mut Facts| facts.uring_refused = Some(sentence.to_owned());
    one(
        change,
        "io_uring",
        Level::Bad,
        "io_uring is switched off by kernel.io_uring_disabled = 2",
        "set it to 0 with `sysctl -w kernel.io_uring_disabled=0`",
    );
    let mut refused = facts();
    change(&mut refused);
    assert!(!can_serve(&examine(&refused)));
    one(
        |facts| facts.disk.file_system = Err("/data is on tmpfs: choose another".to_owned()),
        "file system",
        Level::Bad,
        "/data is on tmpfs",
        "choose another",
    );
    one(
        |facts| {
            facts.memlock_bytes = Some(65_536);
            facts.memlock_refused = Some("too low: raise it".to_owned());
        },
        "locked memory",
        Level::Bad,
        "too low",
        "raise it",
    );
}

#[test]
fn limits_of_the_process_name_their_cure() {
    one(
        |facts| facts.open_files = Some(1024),
        "descriptors",
        Level::Warn,
        "1024 files and connections can be open at once",
        "ulimit -n 16384 or LimitNOFILE=16384",
    );
    one(
        |facts| facts.backlog = Some(128),
        "backlog",
        Level::Warn,
        "128 connections may wait to be accepted",
        "sysctl -w net.core.somaxconn=1024",
    );
}

#[test]
fn settings_of_the_kernel_name_their_cure() {
    let mends = |change: fn(&mut Facts)| after(change).pop().expect("a finding").3;
    let performance = "cpupower frequency-set -g performance";
    assert_eq!(mends(|facts| facts.governor = Some("powersave".to_owned())), performance);
    assert_eq!(after(|facts| facts.governor = Some("performance".to_owned())), []);
    let source = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(mends(|facts| facts.clock_source = Some("hpet".to_owned())), source);
    let pages = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(mends(|facts| facts.huge_pages_always = true), pages);
    let swap = "swapoff -a, or sysctl -w vm.swappiness=1";
    assert_eq!(mends(|facts| facts.swappiness = Some(60)), swap);
    assert_eq!(after(|facts| facts.swappiness = Some(1)), []);
    let idle = "cpupower idle-set -D 10, or give the machine idle cores";
    assert_eq!(mends(|facts| facts.wake = Some(Spread { p50_us: 150.0, p99_us: 900.0 })), idle);
}

#[test]
fn one_core_is_too_few_and_isolated_ones_are_named() {
    assert_eq!(after(|facts| facts.shards = 1)[0].1, Level::Warn);
    let mut facts = facts();
    facts.cores_isolated = "1\n".to_owned();
    let findings = examine(&facts);
    let cores = findings.iter().find(|finding| finding.subject == "cores").expect("cores");
    assert_eq!(cores.found, "2 online, 2 for this process, 1 isolated");
}

#[test]
fn cores_that_poll_are_nobody_elses() {
    one(
        |facts| facts.polls = true,
        "cores",
        Level::Warn,
        "2 online, 2 for this process, none isolated; shards that poll leave none to clients and \
         interrupts",
        "--shards 1, or --mode balanced",
    );
    let larger = |facts: &mut Facts| (facts.polls, facts.cores_online) = (true, 4);
    one(
        larger,
        "cores",
        Level::Warn,
        "4 online, 2 for this process, none isolated; the scheduler puts others on cores that poll",
        "boot with isolcpus=0,1 nohz_full=0,1",
    );
    let isolated = |facts: &mut Facts| {
        larger(facts);
        facts.cores_isolated = "0-1".to_owned();
    };
    assert_eq!(after(isolated), []);
}

#[test]
fn interrupts_of_devices_belong_on_other_cores() {
    let often = |per_second| {
        let device = "virtio1-req.0".to_owned();
        Some(Interrupts { number: 31, device, core: 1, per_second })
    };
    one(
        |facts| (facts.interrupts, facts.cores_online) = (often(9_000.0), 4),
        "interrupts",
        Level::Warn,
        "virtio1-req.0 interrupts core 1 of a shard 9000 times a second",
        "echo 2,3 > /proc/irq/31/smp_affinity_list, and keep irqbalance from it",
    );
    assert_eq!(after(|facts| (facts.interrupts, facts.cores_online) = (often(50.0), 4)), []);
    // There is no other core.
    assert_eq!(after(|facts| facts.interrupts = often(9_000.0)), []);
    let (before, now) = (
        " 31:        100         50 PCI-MSIX-0000:00:01.0   1-edge      virtio1-req.0",
        " 31:        101         80 PCI-MSIX-0000:00:01.0   1-edge      virtio1-req.0",
    );
    let found = probe::interrupts_of(now, before, &[0, 1]);
    assert_eq!(found, Some((31, "virtio1-req.0".to_owned(), 1, 30)));
    let found = probe::interrupts_of(now, before, &[0]);
    assert_eq!(found, Some((31, "virtio1-req.0".to_owned(), 0, 1)));
    assert_eq!(probe::interrupts_of("LOC: 9 9 Local timer", "LOC: 1 1 Local timer", &[0]), None);
}

#[test]
fn space_blocks_and_cache_of_the_device_are_judged() {
    one(
        |facts| facts.disk.free_bytes = Some(1 << 29),
        "space",
        Level::Bad,
        "512.0 MiB free, a first start allocates 1.0 GiB",
        "free some, or lower journal.ring.bytes",
    );
    assert_eq!(after(|facts| facts.disk.free_bytes = Some(2 << 30))[0].1, Level::Warn);
    one(
        |facts| facts.disk.block_bytes = Some(8192),
        "blocks",
        Level::Bad,
        "8192 bytes each, at most 4096 are served",
        "choose a --data-dir on a device with smaller logical blocks",
    );
    one(
        |facts| facts.disk.fua = Some(false),
        "write cache",
        Level::Warn,
        "vda needs a flush after each durable write",
        "only if its cache survives power loss: echo 'write through' > \
         /sys/block/vda/queue/write_cache",
    );
    assert_eq!(after(|facts| facts.disk.write_back = Some(false)), []);
    one(
        |facts| facts.disk.dsync = Some(Spread { p50_us: 4_000.0, p99_us: 9_000.0 }),
        "durable write",
        Level::Warn,
        "4 KiB in p50 4000 us, p99 9000 us; no acknowledgement can be faster",
        "use a local SSD, or --durability process-crash where power loss may lose data",
    );
}

#[test]
fn the_profile_for_containers_allows_what_a_broker_needs() {
    let profile = include_str!("../../config/seccomp-io_uring.json");
    let profile: serde_json::Value = serde_json::from_str(profile).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
    let rules = profile["syscalls"].as_array().expect("rules");
    let refused: Vec<&str> = rules
        .iter()
        .filter(|rule| rule["args"].is_null())
        .flat_map(|rule| rule["names"].as_array().expect("names"))
        .filter_map(serde_json::Value::as_str)
        .collect();
    for needed in ["io_uring_setup", "io_uring_enter", "io_uring_register", "fallocate", "syncfs"] {
        assert!(!refused.contains(&needed), "{needed}");
    }
    assert!(["mount", "ptrace", "bpf", "unshare"].iter().all(|name| refused.contains(name)));
}

#[test]
fn this_host_is_looked_at_without_a_trace() {
    let root = tempfile::tempdir().expect("temporary directory");
    let mut config = crate::config::load(None, &[]).expect("defaults");
    config.data_dir = root.path().join("not/there");
    let facts = probe::facts(&config);
    assert_eq!(facts.disk.directory, root.path());
    assert!(facts.kernel.contains('.'), "{}", facts.kernel);
    let dsync = facts.disk.dsync.expect("measured");
    assert!(3.0 < dsync.p50_us && dsync.p50_us <= dsync.p99_us, "{dsync:?}");
    let wake = facts.wake.expect("measured");
    assert!(0.0 < wake.p50_us && wake.p50_us <= wake.p99_us, "{wake:?}");
    assert_eq!(std::fs::read_dir(root.path()).expect("list").count(), 0, "nothing is left");
}
