//! C11: answers say what to do.

use super::kit::{Fixture, busy, granted, holder, queued, released};
use crate::words::busy::Why;
use crate::words::name::Name;
use crate::words::owner::Label;

pub(super) async fn c11_busy_names_the_holder(f: Fixture) {
    let mut held = f.ask(&f.name("x"));
    held.label = Label::new("somebody on a machine").expect("a label");
    let grant = granted(&f.a, &held).await;
    let told = match busy(&f.b, &f.ask(&held.claim.name)).await.why {
        Why::Held(holder) => holder,
        other => panic!("a held name is {other:?}"),
    };
    assert_eq!(told.owner, held.claim.owner, "the holder");
    assert_eq!(told.label, held.label, "the holder's label");
    assert_eq!(told.token, grant.token, "the holder's token");
    assert!(!told.left.is_zero() && told.left <= grant.ttl, "{:?} left of {:?}", told.left, grant.ttl);
}

pub(super) async fn c11_busy_tells_place_and_number(f: Fixture) {
    let (held, first, second) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    let told = busy(&f.b, &f.ask(&held.claim.name)).await;
    assert_eq!((told.waiting, told.place), (0, None), "nobody waits");
    let told = queued(&f.b, &first).await;
    assert_eq!((told.waiting, told.place), (1, Some(1)), "the first waits");
    let told = queued(&f.a, &second).await;
    assert_eq!((told.waiting, told.place), (2, Some(2)), "the second waits");
    released(&f.b, &first.claim).await;
    let told = queued(&f.a, &second).await;
    assert_eq!((told.waiting, told.place), (1, Some(1)), "the first has left");
}

pub(super) async fn c11_inspect_shows_holder_and_waiters(f: Fixture) {
    let (held, first, second) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    let name = &held.claim.name;
    let nobody = f.b.inspect(name.clone()).await.expect("inspect is answered");
    assert!(nobody.holder.is_none() && nobody.waiting == 0, "a name that never was: {nobody:?}");
    let grant = granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    queued(&f.a, &second).await;
    let standing = f.b.inspect(name.clone()).await.expect("inspect is answered");
    assert_eq!(standing.name, *name, "the name");
    let told = standing.holder.expect("a holder");
    assert_eq!((told.owner, told.token), (held.claim.owner, grant.token), "the holder");
    assert_eq!(standing.waiting, 2, "how many wait");
    let waiters: Vec<_> = standing.waiters.iter().map(|waiter| waiter.owner).collect();
    assert_eq!(waiters, [first.claim.owner, second.claim.owner], "the queue in its order");
    assert_eq!((standing.kept_back, standing.revoked), (None, None), "what is not so");
}

pub(super) async fn c11_inspect_and_list_hide_the_lapsed(f: Fixture) {
    let (lapsing, freed) = (f.brief(&f.name("lapsing")), f.ask(&f.name("freed")));
    granted(&f.a, &lapsing).await;
    granted(&f.a, &freed).await;
    assert_eq!(holder(&f.b, &lapsing.claim.name).await, Some(lapsing.claim.owner), "the holder while held");
    assert_eq!(listed(&f).await, [freed.claim.name.clone(), lapsing.claim.name.clone()], "while held");
    released(&f.a, &freed.claim).await;
    assert_eq!(listed(&f).await, std::slice::from_ref(&lapsing.claim.name), "after a release");
    f.until(f.ttl + f.slack, "an empty list", async || listed(&f).await.is_empty().then_some(())).await;
    assert_eq!(holder(&f.b, &lapsing.claim.name).await, None, "the holder of a lapsed name");
}

async fn listed(f: &Fixture) -> Vec<Name> {
    let page = f.b.list(f.prefix(), None).await.expect("list is answered");
    page.names.into_iter().map(|standing| standing.name).collect()
}
