//! C4: tokens only grow.

use super::kit::{Fixture, granted, kept, queued, released};
use crate::store::Revoked;
use crate::words::token::Token;

/// Holds a name's tokens to their promise.
#[derive(Default)]
struct Seen(Option<Token>);

impl Seen {
    fn next(&mut self, token: Token) {
        assert!(Some(token) > self.0, "token {token} after {:?}", self.0);
        assert!(token.as_u64() < Token::LIMIT, "token {token} is not below 2^53");
        self.0 = Some(token);
    }
}

pub(super) async fn c4_token_grows_over_release(f: Fixture) {
    let mut seen = Seen::default();
    for round in 0..10 {
        let client = if round % 3 == 0 { &f.a } else { &f.b };
        let ask = f.ask(&f.name("x"));
        seen.next(granted(client, &ask).await.token);
        released(client, &ask.claim).await;
    }
}

pub(super) async fn c4_token_grows_over_expiry(f: Fixture) {
    let mut seen = Seen::default();
    let name = f.name("x");
    seen.next(granted(&f.a, &f.brief(&name)).await.token);
    seen.next(f.after_lapse(&f.b, &f.brief(&name)).await.token);
    seen.next(f.after_lapse(&f.a, &f.brief(&name)).await.token);
}

pub(super) async fn c4_token_grows_over_revocation(f: Fixture) {
    let mut seen = Seen::default();
    let name = f.name("x");
    for at_once in [true, false, true] {
        let ask = f.ask(&name);
        let token = granted(&f.a, &ask).await.token;
        seen.next(token);
        let revoked = f.b.revoke(name.clone(), token, at_once).await.expect("revoke is answered");
        if let Revoked::Marked(_) = revoked {
            released(&f.a, &ask.claim).await;
        }
    }
    seen.next(granted(&f.b, &f.ask(&name)).await.token);
}

pub(super) async fn c4_token_grows_over_hand_over(f: Fixture) {
    let mut seen = Seen::default();
    let name = f.name("x");
    let mut holder = f.ask(&name);
    seen.next(granted(&f.a, &holder).await.token);
    for _ in 0..4 {
        let next = f.ask(&name);
        queued(&f.b, &next).await;
        released(&f.a, &holder.claim).await;
        seen.next(f.attended(&f.b, &next.claim, f.slack).await.token);
        kept(&f.b, &next.claim, f.long()).await;
        holder = next;
    }
}

pub(super) async fn c4_token_grows_over_reconnect(f: Fixture) {
    let mut seen = Seen::default();
    let name = f.name("x");
    for _ in 0..3 {
        let client = f.client().await;
        let ask = f.ask(&name);
        seen.next(granted(&client, &ask).await.token);
        released(&client, &ask.claim).await;
        client.close().await.expect("close is answered");
    }
    seen.next(granted(&f.a, &f.ask(&name)).await.token);
}

pub(super) async fn c4_token_stays_over_renewals(f: Fixture) {
    let ask = f.ask(&f.name("x"));
    let token = granted(&f.a, &ask).await.token;
    for _ in 0..5 {
        kept(&f.a, &ask.claim, f.long()).await;
        let standing = f.b.inspect(ask.claim.name.clone()).await.expect("inspect is answered");
        assert_eq!(standing.holder.map(|holder| holder.token), Some(token), "after a renewal");
    }
}
