//! A case that cannot fail asks nothing: stores that are broken on purpose,
//! each in one way, and the suite must catch each in a case of the right clause.

mod broken;
mod support;

use self::broken::{Broken, Fault, World};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure::Clock;
use tenure::conformance::{CLAUSES, Fixture, cases};
use tenure::store::{Pending, Store};
use tenure::stores::memory::Memory;

/// Which clause must catch it, and whether it shows with shared sessions only.
const FAULTS: &[(&str, Fault, bool)] = &[
    ("C1", Fault::BusyIsGranted, false),
    ("C1", Fault::HalfTheTtl, false),
    ("C1", Fault::RenewIsNotWritten, false),
    ("C2", Fault::SentIsTheReply, false),
    ("C2", Fault::SentIsTheAcquire, true),
    ("C2", Fault::NoMargin, false),
    ("C2", Fault::TtlAsAsked, false),
    ("C3", Fault::RenewIsNotWritten, false),
    ("C3", Fault::MarkIsIgnored, false),
    ("C3", Fault::RenewRevives, false),
    ("C3", Fault::ReleaseIsIgnored, false),
    ("C4", Fault::TokensGoBack, false),
    ("C4", Fault::TokensPerClient, false),
    ("C5", Fault::TokenOfEachAnswer, false),
    ("C5", Fault::OwnClaimIsBusy, false),
    ("C5", Fault::EntryOfEachAsk, false),
    ("C5", Fault::StraysAreSilent, true),
    ("C5", Fault::ReleaseAgainHitsTheNext, false),
    ("C6", Fault::RenewRevives, false),
    ("C6", Fault::RenewOfAnyOwner, false),
    ("C6", Fault::ReleaseOfAnyOwner, false),
    ("C6", Fault::RenewAdds, false),
    ("C7", Fault::DroppedCallLocks, false),
    ("C7", Fault::DroppedHandleCloses, false),
    ("C7", Fault::RetireIsIgnored, true),
    ("C7", Fault::UndoIsIgnored, false),
    ("C7", Fault::HandOverIsNeverFirm, false),
    ("C8", Fault::EntryOfEachAsk, false),
    ("C8", Fault::WaitersBarge, false),
    ("C8", Fault::EntriesLiveForEver, false),
    ("C8", Fault::HandOverIsFirm, false),
    ("C8", Fault::HandOverIsTrustedFromTheAnswer, false),
    ("C8", Fault::HandOverIsNeverFirm, false),
    ("C8", Fault::HintsAreMixedUp, false),
    ("C8", Fault::UndoIsIgnored, false),
    ("C8", Fault::GoneStillWaits, false),
    ("C9", Fault::HandOverIsSlow, false),
    ("C9", Fault::CloseKeepsSessions, true),
    ("C10", Fault::OutcomesOutOfOrder, false),
    ("C10", Fault::RenewQueuesBehindWaiters, false),
    ("C10", Fault::RenewIsNotWritten, false),
    ("C11", Fault::HolderIsNameless, false),
    ("C11", Fault::PlaceIsUnknown, false),
    ("C11", Fault::WaitersAreReversed, false),
    ("C11", Fault::LapsedIsShown, false),
    ("C12", Fault::PagesWithoutEnd, false),
    ("C13", Fault::HoldAtLeastIsIgnored, false),
    ("C13", Fault::UndoIsIgnored, false),
    ("C13", Fault::RenewIsNotWritten, false),
    ("C13", Fault::UndoKeepsBack, false),
    ("C13", Fault::MarkFrees, false),
    ("C13", Fault::MarkIsIgnored, false),
    ("C13", Fault::AnyTokenRevokes, false),
    ("C13", Fault::OneShotOnTheSession, true),
    ("C14", Fault::NamesAreCut, false),
    ("C14", Fault::NamesAreFolded, false),
    ("C14", Fault::PrefixIsAPattern, false),
    ("C14", Fault::PrefixEndsAtNul, false),
    ("C14", Fault::LabelsAreCut, false),
];

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(16);
    // The cases that are to fail would fill the screen.
    std::panic::set_hook(Box::new(|_| ()));
    support::watch_for_stalls();
    let bitten: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let bites = FAULTS.iter().map(|&(clause, fault, shared)| {
        let bitten = bitten.clone();
        let name = format!("bites::{clause}_{fault:?}");
        Trial::test(name.clone(), move || {
            support::judge(&name, |_| {
                let failed = failures(clause, fault, shared);
                if failed.is_empty() {
                    return Err(Failed::from(format!("no case of {clause} saw it")));
                }
                bitten.lock().unwrap_or_else(PoisonError::into_inner).extend(failed);
                Ok(())
            })
        })
    });
    let controls = CLAUSES.iter().map(|clause| {
        let name = format!("control::{clause}_the_unbroken_wrapper_passes");
        Trial::test(name.clone(), move || {
            support::judge(&name, |_| {
                let of = |shared| failures(clause, Fault::Nothing, shared);
                let failed = [of(false), of(true)].concat();
                if failed.is_empty() { Ok(()) } else { Err(Failed::from(failed.join(", "))) }
            })
        })
    });
    let conclusion = libtest_mimic::run(&arguments, controls.chain(bites).collect());
    conclusion.exit_if_failed();
    let is_whole = conclusion.num_filtered_out == 0 && !arguments.list;
    let mut bitten = bitten.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut toothless: Vec<_> = cases().iter().filter(|case| !bitten.contains(case.name)).collect();
    // A race at the very expiry needs a machine that is on time, and this one may have been busy.
    for _ in 0..10 {
        if !is_whole || toothless.is_empty() {
            break;
        }
        let again = FAULTS.iter().filter(|(clause, ..)| toothless.iter().any(|case| case.clause == *clause));
        again.for_each(|&(clause, fault, shared)| bitten.extend(failures(clause, fault, shared)));
        toothless.retain(|case| !bitten.contains(case.name));
    }
    if is_whole && !toothless.is_empty() {
        eprintln!("no broken store is caught by: {toothless:#?}");
        std::process::exit(101);
    }
}

/// The cases of the clause that fail.
fn failures(clause: &str, fault: Fault, shared: bool) -> Vec<String> {
    let running: Vec<_> = cases()
        .iter()
        .filter(|case| case.clause == clause)
        .map(|case| {
            // A server for each case, so that none is bitten by what another one did.
            let memory = if shared { Memory::with_shared_sessions } else { Memory::new };
            let (server, world) = (memory(Clock::system()), Arc::new(World::default()));
            let connect = move || {
                let broken = Broken::new(server.client(), fault, world.clone());
                Box::pin(async move { Ok(Arc::new(broken) as Arc<dyn Store>) }) as Pending<_>
            };
            let thread = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let fixture = Fixture::new(Clock::system(), Duration::from_millis(500), connect).await;
                    (case.run)(fixture).await;
                });
            });
            (case.name, thread)
        })
        .collect();
    running.into_iter().filter_map(|(name, thread)| thread.join().err().map(|_| name.to_owned())).collect()
}
