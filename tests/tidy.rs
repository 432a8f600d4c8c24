//! The repository's own rules, read off every source file: what must not be written where, how a
//! file begins, how long it and its functions may be, and that tables say the same everywhere.
//!
//! A rule that is broken is named with file, line and what to do instead. The two tables of long
//! files and functions only ever get shorter: an entry that is no longer needed has to go, and a
//! new one wants a good reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringlog::wire::versions::SERVED;

/// Text that must not appear in code.
struct Ban {
    text: &'static str,
    /// Where it is forbidden: prefixes of paths.
    inside: &'static [&'static str],
    /// Where it is allowed all the same.
    but_not: &'static [&'static str],
    /// Whether tests may have it.
    tests_may: bool,
    instead: &'static str,
}

const ALL: &[&str] = &["src/", "tests/", "benches/", "perf/"];
const SRC: &[&str] = &["src/"];
/// Code that is given `now` and bytes, and reaches the machine through the seams of `src/io` only.
const SANS_IO: &[&str] = &[
    "src/api/",
    "src/batch/",
    "src/coordinator/",
    "src/journal/",
    "src/log/",
    "src/metadata/",
    "src/metrics/",
    "src/recovery/",
    "src/shard/",
    "src/tools/",
    "src/wire/",
];

const BANS: &[Ban] = &[
    ban("glommio::", SRC, &["src/io/"], "the traits of src/io: only it names the runtime"),
    ban("Latency::Matters", ALL, &[], "the default queue: such a queue stalls for good"),
    ban("yield_if_needed", ALL, &["src/io/executor.rs"], "Runtime::yield_now"),
    ban(".yield_(", ALL, &["src/io/executor.rs"], "Runtime::yield_now"),
    ban("preempt_timer", ALL, &["src/io/executor.rs"], "Runtime::yield_now"),
    ban("need_preempt", ALL, &["src/io/executor.rs"], "Runtime::yield_now"),
    ban("println!", SRC, &["src/main.rs"], "tracing, or a writer that is handed in"),
    ban("print!(", SRC, &["src/main.rs"], "tracing, or a writer that is handed in"),
    lax(
        "Instant::now",
        SRC,
        &["src/io/", "src/doctor/probe.rs"],
        "Runtime::now, handed in as `now`",
    ),
    lax("SystemTime::now", SRC, &["src/io/"], "Runtime::wall_ms, handed in as `now_ms`"),
    lax(
        "thread::sleep",
        SRC,
        &["src/broker.rs", "src/doctor/probe.rs"],
        "Runtime::sleep_until: nothing blocks a shard",
    ),
    lax("std::fs", SANS_IO, &[], "io::Disk"),
    lax("std::net", SANS_IO, &[], "io::Stream"),
    lax("std::thread", SANS_IO, &[], "Runtime::spawn"),
    lax(
        "collections::HashMap",
        &["src/log/", "src/shard/", "src/journal/writer.rs"],
        &[],
        "hashbrown with foldhash: this is a hot path",
    ),
    lax(
        "collections::HashSet",
        &["src/log/", "src/shard/", "src/journal/writer.rs"],
        &[],
        "hashbrown with foldhash: this is a hot path",
    ),
    lax("unsafe ", SRC, &["src/io/", "src/preflight.rs"], "safe code, or a wrapper in src/io"),
    lax(".unwrap()", SRC, &[], "`?`, or `expect(\"invariant: ...\")`"),
    lax("anyhow", SRC, &["src/main.rs", "src/wire/encode.rs"], "an error type of the module"),
    lax("process::abort", SRC, &[], "a panic: its hook writes the report"),
    ban("todo!", ALL, &[], "the code"),
    ban("unimplemented!", ALL, &[], "the code"),
    ban("dbg!", ALL, &[], "tracing"),
    ban("#[ignore", ALL, &[], "a test that runs, perhaps with fewer rounds"),
    ban("#[should_panic", ALL, &[], "an assertion about what is returned"),
];

/// Files longer than [`FILE_LINES_SOFT`].
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions longer than [`FUNCTION_LINES`].
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

const FILE_LINES_SOFT: usize = 800;
const FILE_LINES_HARD: usize = 1200;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// What may stand at the top, apart from names that begin with a dot.
const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "config",
    "perf",
    "src",
    "tests",
];

