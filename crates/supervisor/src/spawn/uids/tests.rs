//! The table of uids: who is given which, and what is never given again.
//!
//! Runs in: tests.

use super::*;

fn table(text: &str) -> Uids {
    Uids::new("uids".into(), 51001..=51003, parse(text).unwrap(), HashSet::from([51002]))
}

#[test]
fn keeps_what_was_given_and_skips_users_of_the_machine() {
    let mut table = table("# comment\n51001 site/old\n");
    assert_eq!(table.stranger().unwrap().id(), 51003);
    assert_eq!(table.identity("site/new").unwrap().id(), 51003);
    assert!(table.stranger().is_none());
    assert_eq!(table.identity("site/old").unwrap().id(), 51001);
    assert!(table.identity("site/third").unwrap_err().to_string().contains("no uid is left"));
}

#[test]
fn what_no_process_has_had_is_given_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let none = |range| Uids::load(folder.path(), range).unwrap();
    let mut table = none(51001..=51009);
    let old = table.identity("site/old").unwrap();
    table.save().unwrap();
    let new = table.identity("site/new").unwrap();
    assert_eq!(table.take_given(), ["site/new"]);
    table.save().unwrap();
    table.take_back(&["site/new".to_owned()]).unwrap();
    assert_eq!((table.known("site/new").is_none(), table.take_given().len()), (true, 0));
    let mut table = none(51001..=51009);
    assert_eq!(table.known("site/new").map(|new| new.id()), None, "the file is as it was");
    assert_eq!(
        (table.identity("site/old").unwrap().id(), table.identity("site/other").unwrap().id()),
        (old.id(), new.id())
    );
}

#[test]
fn a_uid_that_is_given_is_added_to_the_file() {
    use std::os::unix::fs::MetadataExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("uids");
    let inode = || fs::metadata(&path).unwrap().ino();
    let load = || Uids::load(folder.path(), 51001..=51009).unwrap();
    let mut table = load();
    table.identity("site/a").unwrap();
    table.save().unwrap();
    let first = inode();
    for name in ["site/c", "site/b"] {
        table.identity(name).unwrap();
        table.save().unwrap();
        assert_eq!(inode(), first, "the file is the same one");
        assert_eq!(load().uid_of, table.uid_of);
    }
    let text = fs::read_to_string(&path).unwrap();
    table.save().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    // Somebody else has written to it, or removed it.
    let spoil: [&dyn Fn(); 2] = [&|| fs::write(&path, format!("{text}51005 site/other\n")).unwrap(), &|| {
        fs::remove_file(&path).unwrap()
    }];
    for (name, spoil) in ["site/d", "site/e"].into_iter().zip(spoil) {
        spoil();
        table.identity(name).unwrap();
        table.save().unwrap();
        assert_eq!(load().uid_of, table.uid_of);
    }
    // Lines that hold no more go.
    table.take_back(&["site/d".to_owned()]).unwrap();
    assert_eq!(load().uid_of, table.uid_of);
}

#[test]
fn what_was_being_written_as_the_machine_stopped_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("uids");
    let (whole, last) = ("# comment\n51001 site/shop\n", "51002 site/shop2\n");
    for end in 0..=last.len() {
        fs::write(&path, format!("{whole}{}", &last[..end])).unwrap();
        let mut table = Uids::load(folder.path(), 51001..=51009).unwrap();
        assert_eq!(table.known("site/shop").unwrap().id(), 51001);
        // Whoever edits the file may leave out the end of the line.
        let is_known = end + 1 >= last.len();
        assert_eq!(table.known("site/shop2").is_some(), is_known, "{:?}", &last[..end]);
        let next = table.identity("site/next").unwrap();
        table.save().unwrap();
        let again = Uids::load(folder.path(), 51001..=51009).unwrap();
        assert_eq!((again.uid_of == table.uid_of, again.known("site/next")), (true, Some(next)));
    }
    for wrong in ["nonsense", "51002x", "x 51002"] {
        fs::write(&path, format!("{whole}{wrong}")).unwrap();
        assert!(Uids::load(folder.path(), 51001..=51009).is_err(), "{wrong}");
    }
}

