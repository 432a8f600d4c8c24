//! The load generator: every command runs for a moment on a small broker, and tells its figures.
//!
//! No time is asserted, only that every figure is there and that those which do not depend on the
//! machine make sense.

use std::process::{Command, Stdio};

use serde_json::Value;

const BROKER: &[&str] = &[
    "--ringlog",
    env!("CARGO_BIN_EXE_ringlog"),
    "--data-dir",
    env!("CARGO_TARGET_TMPDIR"),
    "--set",
    "journal.ring.bytes=64MiB",
];

/// Runs `run WORDS --json` on a broker of its own.
fn run(words: &[&str]) -> Value {
    let all: Vec<&str> =
        ["run"].iter().chain(words).chain(BROKER).chain(&["--json"]).copied().collect();
    parse(&output(&all))
}

/// What the program prints; panics if it fails.
fn output(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ringlog-perf"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}\n{text}{errors}", output.status);
    text
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The numbers of these names; panics where one is none.
fn numbers(object: &Value, names: &[&str]) -> Vec<f64> {
    let of = |name: &&str| {
        object[*name].as_f64().unwrap_or_else(|| panic!("{name} is not a number in {object}"))
    };
    names.iter().map(of).collect()
}

fn rows(object: &Value) -> &Vec<Value> {
    object["rows"].as_array().unwrap_or_else(|| panic!("no rows in {object}"))
}

const FLOORS: &[&str] = &[
    "floor_dsync_p50_us",
    "floor_dsync_p99_us",
    "floor_echo_p50_us",
    "floor_echo_spinning_p50_us",
];

const LOADED_FLOORS: &[&str] = &[
    "floor_dsync_megabytes_per_second",
    "floor_paced_p50_us",
    "floor_paced_p99_us",
    "floor_paced_p999_us",
];

const LOAD: &[&str] = &[
    "requests_per_second",
    "megabytes_per_second",
    "p50_us",
    "p99_us",
    "p999_us",
    "broker_cores",
    "broker_cpu_seconds_per_gb",
    "broker_cpu_seconds_per_million_requests",
    "write_amplification",
    "resident_bytes",
];

#[test]
fn calibrate_tells_the_floors() {
    let floors =
        parse(&output(&["calibrate", "--json", "--data-dir", env!("CARGO_TARGET_TMPDIR")]));
    assert!(numbers(&floors, FLOORS).iter().all(|us| *us > 0.0), "{floors}");
    let more = ["memory_copy_gb_per_s", "echo_server_asleep_client_own_p50_us"];
    numbers(&floors, &[&more[..], LOADED_FLOORS].concat());
}

#[test]
fn produce_tells_latencies_and_what_the_broker_used() {
    let words = ["produce", "--seconds", "1", "--warm-up-seconds", "0", "--keyed", "--in-flight"];
    let produced = run(&[&words[..], &["4", "--connections", "2", "--rate", "200"]].concat());
    assert_eq!(produced["command"], "produce");
    numbers(&produced, FLOORS);
    assert!(numbers(&produced, LOAD).iter().all(|figure| *figure > 0.0), "{produced}");
    assert!(numbers(&produced, &["requests_per_journal_commit"])[0] >= 0.1, "{produced}");
}

#[test]
fn produce_without_acknowledgements_counts_what_was_sent() {
    let words = ["produce", "--seconds", "1", "--warm-up-seconds", "0", "--acks", "0"];
    let produced = run(&words);
    assert!(numbers(&produced, &["requests_per_second"])[0] > 0.0, "{produced}");
}

#[test]
fn fetch_reads_what_it_has_filled_in() {
    let fetched = run(&["fetch", "--seconds", "1", "--warm-up-seconds", "0"]);
    assert!(numbers(&fetched, LOAD)[1] > 0.0, "{fetched}");
}

#[test]
fn syscalls_are_counted_by_one_of_the_counters() {
    let counted = run(&["syscalls", "--seconds", "1", "--in-flight", "1,8"]);
    let each: Vec<f64> =
        rows(&counted).iter().map(|row| numbers(row, &["syscalls_per_request"])[0]).collect();
    assert_eq!(each.len(), 2);
    // A request that is read, written and answered takes three calls, unless it shares them.
    assert!(each[0] >= 3.0 && each[1] > 0.0, "{counted}");
}