/// What a checkout collects and git ignores.
const IGNORED: &[&str] = &["target", "ringlog-data"];

const NAMES_THAT_SAY_NOTHING: &[&str] =
    &["common", "helper", "helpers", "manager", "misc", "util", "utils"];

const POSTPONED: &[&str] = &["TODO", "FIXME", "XXX"];

const fn ban(
    text: &'static str,
    inside: &'static [&'static str],
    but_not: &'static [&'static str],
    instead: &'static str,
) -> Ban {
    Ban { text, inside, but_not, tests_may: false, instead }
}

const fn lax(
    text: &'static str,
    inside: &'static [&'static str],
    but_not: &'static [&'static str],
    instead: &'static str,
) -> Ban {
    Ban { text, inside, but_not, tests_may: true, instead }
}

/// A source file.
struct Source {
    /// Path from the top, with slashes.
    path: String,
    text: String,
    /// First line (from 0) that is compiled for tests only.
    tests_from: usize,
}

impl Source {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate()
    }

    /// Lines without comments, with their numbers from 0.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_in(&self, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.path.starts_with(prefix))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut pending: Vec<PathBuf> = ["src", "tests", "benches", "perf"].map(PathBuf::from).to_vec();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(root().join(&directory)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(source(&path));
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(found.len() > 100, "only {} files found", found.len());
    found
}

fn source(path: &Path) -> Source {
    let text = fs::read_to_string(root().join(path)).expect("a text file");
    let path = path.to_str().expect("a plain name").to_owned();
    let only_tests = !path.starts_with("src/")
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.ends_with("/fixture.rs");
    let inline = || text.lines().position(|line| line.trim_start() == "mod tests {");
    let tests_from = if only_tests { 0 } else { inline().unwrap_or(usize::MAX) };
    Source { path, text, tests_from }
}

fn report(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn nothing_banned_is_written() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.path != "tests/tidy.rs") {
        for ban in BANS.iter().filter(|ban| source.is_in(ban.inside)) {
            if source.is_in(ban.but_not) {
                continue;
            }
            for (number, line) in source.code() {
                if has(line, ban.text) && !(ban.tests_may && number >= source.tests_from) {
                    broken.push(format!(
                        "{}:{}: `{}`: use {}",
                        source.path,
                        number + 1,
                        ban.text,
                        ban.instead
                    ));
                }
            }
        }
    }
    report(&broken);
}

/// Whether the line has the text, not as the end of a longer word, nor in a brace list of a `use`.
fn has(line: &str, text: &str) -> bool {
    let plain = line.match_indices(text).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
            || !text.starts_with(char::is_alphanumeric)
    });
    let listed = match text.rsplit_once("::") {
        Some((module, item)) if line.trim_start().starts_with("use ") => {
            line.contains(&format!("{module}::{{"))
                && line.split(['{', '}', ',', ' ', ';']).any(|word| word == item)
        }
        _ => false,
    };
    plain || listed
}

#[test]
fn expectations_name_their_invariant() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.is_in(SRC)) {
        for (number, line) in source.code().filter(|(number, _)| *number < source.tests_from) {
            if line.contains(".expect(\"") && !line.contains(".expect(\"invariant: ") {
                let place = format!("{}:{}", source.path, number + 1);
                broken.push(format!("{place}: begin the text of `expect` with \"invariant: \""));
            }
        }
    }
    report(&broken);
}

#[test]
fn every_file_begins_with_what_it_owns() {
    let mut broken = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//! ") {
            broken.push(format!("{}: begin with `//!` and what the file owns", source.path));
        }
        let stem = Path::new(&source.path).file_stem().and_then(|stem| stem.to_str());
        if stem.is_some_and(|stem| NAMES_THAT_SAY_NOTHING.contains(&stem)) {
            broken.push(format!("{}: name the file by what it owns", source.path));
        }
    }
    report(&broken);
}

