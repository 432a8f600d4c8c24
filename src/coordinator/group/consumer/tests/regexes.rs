//! Subscriptions by regular expression.

use super::*;
use crate::limits::REGEX_BYTES_MAX;

fn by_regex(member: &str, regex: &str) -> Heartbeat {
    Heartbeat { topic_names: None, topic_regex: Some(regex.into()), ..join(member, &[]) }
}

#[test]
fn an_expression_is_resolved_after_the_join() {
    let mut world = World::new();
    assert_eq!(world.say(&by_regex("a", "t.*")), ok("1"));
    assert_eq!(world.sleep(0), [Timer::Regexes]);
    assert_eq!(world.say(&beat("a", 1)), ok("2 1:0,1,2,3,4,5 2:0,1,2"));
    // A second member with the same one need not wait.
    assert_eq!(world.say(&by_regex("b", "t.*")), ok("3"));
    // One that matches nothing is resolved too.
    world.sleep(10_001);
    world.say(&beat("a", 2)).expect("a");
    assert_eq!(world.say(&by_regex("c", "nothing")), ok("3"));
    assert_eq!(world.sleep(0), [Timer::Regexes]);
    assert!(world.group.regexes["nothing"].topics.is_empty());
    assert_eq!(world.group.epoch, 3);
    // With the last member that has it an expression is forgotten.
    world.say(&beat("c", -1)).expect("left");
    assert!(!world.group.regexes.contains_key("nothing"));
    world.say(&beat("a", -1)).expect("left");
    assert!(world.group.regexes.contains_key("t.*"));
    world.say(&beat("b", -1)).expect("left");
    assert!(world.group.regexes.is_empty());
}

#[test]
fn names_and_expression_add_up_and_whole_names_match() {
    let mut world = World::new();
    world.catalog.set("xt1", 5, 1);
    let both = Heartbeat { topic_names: Some(vec!["xt1".into()]), ..by_regex("a", "t1|none") };
    assert_eq!(world.say(&both), ok("2 5:0"));
    world.sleep(0);
    assert_eq!(world.say(&beat("a", 2)), ok("3 1:0,1,2,3,4,5 5:0"));
    // Without the expression the topics are given up at once.
    let dropped = Heartbeat { topic_regex: Some("".into()), ..owning("a", 3, &[(5, &[0])]) };
    assert_eq!(world.say(&dropped), ok("4 5:0"));
    assert!(world.group.regexes.is_empty());
}

#[test]
fn new_topics_are_found_but_not_at_every_heartbeat() {
    let mut world = World::new();
    world.say(&by_regex("a", "n.*")).expect("joined");
    world.sleep(0);
    world.catalog.set("new", 9, 1);
    assert_eq!(world.say(&beat("a", 1)), ok("1 -"));
    assert!(world.sleep(10_000).is_empty());
    world.say(&beat("a", 1)).expect("a");
    assert!(world.sleep(1).is_empty());
    world.say(&beat("a", 1)).expect("a");
    assert_eq!(world.sleep(0), [Timer::Regexes]);
    assert_eq!(world.say(&beat("a", 1)), ok("2 9:0"));
    // Nothing is new: nothing is written, nor resolved before its time.
    let written = world.log.len();
    world.sleep(20_000);
    world.say(&beat("a", 2)).expect("a");
    assert!(world.sleep(0).is_empty());
    assert_eq!(world.log.len(), written);
}

/// When expressions were resolved last is a time of the wall clock, which outlives the broker.
#[test]
fn a_clock_that_is_put_back_keeps_no_new_topic_waiting() {
    let mut world = World::new();
    world.say(&by_regex("a", "n.*")).expect("joined");
    world.sleep(0);
    world.catalog.set("new", 9, 1);
    world.now.wall_ms -= 3_600_000;
    world.say(&beat("a", 1)).expect("a");
    assert_eq!(world.sleep(0), [Timer::Regexes]);
    assert_eq!(world.say(&beat("a", 1)), ok("2 9:0"));
    // Nothing is new any more.
    world.say(&beat("a", 2)).expect("a");
    assert!(world.sleep(0).is_empty());
}

#[test]
fn expressions_that_are_none_are_refused() {
    let mut world = World::new();
    for pattern in ["t(", "[a", "a{2,1}", "\\", "*", "(?x)a\\", "((((.{1000}){1000}){1000}))"] {
        let answer = world.say(&by_regex("a", pattern));
        assert_eq!(answer, Err(ErrorCode::InvalidRegularExpression), "{pattern}");
    }
    assert!(world.log.is_empty());
}

#[test]
fn the_syntax_is_that_of_re2() {
    let check = |pattern: &str, yes: &[&str], no: &[&str]| {
        let regex = regex::compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for name in yes {
            assert!(regex.is_match(name), "{pattern} should match {name}");
        }
        for name in no {
            assert!(!regex.is_match(name), "{pattern} should not match {name}");
        }
    };
    check("a|b", &["a", "b"], &["ab", "xa", "bx", ""]);
    check("\\Qa.b\\E+", &["a.b", "a.bb"], &["axb"]);
    check("\\Qa|", &["a|"], &["a"]);
    check("[a&&b]+", &["a&b"], &["c"]);
    check("[[]x", &["[x"], &["x"]);
    check("[]a]+", &["]a"], &["b"]);
    check("[^]a]", &["b"], &["]", "a"]);
    check("[[:alpha:]_]+", &["ab_"], &["a1"]);
    check("[a~~b]+", &["~a"], &["c"]);
    check("\\pL+\\d", &["a1"], &["11"]);
    check("(?i)AB", &["ab"], &["a"]);
    check("orders-(?P<x>eu|us)\\.v[0-9]{1,2}", &["orders-eu.v12"], &["orders-eu-v1"]);
}

#[test]
fn an_expression_that_compiles_to_too_much_is_refused() {
    let large = |repeats: usize| format!("\\pL{{{repeats}}}");
    assert!(regex::compile(&large(1)).is_ok());
    let greedy = format!("({}){{{}}}", large(1_000), REGEX_BYTES_MAX / 16_384);
    let refused = regex::compile(&greedy).expect_err("refused");
    assert_eq!(refused, "expression is too large");
}
