//! Runs the conformance suite on every store: one trial per store and case,
//! named `memory::c5_acquire_again_gives_the_same_token`, and at the end the
//! table clause x store, which has no hole.

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure::Clock;
use tenure::conformance::{CLAUSES, Case, Faulty, Fixture, cases};
use tenure::store::{Pending, Store};
use tenure::stores::memory::Memory;

type Connect = Arc<dyn Fn() -> Pending<Arc<dyn Store>> + Send + Sync>;

/// A store to be asked.
#[derive(Clone)]
struct Suite {
    name: &'static str,
    /// The scheme of the URLs that it stands for.
    scheme: &'static str,
    ttl: Duration,
    connect: Connect,
}

fn suites() -> Vec<Suite> {
    let ttl = Duration::from_millis(500);
    let each = Memory::new(Clock::system());
    let shared = Memory::with_shared_sessions(Clock::system());
    let wrapped = Memory::new(Clock::system());
    let faulty = move || Arc::new(Faulty::new(wrapped.client(), Clock::system())) as Arc<dyn Store>;
    vec![
        Suite { name: "memory", scheme: "memory", ttl, connect: at_once(move || each.client()) },
        Suite { name: "memory-shared", scheme: "memory", ttl, connect: at_once(move || shared.client()) },
        // A wrapper must conform as well, so this one shows what it wraps and nothing else.
        Suite { name: "faulty(memory)", scheme: "memory", ttl, connect: at_once(faulty) },
        #[cfg(feature = "sqlite")]
        Suite { name: "sqlite", scheme: "sqlite", ttl: Duration::from_secs(1), connect: sqlite() },
    ]
}

/// One file for all cases, as one file serves a host; on a real disk.
#[cfg(feature = "sqlite")]
fn sqlite() -> Connect {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    Arc::new(move || {
        let file = directory.path().join("leases.db");
        Box::pin(async move {
            let store = tenure::stores::sqlite::Sqlite::at(file, Clock::system()).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    })
}

/// For a store that connects without waiting.
fn at_once(client: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) -> Connect {
    Arc::new(move || {
        let client = client();
        Box::pin(async move { Ok(client) })
    })
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Most cases wait most of their time.
    arguments.test_threads.get_or_insert(32);
    support::watch_for_stalls();
    let suites = suites();
    let results = Results::default();
    let mut trials = meta(&suites);
    for suite in &suites {
        trials.extend(cases().iter().map(|case| trial(suite, case, &results)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Of a part of the trials the table would only show holes.
    if !arguments.list && conclusion.num_filtered_out == 0 {
        print!("{}", results.table(&suites));
    }
    conclusion.exit();
}

fn trial(suite: &Suite, case: &'static Case, results: &Results) -> Trial {
    let (suite, results) = (suite.clone(), results.clone());
    let name = format!("{}::{}", suite.name, case.name);
    Trial::test(name.clone(), move || {
        support::judge(&name, |attempt| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let connect = suite.connect.clone();
                let ttl = suite.ttl * attempt;
                (case.run)(Fixture::new(Clock::system(), ttl, move || connect()).await).await;
            });
            Ok(())
        })?;
        results.passed(suite.name, case.clause);
        Ok(())
    })
}

/// How many cases of a clause passed on a store.
#[derive(Clone, Default)]
struct Results(Arc<Mutex<BTreeMap<(&'static str, &'static str), usize>>>);

impl Results {
    fn passed(&self, store: &'static str, clause: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((store, clause)).or_default() += 1;
    }

    fn table(&self, suites: &[Suite]) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = String::new();
        for clause in CLAUSES {
            let all = cases().iter().filter(|case| case.clause == *clause).count();
            table += &format!("{clause:<4}");
            for suite in suites {
                let passed = counts.get(&(suite.name, *clause)).copied().unwrap_or_default();
                table += &format!(" {:>16}", format!("{} {passed}/{all}", suite.name));
            }
            table += "\n";
        }
        table
    }
}

/// Asks whether the suite itself is whole.
fn meta(suites: &[Suite]) -> Vec<Trial> {
    let asked: BTreeSet<_> = suites.iter().map(|suite| suite.scheme).collect();
    vec![
        Trial::test("meta::every_scheme_has_a_suite", move || {
            let known: BTreeSet<_> = tenure::schemes().iter().copied().collect();
            check(known == asked, format!("schemes {known:?}, suites for {asked:?}"))
        }),
        Trial::test("meta::every_clause_has_a_case", || {
            let without = CLAUSES.iter().find(|clause| !cases().iter().any(|case| case.clause == **clause));
            check(without.is_none(), format!("no case for {without:?}"))
        }),
        Trial::test("meta::every_case_is_named_after_its_clause_and_listed_once", || {
            let mut names = BTreeSet::new();
            let odd = cases().iter().find(|case| {
                let prefix = format!("{}_", case.clause.to_lowercase());
                !case.name.starts_with(&prefix) || !names.insert(case.name)
            });
            check(odd.is_none(), format!("{odd:?}"))
        }),
    ]
}

fn check(is_right: bool, otherwise: String) -> Result<(), Failed> {
    if is_right { Ok(()) } else { Err(otherwise.into()) }
}