#[test]
fn lines_are_short_and_clean() {
    let mut broken = Vec::new();
    for source in sources() {
        for (number, line) in source.lines() {
            let place = format!("{}:{}", source.path, number + 1);
            if line.chars().count() > COLUMNS {
                broken.push(format!("{place}: more than {COLUMNS} columns"));
            }
            if line.chars().any(char::is_control) {
                broken.push(format!("{place}: a tab or another control character"));
            }
            let postponed = POSTPONED.iter().any(|mark| line.contains(mark));
            if postponed && source.path != "tests/tidy.rs" {
                broken.push(format!("{place}: do it now, or say it in the README"));
            }
        }
    }
    report(&broken);
}

#[test]
fn files_are_short() {
    let allowed: BTreeMap<&str, usize> = LONG_FILES.iter().copied().collect();
    let mut broken = Vec::new();
    let mut needed = Vec::new();
    for source in sources() {
        let count = source.text.lines().count();
        if count <= FILE_LINES_SOFT {
            continue;
        }
        needed.push(source.path.clone());
        let most = allowed.get(source.path.as_str()).copied().unwrap_or(FILE_LINES_SOFT);
        if count > most.min(FILE_LINES_HARD) {
            broken.push(format!("{}: {count} lines, {most} allowed: divide it", source.path));
        }
    }
    for (path, _) in LONG_FILES {
        if !needed.iter().any(|needed| needed == path) {
            broken.push(format!("{path} is short now: take it out of LONG_FILES"));
        }
    }
    report(&broken);
}

#[test]
fn functions_are_short() {
    let mut broken = Vec::new();
    let mut needed = Vec::new();
    for source in sources() {
        for (name, number, count) in functions(&source.text) {
            if count <= FUNCTION_LINES {
                continue;
            }
            let entry = LONG_FUNCTIONS
                .iter()
                .find(|(path, function, _)| *path == source.path && *function == name);
            let most = entry.map_or(FUNCTION_LINES, |(_, _, most)| *most);
            needed.push((source.path.clone(), name.clone()));
            if count > most {
                broken.push(format!(
                    "{}:{number}: `{name}` has {count} lines, {most} allowed: divide it",
                    source.path
                ));
            }
        }
    }
    for (path, function, _) in LONG_FUNCTIONS {
        if !needed.contains(&((*path).to_owned(), (*function).to_owned())) {
            broken.push(format!("`{function}` of {path} is short now: take it out"));
        }
    }
    report(&broken);
}

/// Name, first line and number of lines of every function with a body. Relies on the formatter:
/// a body ends with a brace that is indented as its `fn` is.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let is_end = |line: &&str| {
            let text = line.trim_start();
            line.len() - text.len() == indent && !text.is_empty()
        };
        let mut rest = lines[start + 1..].iter();
        let whole = line.trim_end().ends_with(['}', ';']);
        if whole {
            continue;
        }
        let end = rest.position(|line| is_end(line) && (*line).trim() == "}");
        let signature = lines[start + 1..].iter().find(|line| is_end(line));
        let has_body = signature.is_some_and(|line| !line.trim_end().ends_with(';'));
        if let (Some(end), true) = (end, has_body) {
            found.push((name, start + 1, end + 2));
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start();
    for prefix in ["pub(super) ", "pub(crate) ", "pub ", "const ", "async ", "unsafe "] {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let rest = words.strip_prefix("fn ")?;
    let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    (end > 0).then(|| rest[..end].to_owned())
}

#[test]
fn functions_are_measured() {
    let text = "impl A {\n    pub async fn a(\n        &self,\n    ) -> B\n    where\n    \
                \x20   C: D,\n    {\n        1\n    }\n    fn b(\n        &self,\n    ) -> B;\n    \
                fn c() {}\n}\nfn d() {\n    2\n}\n";
    let found = functions(text);
    assert_eq!(found, [("a".to_owned(), 2, 8), ("d".to_owned(), 15, 3)]);
    assert!(has("use std::collections::{BTreeMap, HashMap};", "collections::HashMap"));
    assert!(!has("use std::collections::{BTreeMap, HashMapping};", "collections::HashMap"));
    assert!(has("    let a = b.unwrap();", ".unwrap()") && !has("    mydbg!(a);", "dbg!"));
}

#[test]
fn every_api_is_told_the_same_everywhere() {
    let mut broken = Vec::new();
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let mut files: Vec<String> = vec!["mod.rs".to_owned()];
    for row in SERVED {
        let (name, key) = (format!("{:?}", row.api), row.api.key());
        let versions = format!("{}-{}", row.min, row.max);
        let line = format!("| {key} | {name} | {versions} |");
        if !readme.lines().any(|found| found == line) {
            broken.push(format!("README.md: its table of APIs lacks `{line}`"));
        }
        let file = format!("{}.rs", snake_case(&name));
        let head = format!("//! {name} (key {key}), versions {versions}.");
        let text = fs::read_to_string(root().join("src/api").join(&file)).unwrap_or_default();
        if text.lines().next() != Some(head.as_str()) {
            broken.push(format!("src/api/{file}: begin with `{head}`"));
        }
        files.push(file);
    }
    let rows = readme.lines().filter(|line| {
        line.split('|').nth(1).is_some_and(|cell| cell.trim().parse::<i16>().is_ok())
    });
    if rows.count() != SERVED.len() {
        broken.push("README.md: its table of APIs has a row too many or too few".to_owned());
    }
    for entry in fs::read_dir(root().join("src/api")).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".rs") && !files.contains(&name) {
            broken.push(format!("src/api/{name}: no API of that name is served"));
        }
    }
    report(&broken);
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(character.to_lowercase());
    }
    text
}