#[test]
fn transactions_are_measured_by_both_protocols() {
    let words = ["txn", "--seconds", "1", "--partitions", "1,3", "--pairs", "1"];
    let measured = run(&words);
    let shares = ["protocol_1_throughput_share", "protocol_2_throughput_share"];
    assert!(numbers(&measured, &shares).iter().all(|share| *share > 0.0), "{measured}");
    let rows = rows(&measured);
    assert_eq!(rows.len(), 4);
    for row in rows {
        let names = ["commits", "end_txn_p50_us", "end_txn_p99_us", "until_next_p50_us"];
        assert!(numbers(row, &names).iter().all(|figure| *figure > 0.0), "{row}");
    }
}

#[test]
fn offsets_are_committed_in_transactions_of_both_protocols() {
    let words = ["txn", "--offsets", "--seconds", "1", "--partitions", "2", "--pairs", "0"];
    let measured = run(&words);
    let rows = rows(&measured);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let names = ["commits", "end_txn_p50_us", "offsets_p50_us"];
        assert!(numbers(row, &names).iter().all(|figure| *figure > 0.0), "{row}");
    }
}

#[test]
fn a_group_rebalances_and_its_heartbeats_write_nothing() {
    let words = ["groups", "--seconds", "1", "--members", "3,6", "--rebalances", "2"];
    let measured = run(&words);
    numbers(&measured, &["offset_commit_p50_us", "produce_p50_us"]);
    assert_eq!(rows(&measured).len(), 2);
    for row in rows(&measured) {
        let names = ["rebalance_median_ms", "join_median_ms", "broker_cpu_median_ms"];
        assert!(numbers(row, &names).iter().all(|figure| *figure > 0.0), "{row}");
        assert_eq!(numbers(row, &["heartbeat_journal_commits"]), [0.0], "{row}");
    }
}

#[test]
fn checkpoints_are_taken_in_one_of_two_brokers() {
    let words = ["checkpoint", "--pairs", "1", "--rate", "200", "--partitions", "4"];
    let compared = run(&words);
    let names = ["checkpoints", "share_of_time_in_checkpoints", "with_p99_us", "without_p99_us"];
    assert!(numbers(&compared, &names).iter().all(|figure| *figure > 0.0), "{compared}");
    numbers(&compared, &["p99_ratio"]);
}

#[test]
fn recovery_finds_the_journal_that_was_filled() {
    let recovered = run(&["recovery", "--journal-mib", "16"]);
    let filled = numbers(&recovered, &["journal_gb"])[0];
    assert!(filled >= 0.016, "{recovered}");
    numbers(&recovered, &["start_after_crash_s", "start_after_stop_s", "recovery_s_per_gb"]);
}

#[test]
fn a_pass_of_compaction_is_measured_alone_and_beside_a_load() {
    let words = ["compaction", "--input-mib", "12", "--segment-bytes", "2097152"];
    let compacted = run(&[&words[..], &["--pairs", "1", "--rate", "200"]].concat());
    let names = ["seconds", "cpu_seconds", "input_mb_per_s", "with_p99_us", "without_p99_us"];
    assert!(numbers(&compacted, &names).iter().all(|figure| *figure > 0.0), "{compacted}");
    let [input, written] = numbers(&compacted, &["input_bytes", "written_bytes"])[..] else {
        panic!("{compacted}")
    };
    // All but the open segment; half of the keys come again.
    assert!((8e6..=12.6e6).contains(&input), "{compacted}");
    assert!((0.4 * input..=0.75 * input).contains(&written), "{compacted}");
}

#[test]
fn cold_reads_are_measured_in_order_and_at_random() {
    let cold = run(&["cold", "--fill-mib", "16", "--seconds", "1", "--reads", "30"]);
    let names = ["share_of_device", "sequential_read_bytes", "sequential_read_ahead_bytes"];
    assert!(numbers(&cold, &names).iter().all(|figure| *figure > 0.0), "{cold}");
    let read = numbers(&cold, &["random_64_kib_read_per_returned"])[0];
    assert!(read > 0.5 && read <= 2.0, "{cold}");
}

#[test]
fn many_partitions_are_made_written_to_and_started_with() {
    let words = ["partitions", "--partitions", "60", "--few", "4", "--pairs", "1"];
    let more = ["--seconds", "1", "--rate", "200", "--starts", "1", "--shards", "2"];
    let found = run(&[&words[..], &more].concat());
    let names = ["created_s", "few_p99_us", "all_p99_us", "stop_s", "start_after_stop_s"];
    assert!(numbers(&found, &names).iter().all(|figure| *figure > 0.0), "{found}");
    numbers(&found, &["idle_cpu_percent_of_core", "p99_ratio"]);
}

