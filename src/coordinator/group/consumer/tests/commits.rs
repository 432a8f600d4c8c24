//! Who may commit and see offsets.

use super::*;
use crate::coordinator::group::{CommitApi, Committer};

fn by(member: &str, generation: i32) -> Committer {
    Committer { member_id: member.to_owned(), instance_id: None, generation }
}

#[test]
fn commits_by_epoch() {
    let mut world = World::new();
    let nobody = world.group.check_commit(&by("", -1), CommitApi::Plain(9));
    assert_eq!(nobody, Ok(CommitCheck::All));
    world.say(&join("a", &["t1"])).expect("joined");
    world.say(&join("b", &["t1"])).expect("joined");
    world.say(&owning("a", 2, &[(1, &[0, 1, 2])])).expect("given up");
    world.say(&beat("b", 3)).expect("taken");
    let check = |committer: Committer, api: CommitApi, expected: Result<(), ErrorCode>| {
        let found = world.group.check_commit(&committer, api);
        assert_eq!(found.map(|check| assert_eq!(check, CommitCheck::All)), expected);
    };
    let plain = CommitApi::Plain(9);
    check(by("a", 3), plain, Ok(()));
    check(by("a", 4), plain, Err(ErrorCode::StaleMemberEpoch));
    check(by("x", 3), plain, Err(ErrorCode::UnknownMemberId));
    check(by("", -1), plain, Err(ErrorCode::UnknownMemberId));
    check(by("a", 3), CommitApi::Plain(8), Err(ErrorCode::UnsupportedVersion));
    check(by("", -1), CommitApi::Transactional, Ok(()));
    check(by("a", 3), CommitApi::Transactional, Ok(()));
    // Partitions that a member has had since then are taken with an older epoch too.
    let older = world.group.check_commit(&by("a", 2), plain).expect("in part");
    let t1 = Some(TopicId([1; 16]));
    let stale = Err(ErrorCode::StaleMemberEpoch);
    let found = [0, 2, 3].map(|partition| older.of_partition(t1, partition));
    assert_eq!(found, [Ok(()), Ok(()), stale]);
    assert_eq!(older.of_partition(Some(TopicId([2; 16])), 0), stale);
    assert_eq!(older.of_partition(None, 0), stale);
    let older = world.group.check_commit(&by("b", 2), plain).expect("in part");
    assert_eq!(older.of_partition(t1, 3), stale);
    let older = world.group.check_commit(&by("b", 2), CommitApi::Transactional).expect("in part");
    assert_eq!(older.of_partition(t1, 3), Err(ErrorCode::IllegalGeneration));
}

#[test]
fn partitions_that_are_to_be_given_up_are_still_committed() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    world.say(&join("b", &["t1"])).expect("joined");
    world.say(&beat("a", 2)).expect("told to give up");
    let check = world.group.check_commit(&by("a", 2), CommitApi::Plain(9));
    assert_eq!(check, Ok(CommitCheck::All));
}

#[test]
fn offsets_are_shown_to_members_with_their_epoch() {
    let mut world = World::new();
    world.say(&join("a", &["t1"])).expect("joined");
    let check = |member, epoch| world.group.check_fetch(member, epoch);
    assert_eq!(check(None, -1), Ok(()));
    assert_eq!(check(Some("a"), 2), Ok(()));
    assert_eq!(check(Some("a"), 1), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(check(Some("a"), -1), Err(ErrorCode::StaleMemberEpoch));
    assert_eq!(check(Some("x"), 2), Err(ErrorCode::UnknownMemberId));
    assert_eq!(check(None, 2), Err(ErrorCode::UnknownMemberId));
}