/// What a test reaches that does not name the constant: the test, or why there is none.
const REACHED: &[(&str, Reached)] = &[
    ("JOURNAL_BLOCK_BYTES_MIN", Reached::Always),
    ("JOURNAL_BLOCK_BYTES_COPIED", Reached::Always),
    ("JOURNAL_BLOCKS_IN_FLIGHT_MAX", Reached::Always),
    ("JOURNAL_SEAL_IDLE_MS", Reached::Always),
    ("WRITE_BEHIND_BYTES", Reached::By("large_requests_of_many_at_once_are_all_served")),
    ("SEGMENT_WRITE_BYTES_MAX", Reached::By("large_requests_of_many_at_once_are_all_served")),
    ("SEGMENT_ALLOCATE_BYTES", Reached::By("large_requests_of_many_at_once_are_all_served")),
    ("CLEANER_SLICE_BYTES", Reached::By("compacted_topics_keep_the_newest_value_of_every_key")),
    ("CLEANER_PARTITIONS_PER_TURN", Reached::Never("a turn that lasts longer shows nowhere")),
    ("MEMORY_HELD_MS_MAX", Reached::By(HALF_SENT)),
    ("MEMORY_LOOK_MS", Reached::By(HALF_SENT)),
    ("MEMORY_HURRY_BYTES", Reached::By(HALF_SENT)),
    ("FETCH_BYTES_GRANTED_MIN", Reached::By(NEVER_READS)),
    ("DESCRIPTORS_PER_SHARD", Reached::By(FEW_DESCRIPTORS)),
    ("DESCRIPTORS_OF_PROCESS", Reached::By(FEW_DESCRIPTORS)),
    ("SEGMENT_FILES_OPEN_MAX", Reached::By("files_come_before_connections_but_leave_them_half")),
    ("KEEPALIVE_IDLE_S", Reached::By("the_kernel_asks_after_peers_that_say_nothing")),
    ("KEEPALIVE_INTERVAL_S", Reached::By("the_kernel_asks_after_peers_that_say_nothing")),
    ("KEEPALIVE_PROBES", Reached::By("the_kernel_asks_after_peers_that_say_nothing")),
    ("LISTEN_BACKLOG", Reached::Never("the kernel's queue; it drops what comes beyond, untold")),
    ("ACCEPT_PAUSE_MS", Reached::By(FEW_DESCRIPTORS)),
    (
        "MAILBOX_MESSAGES_MAX",
        Reached::By("what_does_not_fit_waits_in_the_outbox_and_follows_in_order"),
    ),
    (
        "MAILBOX_REQUESTS_MAX",
        Reached::By("requests_hold_credit_until_answered_and_control_needs_none"),
    ),
    ("MESSAGES_PER_TURN_MAX", Reached::By("real_threads_lose_nothing")),
    ("PRODUCER_BATCHES_REMEMBERED", Reached::Always),
    ("INFLATED_ORDINARY_BYTES_MAX", Reached::By("a_gzip_bomb_costs_its_own_connection_only")),
    ("VALIDATE_SLICE_BYTES", Reached::By("a_gzip_bomb_costs_its_own_connection_only")),
    ("JOURNAL_REPLAY_CHUNKS_AHEAD", Reached::By("reading_is_chunked")),
    ("JOURNAL_PROBE_BYTES", Reached::By("what_is_not_in_use_is_looked_at_here_and_there")),
    ("JOURNAL_PROBE_STRIDE_BYTES", Reached::By("what_is_not_in_use_is_looked_at_here_and_there")),
    ("REPLAY_WRITES_AHEAD", Reached::Never("a start that waits for a write shows nowhere")),
    ("READ_BYTES_MAX", Reached::By("a_reader_that_goes_on_is_read_ahead_of")),
    ("READ_AHEAD_BYTES_MIN", Reached::By("a_reader_that_goes_on_is_read_ahead_of")),
    ("READ_AHEAD_BYTES_MAX", Reached::By("a_reader_that_goes_on_is_read_ahead_of")),
    ("CHECKPOINT_LOOK_MS", Reached::Never("a pause between two looks, and no bound")),
    ("SPACE_CHECK_INTERVAL_MS", Reached::By(FULL_DISK)),
    ("PRODUCER_ID_BLOCK", Reached::Always),
    ("TXN_APPEND_RETRY_MS", Reached::Never("a pause after a failed append, and no bound")),
    ("MARKER_RETRY_MS_MIN", Reached::Never("a pause after a failed append, and no bound")),
    ("MARKER_RETRY_MS_MAX", Reached::Never("a pause after a failed append, and no bound")),
    ("COORDINATOR_LOAD_BYTES", Reached::By(LOADED)),
    ("EXECUTOR_MEMLOCK_BYTES_MIN", Reached::By("memlock_ports_and_shards_are_judged")),
    ("STREAM_READ_BYTES_MIN", Reached::By("both_directions_carry_large_writes_at_once")),
    ("STREAM_READ_BYTES_MAX", Reached::By("both_directions_carry_large_writes_at_once")),
    ("STREAM_CALLS_PER_TURN_MAX", Reached::By("both_directions_carry_large_writes_at_once")),
    ("CATALOG_LOG_BYTES_MAX", Reached::By("changes_survive_reopening_and_rotation")),
    ("OPEN_FILES_COMFORTABLE", Reached::By(FEW_DESCRIPTORS)),
    ("GROUPS_PER_TURN_MAX", Reached::By("groups_are_gone_through_in_pieces")),
    ("METRICS_TOPICS_MAX", Reached::By("a_topic_beyond_the_bound_is_counted_as_one")),
    ("HTTP_CONNECTIONS_MAX", Reached::By("clients_of_the_endpoint_that_misbehave_pay_alone")),
    ("HTTP_HEAD_BYTES_MAX", Reached::By("clients_of_the_endpoint_that_misbehave_pay_alone")),
    ("HTTP_REQUEST_MS_MAX", Reached::By("clients_of_the_endpoint_that_misbehave_pay_alone")),
    ("SLOW_LINES_MAX", Reached::By(SLOW)),
    ("SLOW_LINES_WINDOW_MS", Reached::By("slow_lines_are_few_and_say_how_many_were_left_out")),
    ("CONCURRENT_TRANSACTIONS_RETRY_MS", Reached::By(NOT_HELD)),
    ("CONCURRENT_TRANSACTIONS_RETRY_MS_MAX", Reached::By(NOT_HELD)),
    ("FETCH_SESSION_PARTITION_BYTES", Reached::By("partitions_of_all_sessions_are_bounded")),
    ("REQUEST_ELEMENT_BYTES", Reached::By("elements_tags_and_lengths_of_a_request")),
    ("PROCESS_MEMORY_BYTES", Reached::By(IDLE)),
    ("INFLATION_MEMORY_BYTES_MAX", Reached::By("with_memory_the_largest_window_is_taken")),
    ("SMALL_MEMORY_BELOW_BYTES", Reached::By(IDLE)),
    ("SMALL_MEMORY_KEPT_MS", Reached::By("everything_at_once_stays_within_what_memory_promises")),
    ("FRAME_ROOM_FACTOR", Reached::By("a_large_frame_grows_in_few_steps_to_its_own_size")),
];

