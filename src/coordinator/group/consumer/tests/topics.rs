//! Topics that come, go and grow.

use super::*;

#[test]
fn growth_deletion_and_creation_are_noticed_at_the_next_heartbeat() {
    let mut world = World::new();
    assert_eq!(world.say(&join("a", &["t1", "new"])), ok("2 1:0,1,2,3,4,5"));
    world.catalog.set("t1", 1, 7);
    assert_eq!(world.say(&beat("a", 2)), ok("3 1:0,1,2,3,4,5,6"));
    world.catalog.set("new", 9, 1);
    assert_eq!(world.say(&beat("a", 3)), ok("4 1:0,1,2,3,4,5,6 9:0"));
    // The same name is another topic.
    world.catalog.set("new", 8, 1);
    assert_eq!(world.say(&beat("a", 4)), ok("4 1:0,1,2,3,4,5,6"));
    assert_eq!(world.say(&owning("a", 4, &[(1, &[0])])), ok("5 1:0,1,2,3,4,5,6 8:0"));
    world.catalog.remove("t1");
    assert_eq!(world.say(&owning("a", 5, &[])), ok("6 8:0"));
    // What does not concern it costs nothing.
    let written = world.log.len();
    world.catalog.set("other", 7, 1);
    assert_eq!(world.say(&beat("a", 6)), ok("6 -"));
    assert_eq!(world.log.len(), written);
}

#[test]
fn topics_kept_as_kafka_4_0_did_are_deleted() {
    let mut world = World::new();
    world.take(Plan { changes: vec![ConsumerChange::OldTopics(true)], ..Plan::new(()) });
    world.say(&join("a", &["t1"])).expect("joined");
    assert!(!world.group.has_old_topics);
}