#[test]
fn a_range_grows_and_drops_nothing_that_was_given() {
    let mut table = table("400 site/outside\n51001 site/a\n51003 site/b\n");
    assert!(table.identity("site/new").is_err());
    for whole in [51001..=51009, 51000..=51003, 50000..=59999, 51001..=51003] {
        assert_eq!(table.may_become(&whole), Ok(()));
    }
    for (other, owner, uid, count) in [
        (51001..=51002, "site/b", 51003, 1),
        (51002..=51009, "site/a", 51001, 1),
        (1..=9, "site/a", 51001, 2),
    ] {
        let owner = owner.to_owned();
        assert_eq!(table.may_become(&other), Err(OutOfRange { owner, uid, count, all: 51001..=51003 }));
    }
    table.set_range(51001..=51005);
    assert_eq!(table.identity("site/new").unwrap().id(), 51004);
    table.set_range(51001..=51003);
    assert!(table.identity("site/new").unwrap_err().to_string().contains("outside of user_range"));
    assert!(table.identity("site/other").unwrap_err().to_string().contains("no uid is left"));
}

#[test]
fn a_range_is_scarce_from_80_hundredths_on() {
    for (given, is_scarce) in [(78, false), (79, true), (80, true)] {
        let lines: String = (0..given).map(|uid| format!("{} site/{uid}\n", 51101 + uid)).collect();
        let foreign = HashSet::from([51200, 51101, 1]);
        let table = Uids::new("uids".into(), 51101..=51200, parse(&lines).unwrap(), foreign);
        let share = table.share();
        assert_eq!((share.taken, share.percent()), (given + 1, u64::from(given) + 1));
        assert_eq!(share.is_scarce(), is_scarce, "{share}");
    }
}

#[test]
fn what_is_left_is_given_out_and_nobody_has_it() {
    let table = table("400 site/outside\n51001 site/a\n51003 site/b\n");
    for (had, left) in
        [(vec![], 2), (vec![51001], 1), (vec![400, 51002, 51003], 1), (vec![51001, 51003, 60000], 0)]
    {
        assert_eq!(table.left_beside(&had), left, "{had:?}");
    }
}

#[test]
fn an_owner_is_who_was_given_a_uid() {
    let mut table = table("51001 site/old\n51002 site/users\n");
    assert_eq!((table.owner(51001), table.owner(51002), table.owner(51003)), (Some("site/old"), None, None));
    table.identity("site/new").unwrap();
    assert_eq!(table.owner(51003), Some("site/new"));
}

#[test]
fn finds_accounts_by_their_whole_name() {
    let passwd =
        "root:x:0:0:root:/root:/bin/sh\nwww:x:7:8::/:\nwww-data:x:33:34:www-data:/var/www:/bin/false\nx\n";
    assert_eq!(account(passwd, "www-data"), Some((33, 34)));
    assert_eq!(account(passwd, "www"), Some((7, 8)));
    assert_eq!(account(passwd, "ww"), None);
    assert_eq!(account(passwd, "x"), None);
}

#[test]
fn an_account_is_not_root_and_not_a_partitions() {
    let refused = |table: Uids, user| table.account(user, "a").unwrap_err().to_string();
    assert!(refused(table(""), "root").contains("cannot run as root"));
    assert!(refused(table(""), "no-such-account").contains("there is no account"));
    assert!(refused(table("65534 site/old\n"), "nobody").contains("is site/old's"));
    assert_eq!(table("").account("nobody", "a").unwrap().id(), 65534);
}

#[test]
fn refuses_a_uid_that_two_names_share() {
    assert!(parse("51001 a\n51001 b\n").unwrap_err().contains("twice"));
    assert!(parse("51001 a\n51002 a\n").unwrap_err().contains("twice"));
    assert!(parse("nonsense\n").unwrap_err().contains("line 1"));
}

#[test]
fn refuses_a_uid_outside_of_the_range() {
    let error = table("400 site/old\n").identity("site/old").unwrap_err();
    assert!(error.to_string().contains("outside of user_range"));
}

#[test]
fn a_table_of_the_machine_that_cannot_be_read_names_more_than_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passwd");
    assert!(ids_in(&path).unwrap().is_empty());
    fs::write(&path, "root:x:0:0::/:\nann:x:1001:1001::/:\n").unwrap();
    assert_eq!(ids_in(&path).unwrap(), [0, 1001]);
    assert!(ids_in(folder.path()).is_err());
}