/// Whether a bound is reached.
enum Reached {
    /// By this test.
    By(&'static str),
    /// By nearly every test that writes anything.
    Always,
    /// By none, and why.
    Never(&'static str),
}

const LOADED: &str =
    "an_internal_topic_that_inflates_to_much_is_loaded_piece_by_piece_or_not_at_all";
const SLOW: &str = "slow_requests_beyond_the_bound_are_counted_and_not_written_about";
const NOT_HELD: &str = "without_holds_a_batch_waits_for_the_transaction_before_so_long_only";
const IDLE: &str = "a_thousand_idle_partitions_and_connections_cost_what_is_said";
const HALF_SENT: &str =
    "half_sent_requests_that_fill_the_memory_are_given_up_before_others_wait_long";
const NEVER_READS: &str = "a_client_that_never_reads_is_given_up_and_its_responses_are_bounded";
const FEW_DESCRIPTORS: &str =
    "without_descriptors_newcomers_wait_and_files_are_written_all_the_same";
const FULL_DISK: &str =
    "a_full_disk_refuses_records_loses_none_and_serves_again_once_there_is_space";

#[test]
fn every_limit_is_reached_by_a_test_or_says_why_not() {
    let sources = sources();
    let limits = sources.iter().find(|source| source.path == "src/limits.rs").expect("the limits");
    let named_in_tests = |name: &str| {
        let elsewhere = |path: &str| path != "tests/tidy.rs" && !path.starts_with("src/metrics/");
        sources.iter().filter(|source| elsewhere(&source.path)).any(|source| {
            let from = source.tests_from;
            source.code().any(|(number, line)| number >= from && line.contains(name))
        })
    };
    let mut broken = Vec::new();
    for line in limits.text.lines() {
        let constant = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':'));
        let Some((name, _)) = constant else { continue };
        match REACHED.iter().find(|(known, _)| *known == name) {
            Some((_, Reached::By(test))) => {
                let signature = format!("fn {test}()");
                if !sources.iter().any(|source| source.text.contains(&signature)) {
                    broken.push(format!("{name}: there is no test {test}"));
                }
            }
            Some((_, Reached::Never(reason))) => {
                if reason.is_empty() {
                    broken.push(format!("{name}: say why no test reaches it"));
                }
            }
            Some((_, Reached::Always)) => {}
            None if named_in_tests(name) => {}
            None => broken.push(format!("{name}: write a test that reaches it and names it")),
        }
    }
    for (name, _) in REACHED {
        if !limits.text.contains(&format!("pub const {name}:")) {
            broken.push(format!("{name} is no longer there: take it out of REACHED"));
        }
    }
    report(&broken);
}

