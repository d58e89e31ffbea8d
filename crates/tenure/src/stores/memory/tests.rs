use super::*;
use crate::store::{ENTRY_LIFE, MAX_ENTRIES, Outcome, Terms};
use crate::words::busy::Why;
use crate::words::clock::Instant;
use crate::words::error::ErrorKind;
use crate::words::owner::{Label, Owner, random_bits};
use std::task::{Context, Poll, Waker};
use std::time::UNIX_EPOCH;

const TTL: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The answer of a future that is ready at once, as all of this store are.
fn at_once<T>(mut pending: Pending<T>) -> Result<T> {
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a memory store waits for nothing"),
    }
}

fn ask(name: &str) -> Ask {
    let claim = Claim::fresh(Name::new(name).expect("a name"));
    Ask { claim, label: Label::new("a test").expect("a label"), terms: Terms::of(TTL), queue: false }
}

fn queued(name: &str) -> Ask {
    Ask { queue: true, ..ask(name) }
}

fn granted(client: &Arc<dyn Store>, ask: &Ask) -> crate::store::Grant {
    match at_once(client.acquire(ask.clone())) {
        Ok(Answer::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn fact(client: &Arc<dyn Store>, key: &str) -> usize {
    let facts = at_once(client.examine()).expect("facts");
    let fact = facts.iter().find(|fact| fact.key == key).expect("such a fact");
    fact.value.parse().expect("a number")
}

fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Store>> {
    at_once(Box::pin(super::open(Address::parse(url)?, clock.clone())))
}

#[test]
fn a_url_names_one_server_of_the_process() {
    let clock = Clock::manual();
    let one = open("memory:", &clock).expect("a store");
    let same = open("memory:?session=shared", &clock).expect("a store");
    let other = open("memory:other", &clock).expect("a store");
    granted(&one, &ask("x"));
    assert!(matches!(at_once(same.acquire(ask("x"))), Ok(Answer::Busy(_))), "both faces, one server");
    granted(&other, &ask("x"));
    granted(&open("memory:", &Clock::manual()).expect("a store"), &ask("x"));
    assert_eq!(other.about().place, "this process, \"other\"");
}

#[test]
fn an_option_that_it_does_not_have_is_refused() {
    let wrong = |url| open(url, &Clock::manual()).expect_err("refused").to_string();
    assert_eq!(wrong("memory:?session=some"), "memory: session is \"some\": it may be each or shared");
    assert_eq!(wrong("memory:?ttl=1s"), "memory: has no option \"ttl\"; it has: session");
}

#[test]
fn a_queue_takes_no_more_than_its_limit() {
    let clock = Clock::manual();
    let client = Memory::new(clock.clone()).client();
    granted(&client, &ask("x"));
    for _ in 0..MAX_ENTRIES {
        assert!(matches!(at_once(client.acquire(queued("x"))), Ok(Answer::Busy(_))));
    }
    let error = at_once(client.acquire(queued("x"))).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    clock.advance(ENTRY_LIFE);
    let answer = at_once(client.acquire(queued("x")));
    let Ok(Answer::Busy(busy)) = answer else { panic!("{answer:?}") };
    assert_eq!((busy.waiting, busy.place), (1, Some(1)), "the dead make room");
}

#[test]
fn a_name_is_forgotten_when_its_token_is_a_day_old_and_not_before() {
    let clock = Clock::manual();
    let client = Memory::new(clock.clone()).client();
    for number in 0..100 {
        let ask = ask(&format!("idle-{number}"));
        granted(&client, &ask);
        at_once(client.release(ask.claim, Ending::Released)).expect("released");
    }
    let kept = ask("kept");
    granted(&client, &kept);
    clock.advance(DAY - Duration::from_secs(1));
    let sweep = || (0..60).for_each(|_| drop(at_once(client.acquire(ask("sweeper")))));
    sweep();
    assert_eq!(fact(&client, "names"), 102, "a day less a second");
    clock.advance(Duration::from_secs(1));
    sweep();
    assert_eq!(fact(&client, "names"), 1, "a day: the sweeper's own name is left");
}

#[test]
fn tokens_grow_over_any_step_of_the_wall_clock() {
    let clock = Clock::manual();
    let client = Memory::new(clock.clone()).client();
    let mut last = None;
    for wall in [1_900_000_000, 1_000, 1_800_000_000, 1_950_000_000, 5] {
        clock.set_wall(UNIX_EPOCH + Duration::from_secs(wall));
        let ask = ask("x");
        let token = granted(&client, &ask).token;
        assert!(Some(token) > last, "{token} after {last:?} at {wall}");
        last = Some(token);
        at_once(client.release(ask.claim, Ending::Released)).expect("released");
    }
}

#[test]
fn a_clock_that_is_far_off_stops_grants_and_not_releases() {
    let clock = Clock::manual();
    let client = Memory::new(clock.clone()).client();
    let (held, waiting) = (ask("x"), queued("x"));
    let wall = clock.wall();
    granted(&client, &held);
    assert!(matches!(at_once(client.acquire(waiting.clone())), Ok(Answer::Busy(_))));
    clock.set_wall(UNIX_EPOCH + Duration::from_micros(Token::LIMIT));
    let error = at_once(client.acquire(ask("y"))).expect_err("no token");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert_eq!(at_once(client.release(held.claim, Ending::Released)).expect("released"), Released::Released);
    let attended = at_once(client.attend(vec![waiting.claim.clone()])).expect("attended");
    assert!(matches!(attended[..], [Attended::Unknown(_)]), "{attended:?}");
    clock.set_wall(wall);
    let attended = at_once(client.attend(vec![waiting.claim])).expect("attended");
    assert!(matches!(attended[..], [Attended::Granted(_)]), "{attended:?}");
}

#[test]
fn a_forked_child_is_inert() {
    let mut memory = Memory::new(Clock::manual());
    let server = Arc::get_mut(&mut memory.server).expect("the only one");
    server.process = 0;
    // Another thread of the parent had the lock, and does not exist here.
    let server = memory.server.clone();
    let client = Client(Arc::new(Connection { server: server.clone(), id: 1 }));
    let _locked = server.state.lock();
    let error = at_once(client.acquire(ask("x"))).expect_err("inert");
    assert_eq!(error.kind(), ErrorKind::Closed);
    client.retire(Session([0; 16]));
    assert!(client.events().is_closed(), "no events");
    at_once(client.close()).expect("nothing to close");
    drop(client);
}

#[test]
fn a_closed_client_answers_so() {
    let client = Memory::with_shared_sessions(Clock::manual()).client();
    for _ in 0..2 {
        at_once(client.close()).expect("closed");
        assert_eq!(at_once(client.acquire(ask("x"))).expect_err("closed").kind(), ErrorKind::Closed);
    }
}

#[test]
fn nothing_is_granted_on_a_session_that_is_overdue() {
    let clock = Clock::manual();
    let client = Memory::with_shared_sessions(clock.clone()).client();
    let first = granted(&client, &ask("first")).trust.session;
    clock.advance(TTL / 2);
    assert_eq!(granted(&client, &ask("second")).trust.session, first, "due");
    clock.advance(Duration::from_millis(1));
    let grant = granted(&client, &ask("third"));
    assert_ne!(grant.trust.session, first, "overdue");
    assert_eq!(grant.trust.sent, clock.now());
}

#[test]
fn what_a_dead_client_leaves_is_swept() {
    let clock = Clock::manual();
    let memory = Memory::with_shared_sessions(clock.clone());
    for number in 0..20 {
        granted(&memory.client(), &ask(&format!("{number}")));
    }
    let client = memory.client();
    assert_eq!((fact(&client, "sessions"), fact(&client, "clients")), (20, 1));
    clock.advance(TTL);
    for _ in 0..20 {
        granted(
            &client,
            &Ask { claim: Claim::fresh(Name::new(Owner::fresh().to_string()).expect("a name")), ..ask("x") },
        );
    }
    assert_eq!(fact(&client, "sessions"), 1, "the sessions of the living");
}

/// Random verbs of random clients at random instants: nobody trusts a lease
/// beside another, tokens grow, and what was granted is free in the end.
#[test]
fn no_sequence_of_verbs_makes_two_holders() {
    for round in 0..200 {
        let mut random = Random(u64::from_be_bytes(random_bits()[..8].try_into().expect("eight bytes")) | 1);
        let seed = random.0;
        println!("round {round}: seed {seed}");
        random_verbs(&mut random, round % 2 == 0);
    }
}

struct Random(u64);

impl Random {
    /// xorshift, below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn random_verbs(random: &mut Random, shared: bool) {
    let clock = Clock::manual();
    let memory =
        if shared { Memory::with_shared_sessions(clock.clone()) } else { Memory::new(clock.clone()) };
    let clients: Vec<_> = (0..3).map(|_| memory.client()).collect();
    // Per name: the last token, and until when its owner trusts it.
    let mut trusted: Vec<Option<(Token, Owner, Instant)>> = vec![None; 3];
    let mut asks: Vec<(usize, usize, Ask)> = Vec::new();
    for _ in 0..300 {
        clock.advance(Duration::from_millis(random.below(1_500)));
        if asks.is_empty() || random.below(3) == 0 {
            let (client, name) = (random.below(3) as usize, random.below(3) as usize);
            let terms = Terms {
                hold_at_least: Duration::from_secs(random.below(2) * random.below(15)),
                one_shot: random.below(8) == 0,
                ..Terms::of(TTL)
            };
            let ask = Ask { queue: random.below(2) == 0, terms, ..ask(&format!("name-{name}")) };
            asks.push((client, name, ask));
        }
        let (client, name, ask) = asks[random.below(asks.len() as u64) as usize].clone();
        let (store, claim) = (&clients[client], ask.claim.clone());
        let mut trust = |token: Token, deadline: Instant| {
            let now = clock.now();
            let last = &mut trusted[name];
            if let Some((last_token, owner, until)) = last
                && *owner != claim.owner
            {
                assert!(*until <= now, "{owner} trusts it {:?} longer", *until - now);
                assert!(token > *last_token, "{token} after {last_token}");
            }
            *last = Some((token, claim.owner, deadline));
        };
        match random.below(8) {
            0 | 1 => {
                if let Ok(Answer::Granted(grant)) = at_once(store.acquire(ask)) {
                    trust(grant.token, grant.trust.deadline());
                }
            }
            2 => {
                if let [Attended::Granted(grant)] =
                    at_once(store.attend(vec![claim.clone()])).expect("answered")[..]
                {
                    trust(grant.token, grant.trust.deadline());
                }
            }
            3 | 4 => {
                let renewal = Renewal { claim: claim.clone(), ttl: TTL };
                if let [Outcome::Kept(kept)] =
                    at_once(store.renew(vec![renewal])).expect("answered").outcomes[..]
                {
                    // It may have been handed over, and this be the first that is heard of it.
                    let standing = at_once(store.inspect(claim.name.clone())).expect("answered");
                    let holder = standing.holder.expect("just renewed");
                    assert_eq!(holder.owner, claim.owner);
                    trust(holder.token, kept.deadline());
                }
            }
            5 | 6 => {
                let ending = if random.below(2) == 0 { Ending::Released } else { Ending::Undone };
                at_once(store.release(claim.clone(), ending)).expect("answered");
                if let Some((_, owner, until)) = &mut trusted[name]
                    && *owner == claim.owner
                {
                    *until = clock.now();
                }
            }
            _ => {
                if let Some(session) = trusted[name].and_then(|_| random_session(store, &claim)) {
                    store.retire(session);
                }
            }
        }
    }
    clock.advance(TTL + Duration::from_secs(15));
    for name in 0..3 {
        let last = ask(&format!("name-{name}"));
        match at_once(clients[0].acquire(last)) {
            Ok(Answer::Granted(_)) => {}
            other => panic!("blocked by nobody: {other:?}"),
        }
    }
}

/// The session that a claim hangs on, where it holds.
fn random_session(store: &Arc<dyn Store>, claim: &Claim) -> Option<Session> {
    match at_once(store.renew(vec![Renewal { claim: claim.clone(), ttl: TTL }])).ok()?.outcomes[..] {
        [Outcome::Kept(trust)] => trust.session,
        _ => None,
    }
}

#[test]
fn who_waits_for_what_is_kept_back_hears_how_long() {
    let clock = Clock::manual();
    let client = Memory::new(clock.clone()).client();
    let mut held = ask("x");
    held.terms.hold_at_least = TTL * 2;
    let waiting = queued("x");
    granted(&client, &held);
    let mut hints = client.events();
    assert!(matches!(at_once(client.acquire(waiting.clone())), Ok(Answer::Busy(_))));
    at_once(client.release(held.claim, Ending::Released)).expect("released");
    assert!(matches!(hints.try_recv(), Ok(Hint::Look(_))), "something has changed");
    let attended = at_once(client.attend(vec![waiting.claim])).expect("attended");
    let [Attended::Waiting(busy)] = &attended[..] else { panic!("{attended:?}") };
    assert_eq!(busy.why, Why::KeptBack(TTL * 2));
}

#[test]
fn a_ninth_ttl_on_sessions_is_refused_also_for_an_entry() {
    let clock = Clock::manual();
    let memory = Memory::with_shared_sessions(clock.clone());
    let (client, other) = (memory.client(), memory.client());
    let of = |name: &str, seconds: u64, queue| {
        let mut ask = Ask { queue, ..ask(name) };
        ask.terms.ttl = Duration::from_secs(seconds);
        ask
    };
    granted(&other, &ask("waited for"));
    let waits = of("waited for", 1, true);
    assert!(matches!(at_once(client.acquire(waits.clone())), Ok(Answer::Busy(_))));
    let held: Vec<_> = (2..=8).map(|seconds| of(&seconds.to_string(), seconds, false)).collect();
    for ask in &held {
        granted(&client, ask);
    }
    for ninth in [of("9", 9, false), of("waited for", 9, true)] {
        assert_eq!(at_once(client.acquire(ninth)).expect_err("refused").kind(), ErrorKind::Invalid);
    }
    granted(&client, &of("again", 1, false));
    let mut one_shot = of("one-shot", 9, false);
    one_shot.terms.one_shot = true;
    granted(&client, &one_shot);
    at_once(client.release(held[0].claim.clone(), Ending::Released)).expect("released");
    granted(&client, &of("9", 9, false));
    let plain = Memory::new(clock).client();
    for seconds in 1..=9 {
        granted(&plain, &of(&seconds.to_string(), seconds, false));
    }
}

#[test]
fn a_mark_is_forgotten_with_the_lease_that_it_was_set_on() {
    let clock = Clock::manual();
    let memory = Memory::with_shared_sessions(clock.clone());
    let (client, other) = (memory.client(), memory.client());
    let marks = || memory.server.lock().marks();
    let mark = |ask: &Ask| {
        let grant = granted(&client, ask);
        at_once(other.revoke(ask.claim.name.clone(), grant.token, false)).expect("marked");
    };
    let (released, taken, closed) = (ask("released"), ask("taken"), ask("closed"));
    [&released, &taken, &closed].into_iter().for_each(mark);
    assert_eq!(marks(), 3);
    at_once(client.release(released.claim, Ending::Released)).expect("released");
    assert_eq!(marks(), 2);
    clock.advance(TTL);
    granted(&other, &ask("taken"));
    assert_eq!(marks(), 1);
    at_once(client.close()).expect("closed");
    assert_eq!(marks(), 0);
}

/// C1, C2: the clock reads 1000 s since boot, and the TTL is longer than that.
#[test]
fn a_revoked_hand_over_is_trusted_no_longer_than_the_store_keeps_it() {
    let clock = Clock::manual();
    for memory in [Memory::new(clock.clone()), Memory::with_shared_sessions(clock.clone())] {
        let (a, b) = (memory.client(), memory.client());
        let long = |queue| Ask { terms: Terms::of(Duration::from_secs(3_600)), queue, ..ask("x") };
        let (held, waits) = (long(false), long(true));
        granted(&b, &held);
        assert!(matches!(at_once(a.acquire(waits.clone())), Ok(Answer::Busy(_))));
        at_once(b.release(held.claim.clone(), Ending::Released)).expect("released");
        let name = held.claim.name;
        let token = at_once(b.inspect(name.clone())).expect("a standing").holder.expect("a holder").token;
        let Ok(Revoked::Marked(left)) = at_once(b.revoke(name, token, false)) else { panic!("not marked") };
        let attended = at_once(a.attend(vec![waits.claim])).expect("an answer").remove(0);
        let Attended::Granted(grant) = attended else { panic!("{attended:?}") };
        clock.advance(left);
        granted(&b, &long(false));
        assert!(grant.trust.deadline() <= clock.now(), "two holders: {grant:?}");
    }
}