#[test]
fn starts_are_measured_with_partitions_and_with_ids() {
    let started = run(&["starts", "--partitions", "8", "--ids", "100", "--starts", "1"]);
    let names = [
        "start_with_partitions_median_ms",
        "start_without_ids_median_ms",
        "start_with_ids_median_ms",
        "ids_told_without_ids_median_ms",
        "ids_told_with_ids_median_ms",
        "ids_told_with_ids_median_cpu_ms",
        "ids_told_after_crash_ms",
    ];
    assert!(numbers(&started, &names).iter().all(|figure| *figure > 0.0), "{started}");
}

#[test]
fn both_modes_are_measured_at_rest_and_under_load() {
    let measured = run(&["modes", "--seconds", "1", "--pairs", "1", "--rates", "0,100"]);
    let rest = ["balanced_idle_cpu_percent_of_core", "latency_idle_cpu_percent_of_core"];
    assert!(numbers(&measured, &rest).iter().all(|share| *share >= 0.0), "{measured}");
    assert_eq!(rows(&measured).len(), 4);
    for row in rows(&measured) {
        let names = ["p50_us", "p99_us", "broker_cores"];
        assert!(numbers(row, &names).iter().all(|figure| *figure > 0.0), "{row}");
    }
}

#[test]
fn an_idle_broker_is_weighed() {
    let words = ["idle", "--seconds", "1", "--partitions", "8", "--connections", "8"];
    let idle = run(&[&words[..], &["--producers", "64", "--ids", "64"]].concat());
    let names = [
        "resident_mib",
        "partition_bytes",
        "connection_bytes",
        "producer_bytes",
        "transactional_id_bytes",
        "idle_cpu_percent_of_core",
        "context_switches_per_second",
    ];
    numbers(&idle, &names);
}

#[test]
fn the_first_column_is_written_item_by_item() {
    let output_dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = output_dir.path().to_str().expect("a plain path");
    let words = ["first-column", "--tiny", "--only", "produce", "--output", path];
    let table = output(&[&words[..], BROKER].concat());
    let written = std::fs::read_to_string(output_dir.path().join("first-column.md"));
    assert_eq!(written.expect("the table"), table);
    assert!(!table.contains("not measured"), "{table}");
    let rows = std::fs::read_to_string(output_dir.path().join("first-column.json")).expect("rows");
    assert!(parse(&rows).as_array().is_some_and(|rows| rows.len() == 3), "{rows}");
}

/// The counters of a file, changed, and what the gate says to them.
#[test]
fn the_gate_fails_when_something_got_worse_and_says_when_it_got_better() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("counters.json");
    let file = path.to_str().expect("text");
    let words = ["gate", "--count", "requests", "--count", "allocations", "--runs", "1"];
    let all = [&words[..], &["--json", "--baseline", file], BROKER].concat();
    let run = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_ringlog-perf"))
            .args(&all)
            .args(more)
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    };
    assert!(run(&["--write"]).status.success());
    let written = parse(&std::fs::read_to_string(&path).expect("the file"));
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let commits = &written[profile]["journal_commits_per_produce_100b_1_in_flight"];
    assert_eq!(commits["value"], 1.0, "one request in flight is one block: {written}");
    let planted = |share: f64| {
        let mut planted = written.clone();
        for counter in planted[profile].as_object_mut().expect("counters").values_mut() {
            // What else the machine does is no part of this.
            counter["tolerance_percent"] = Value::from(1000.0);
        }
        let name = "allocations_per_produce_1kib_32_in_flight";
        let counter = &mut planted[profile][name];
        counter["tolerance_percent"] = Value::from(10.0);
        let value = counter["value"].as_f64().expect("a number");
        counter["value"] = Value::from(value * share);
        std::fs::write(&path, planted.to_string()).expect("written");
        let output = run(&[]);
        let (told, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
        let told = parse(&String::from_utf8(told).expect("text"));
        let row = rows(&told).iter().find(|row| row["counter"] == name).expect("its row").clone();
        (output.status.success(), row["verdict"].as_str().expect("text").to_owned(), errors)
    };
    let (passes, verdict, errors) = planted(0.7);
    assert_eq!((passes, verdict.as_str()), (false, "WORSE"), "{errors}");
    assert!(errors.contains("allocations_per_produce_1kib_32_in_flight: "), "{errors}");
    let (passes, verdict, errors) = planted(1.5);
    assert_eq!((passes, verdict.as_str()), (true, "better"), "{errors}");
    assert!(errors.contains("gate --write"), "{errors}");
    let (passes, verdict, errors) = planted(1.0);
    assert_eq!((passes, verdict.as_str()), (true, "same"), "{errors}");
}