#[test]
fn every_limit_is_used() {
    let sources = sources();
    let limits = sources.iter().find(|source| source.path == "src/limits.rs").expect("the limits");
    let mut broken = Vec::new();
    for (number, line) in limits.code() {
        let Some((name, _)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':'))
        else {
            continue;
        };
        let used = sources
            .iter()
            .filter(|source| source.path != "src/limits.rs")
            .any(|source| source.code().any(|(_, line)| line.contains(name)));
        if !used {
            broken.push(format!("src/limits.rs:{}: nothing uses {name}", number + 1));
        }
    }
    report(&broken);
}

#[test]
fn every_dependency_has_its_reason() {
    let library = fs::read_to_string(root().join("src/lib.rs")).expect("the library");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let mut broken = Vec::new();
    let mut in_dependencies = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_dependencies = line.ends_with("dependencies]");
            continue;
        }
        let name = line.split([' ', '=']).next().unwrap_or_default();
        if !in_dependencies || name.is_empty() || name.starts_with('#') {
            continue;
        }
        if !library
            .lines()
            .any(|line| line.starts_with("//! - `") && line.contains(&format!("`{name}`")))
        {
            broken.push(format!("src/lib.rs: say in a line what `{name}` is for"));
        }
    }
    report(&broken);
}

#[test]
fn the_top_level_is_fixed() {
    let mut broken = Vec::new();
    for entry in fs::read_dir(root()).expect("the top") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let fixed = TOP_LEVEL.contains(&name.as_str()) || IGNORED.contains(&name.as_str());
        if !fixed && !name.starts_with('.') {
            broken.push(format!("{name}: nothing new stands at the top"));
        }
    }
    report(&broken);
}
