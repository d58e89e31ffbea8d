//! The suite that asks whether a store keeps the contract of [`store`](crate::store).
//!
//! It is public so that a store outside this crate can be asked too, and not
//! part of the stable API: cases are added and sharpened in any release.
//!
//! Each case is named after the clause that it asks and gets a [`Fixture`] of
//! its own. It panics, with what it expected, when the store fails it. Cases
//! may run at the same time on the same store: they share no name.
//!
//! ```
//! use std::time::Duration;
//! use tenure::conformance::{self, Fixture};
//! use tenure::{Clock, stores::memory::Memory};
//!
//! let server = Memory::new(Clock::system());
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! runtime.block_on(async {
//!     let connect = move || {
//!         let client = server.client();
//!         Box::pin(async move { Ok(client) }) as tenure::store::Pending<_>
//!     };
//!     let fixture = Fixture::new(Clock::system(), Duration::from_millis(500), connect).await;
//!     let case = conformance::cases().iter().find(|case| case.name.starts_with("c5")).expect("a case");
//!     (case.run)(fixture).await;
//! });
//! # Ok::<(), std::io::Error>(())
//! ```

mod answers;
mod desk;
mod exceptions;
mod exclusion;
mod faulty;
mod holding;
mod kit;
mod names;
mod queue;
mod repeat;
mod surroundings;
mod tokens;
mod trust;
mod waiting;

pub use self::faulty::{Call, Fault, Faults, Faulty, Verb};
pub use self::kit::Fixture;

use std::fmt;
use std::pin::Pin;

/// One question to a store.
#[derive(Clone, Copy)]
pub struct Case {
    /// The clause of the contract: `C5`.
    pub clause: &'static str,
    /// What it asks, beginning with the clause: `c5_acquire_again_gives_the_same_token`.
    pub name: &'static str,
    /// Asks it; to be polled within a tokio runtime with time. Panics when the store fails.
    pub run: fn(Fixture) -> Pin<Box<dyn Future<Output = ()>>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cases {
    ($($clause:ident: $($module:ident::$case:ident),+;)+) => {
        /// The clauses that have cases.
        pub const CLAUSES: &[&str] = &[$(stringify!($clause)),+];

        /// All cases, in the order of their clauses.
        pub fn cases() -> &'static [Case] {
            &[$($(Case {
                clause: stringify!($clause),
                name: stringify!($case),
                run: |fixture| Box::pin($module::$case(fixture)),
            }),+),+]
        }
    };
}

// The only list.
cases! {
    C1:
        exclusion::c1_one_of_64_racers_is_granted,
        exclusion::c1_names_do_not_interfere,
        exclusion::c1_nobody_else_is_granted_before_the_ttl_has_passed,
        exclusion::c1_renewals_keep_others_out,
        exclusion::c1_renewal_and_takeover_never_both_succeed,
        exclusion::c1_a_session_that_ran_out_is_over_for_all_its_leases;
    C2:
        trust::c2_sent_is_before_the_request,
        trust::c2_validity_is_less_than_the_ttl,
        trust::c2_the_granted_ttl_is_visible_and_rounded_up,
        trust::c2_a_lease_on_an_older_session_is_not_trusted_beyond_its_life;
    C3:
        holding::c3_a_silent_store_costs_the_lease_at_its_deadline,
        holding::c3_a_revoked_holder_is_told_why,
        holding::c3_a_lease_at_risk_recovers,
        holding::c3_confirm_asks_the_store,
        holding::c3_a_release_is_no_loss;
    C4:
        tokens::c4_token_grows_over_release,
        tokens::c4_token_grows_over_expiry,
        tokens::c4_token_grows_over_revocation,
        tokens::c4_token_grows_over_hand_over,
        tokens::c4_token_grows_over_reconnect,
        tokens::c4_token_stays_over_renewals;
    C5:
        repeat::c5_acquire_again_gives_the_same_token,
        repeat::c5_racing_acquires_of_one_claim_agree,
        repeat::c5_queueing_again_keeps_one_entry,
        repeat::c5_release_again_is_harmless,
        repeat::c5_release_again_does_not_advance_the_queue_twice,
        repeat::c5_a_forgotten_grant_is_told_or_lapses;
    C6:
        repeat::c6_renew_does_not_revive,
        repeat::c6_renew_never_acquires,
        repeat::c6_renew_by_a_stranger_changes_nothing,
        repeat::c6_renew_after_release_is_lost,
        repeat::c6_renew_never_adds,
        repeat::c6_release_by_a_stranger_changes_nothing,
        repeat::c6_late_release_spares_the_successor;
    C7:
        surroundings::c7_dropped_futures_leave_the_store_usable,
        surroundings::c7_a_retired_session_gets_no_new_grants,
        surroundings::c7_a_dropped_handle_harms_no_other,
        waiting::c7_a_cancelled_waiter_leaves_the_queue_at_once,
        waiting::c7_a_grant_passes_to_the_next_task,
        waiting::c7_what_a_dropped_attempt_brought_is_undone;
    C8:
        queue::c8_first_come_first_served_across_clients,
        queue::c8_a_newcomer_does_not_overtake,
        queue::c8_a_newcomer_does_not_overtake_after_a_crash,
        queue::c8_a_release_hands_over_in_the_same_step,
        queue::c8_a_hint_says_what_attending_says,
        queue::c8_a_dead_entry_is_skipped,
        queue::c8_a_grant_to_a_silent_waiter_is_void,
        queue::c8_the_first_renewal_makes_a_hand_over_firm,
        queue::c8_a_waiter_that_left_is_skipped,
        queue::c8_an_undone_grant_passes_to_the_next,
        queue::c8_an_entry_that_is_not_there_is_gone,
        waiting::c8_a_thousand_tasks_of_a_client_are_one_entry,
        waiting::c8_clients_take_turns;
    C9:
        queue::c9_a_release_hands_over_within_a_second,
        queue::c9_a_crash_hands_over_within_the_ttl_and_a_second,
        surroundings::c9_close_frees_what_hung_on_the_sessions,
        waiting::c9_a_closed_client_hands_over;
    C10:
        surroundings::c10_512_renewals_have_each_its_own_outcome,
        surroundings::c10_waiters_do_not_delay_a_renewal,
        holding::c10_a_blocked_caller_keeps_its_lease;
    C11:
        answers::c11_busy_names_the_holder,
        answers::c11_busy_tells_place_and_number,
        answers::c11_inspect_shows_holder_and_waiters,
        answers::c11_inspect_and_list_hide_the_lapsed,
        waiting::c11_waiting_in_vain_says_who_holds_it;
    C12:
        names::c12_a_page_has_at_most_a_thousand_names;
    C13:
        exceptions::c13_hold_at_least_outlives_release,
        exceptions::c13_hold_at_least_outlives_a_lapse,
        exceptions::c13_an_undone_grant_is_not_kept_back,
        exceptions::c13_a_waiter_gets_what_was_kept_back,
        exceptions::c13_revoke_lifts_hold_at_least,
        exceptions::c13_a_marked_holder_is_told_and_frees_by_release,
        exceptions::c13_a_marked_claim_ends_with_its_ttl,
        exceptions::c13_revoke_now_frees_at_once,
        exceptions::c13_revoke_with_another_token_does_nothing,
        exceptions::c13_a_one_shot_claim_needs_no_client,
        exceptions::c13_a_one_shot_claim_ends_with_its_ttl,
        holding::c13_hold_at_most_ends_a_lease,
        holding::c13_close_tells_holders_and_waiters;
    C14:
        names::c14_odd_names_round_trip,
        names::c14_names_that_look_alike_are_distinct,
        names::c14_a_prefix_is_no_pattern,
        names::c14_odd_labels_round_trip,
        names::c14_control_characters_reach_no_store;
}