#[test]
fn a_quick_comparison_runs_every_kind_of_scenario() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let own = [
        ("crash", "does = \"crash\"\nfilled_mib = 4\n"),
        ("restart", "does = \"restart\"\npartitions = 4\n"),
        ("drain", "does = \"produce\"\nrate = 100\nfilled_mib = 4\nreaders = 2\n"),
        ("fetch", "does = \"fetch\"\nfilled_mib = 4\nserve = [\"--memory\", \"64MiB\"]\n"),
    ];
    let mut words = vec!["compare", "--without-kafka", "--quick", "--output"];
    words.push(directory.path().to_str().expect("text"));
    let files = own.map(|(name, text)| {
        let path = directory.path().join(format!("{name}.toml"));
        std::fs::write(&path, format!("title = \"{name}\"\n{text}")).expect("written");
        path.to_str().expect("text").to_owned()
    });
    for name in [
        "end-to-end",
        "held-rate",
        "commit-1x10",
        "transactions-100ms",
        "offset-commits",
        "connections",
        "shards-2-single",
        "java-latency",
    ] {
        words.extend(["--scenario", name]);
    }
    for file in &files {
        words.extend(["--scenario", file]);
    }
    words.extend(BROKER);
    output(&words);
    let report = std::fs::read_to_string(directory.path().join("compare.json")).expect("a report");
    let report = parse(&report);
    numbers(&report["floors"], LOADED_FLOORS);
    let left_out = report["left_out"].as_array().expect("a list");
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert_eq!(left_out[0]["name"], "java-latency", "Kafka's programs come with Kafka");
    let scenarios = report["scenarios"].as_array().expect("scenarios");
    assert_eq!(scenarios.len(), 11);
    for scenario in scenarios {
        for broker in scenario["brokers"].as_array().expect("brokers") {
            let figures = broker["figures"].as_object().expect("figures");
            for (name, spread) in figures {
                let median = spread[0].as_f64().expect("a number");
                let may_be_none = scenario["name"] == "held-rate";
                assert!(median > 0.0 || may_be_none, "{name} of {}", scenario["name"]);
            }
        }
        let has = |figure: &str| scenario["brokers"][0]["figures"][figure][0].is_number();
        assert!(scenario["name"] != "drain" || has("read_megabytes_per_second"), "{scenario}");
        let stages = &scenario["brokers"][0]["stages_us"];
        assert!(scenario["name"] != "connections" || stages["device"].is_number(), "{scenario}");
    }
}

#[test]
fn compare_writes_a_report_of_every_scenario() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let output_directory = directory.path().to_str().expect("text");
    let words = ["compare", "--without-kafka", "--rounds", "2", "--seconds", "1"];
    let more = ["--warm-up-seconds", "0", "--first-warm-up-seconds", "0", "--output"];
    let chosen = ["--scenario", "one-by-one", "--scenario", "commit-10"];
    let all: Vec<&str> = words
        .iter()
        .chain(&more)
        .chain(&[output_directory])
        .chain(&chosen)
        .chain(BROKER)
        .copied()
        .collect();
    let table = output(&all);
    let read = |name: &str| {
        std::fs::read_to_string(directory.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    assert_eq!(table, read("compare.md"));
    // What its acknowledgement means, and a row in each scenario.
    assert_eq!(table.matches("\n| Ringlog, power-loss | ").count(), 3, "{table}");
    let report = parse(&read("compare.json"));
    numbers(&report["floors"], FLOORS);
    let scenarios = report["scenarios"].as_array().expect("scenarios");
    let names: Vec<_> = scenarios.iter().map(|scenario| scenario["name"].clone()).collect();
    assert_eq!(names, ["one-by-one", "commit-10"].map(Value::from));
    for scenario in scenarios {
        for broker in scenario["brokers"].as_array().expect("brokers") {
            let p50 = broker["figures"]["p50_us"].as_array().expect("a spread");
            let p50: Vec<f64> = p50.iter().map(|us| us.as_f64().expect("a number")).collect();
            assert!(p50[1] > 0.0 && p50[1] <= p50[0] && p50[0] <= p50[2], "{broker}");
        }
    }
    assert_eq!(read("compare.html").matches("<polyline").count(), 4);
}
