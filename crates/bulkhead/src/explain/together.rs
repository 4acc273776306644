//! Which of our own processes fall with which: all with the launcher, and those of one uid with each other.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration, and uids that the server reports. Never:
//! makes a pair of each two of a uid, as all processes of a rootless run have one.

use std::collections::BTreeMap;
use std::rc::Rc;

use config::Config;
use supervisor::spawn::process_spec::ProcessSpec;
use wire::Role;

use super::model::{Circle, Drag};
use super::ours::Uids;

/// The processes that fall with each, the circle that each is in, and all circles. Where no server says which uids
/// there are, sites of one account have the same.
pub fn together(
    config: &Config,
    posts: &[ProcessSpec],
    uids: &Uids,
) -> (Vec<Vec<Drag>>, Vec<Option<usize>>, Vec<Circle>) {
    let (places, circles) = circles(config, posts, uids);
    let started: Rc<str> = "it starts it, says what it is to do, and ends it".into();
    let with = |(number, post): (usize, &ProcessSpec)| match post.role {
        Role::Launcher => {
            let others = (0..posts.len()).filter(|other| *other != number);
            others.map(|process| Drag { process, how: started.clone() }).collect()
        }
        Role::Broker | Role::Service => {
            let partner = partner(posts, number)
                .filter(|&other| places[number].is_none() || places[number] != places[other]);
            let how = || "the broker has the uid of its service".into();
            partner.into_iter().map(|process| Drag { process, how: how() }).collect()
        }
        _ => Vec::new(),
    };
    (posts.iter().enumerate().map(with).collect(), places, circles)
}

/// A broker's service, and a service's broker, which stands right behind it.
fn partner(posts: &[ProcessSpec], number: usize) -> Option<usize> {
    let (post, other) = match posts[number].role {
        Role::Broker => (number, number.checked_sub(1)?),
        _ => (number + 1, number),
    };
    let (broker, service) = (posts.get(post)?, posts.get(other)?);
    let fits =
        (broker.role, service.role) == (Role::Broker, Role::Service) && broker.partition == service.partition;
    fits.then_some(if post == number { other } else { post })
}

/// Those of one uid, or of one account.
fn circles(config: &Config, posts: &[ProcessSpec], uids: &Uids) -> (Vec<Option<usize>>, Vec<Circle>) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, post) in posts.iter().enumerate() {
        let how = match uids.get(&post.name) {
            Some(uid) => Some(format!("both have the uid {uid}")),
            None if !uids.is_empty() => None,
            None => {
                account(config, post).map(|account| format!("both run as the account {account}, by `user`"))
            }
        };
        how.into_iter().for_each(|how| groups.entry(how).or_default().push(number));
    }
    let several = groups.into_iter().filter(|(_, members)| members.len() > 1);
    let circles: Vec<Circle> = several.map(|(how, members)| Circle { members, how: how.into() }).collect();
    let mut places = vec![None; posts.len()];
    for (circle, about) in circles.iter().enumerate() {
        about.members.iter().for_each(|&member| places[member] = Some(circle));
    }
    (places, circles)
}

/// The account that a site's worker runs as, if the configuration names one.
fn account<'c>(config: &'c Config, post: &ProcessSpec) -> Option<&'c str> {
    let site = post.site(config).filter(|_| post.role == Role::Site)?;
    site.worker.user.as_deref()
}
