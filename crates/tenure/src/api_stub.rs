//! STAND-IN for hold/, connect and keep, only on this branch: the signatures that the real ones will have.
#![allow(missing_docs, unused_variables, clippy::unused_async)]
use crate::store::*;
use crate::*;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Schemes built in, e.g. ["memory", "sqlite"].
pub fn schemes() -> &'static [&'static str] { &["memory", "sqlite"] }

#[derive(Debug, Clone)] pub struct Client;
#[derive(Debug)] pub struct ClientBuilder;
#[derive(Debug, Clone)] pub struct Request;
#[derive(Debug)] #[must_use] pub struct Lease;
/// A value for a fence: name, token, owner.
#[derive(Debug, Clone)] pub struct Fence { pub name: Name, pub token: Token, pub owner: Owner }
#[derive(Debug)] pub enum Acquired { Lease(Lease), Busy(Busy) }
#[derive(Debug, Clone)] pub enum State { Held, AtRisk { left: Duration, last_error: Option<Error> }, Stopping { left: Duration }, Lost(Loss) }

impl Client {
    /// Opens the store that `url` names ("sqlite:" is the embedded default) and checks that it answers.
    pub async fn connect(url: &str) -> Result<Client> { todo!() }
    pub fn builder() -> ClientBuilder { todo!() }
    /// Starts a request; an invalid name is reported by the acquiring call.
    pub fn lease(&self, name: impl AsRef<str>) -> Request { todo!() }
    pub fn about(&self) -> About { todo!() }
    pub async fn inspect(&self, name: &Name) -> Result<Standing> { todo!() }
    pub async fn list(&self, prefix: &str, after: Option<&Name>) -> Result<Page> { todo!() }
    pub async fn revoke(&self, name: &Name, token: Token, now: bool) -> Result<Revoked> { todo!() }
    /// See Store::liveness: the guardian holds a copy.
    pub async fn liveness(&self) -> Result<Option<OwnedFd>> { todo!() }
    /// C13: announces Closed, waits for handles; the names that were left to lapse.
    pub async fn close(&self) -> Vec<Name> { todo!() }
    /// The store itself (one-shot verbs of the command line).
    pub fn store(&self) -> std::sync::Arc<dyn Store> { todo!() }
}
impl ClientBuilder {
    /// What people call this client's leases; default host:pid.
    pub fn label(self, label: Label) -> Self { todo!() }
    /// Told every event, on the thread where it happens; must not block.
    pub fn observe(self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self { todo!() }
    pub fn clock(self, clock: Clock) -> Self { todo!() }
    pub async fn connect(self, url: &str) -> Result<Client> { todo!() }
}
impl Request {
    pub fn ttl(self, ttl: Duration) -> Self { todo!() }
    pub fn heartbeat(self, every: Duration) -> Self { todo!() }
    /// The time before the deadline that is kept for stopping the work.
    pub fn grace(self, grace: Duration) -> Self { todo!() }
    pub fn hold_at_least(self, d: Duration) -> Self { todo!() }
    pub fn hold_at_most(self, d: Duration) -> Self { todo!() }
    pub fn label(self, label: Label) -> Self { todo!() }
    pub async fn try_acquire(&self) -> Result<Acquired> { todo!() }
    pub async fn acquire(&self) -> Result<Lease> { todo!() }
    pub async fn acquire_within(&self, limit: Duration) -> Result<Acquired> { todo!() }
}
impl Lease {
    pub fn name(&self) -> &Name { todo!() }
    pub fn owner(&self) -> Owner { todo!() }
    pub fn token(&self) -> Token { todo!() }
    pub fn ttl(&self) -> Duration { todo!() }
    pub fn fence(&self) -> Fence { todo!() }
    pub fn is_held(&self) -> bool { todo!() }
    /// Err(Lost) when it is not held.
    pub fn check(&self) -> Result<()> { todo!() }
    /// A renewal answered just now, then check().
    pub async fn confirm(&self) -> Result<()> { todo!() }
    pub fn remaining(&self) -> Duration { todo!() }
    /// The local instant until which it may be trusted (moves forward with each confirmed renewal).
    pub fn deadline(&self) -> Instant { todo!() }
    pub fn grace(&self) -> Duration { todo!() }
    pub fn state(&self) -> State { todo!() }
    /// Ready when the lease is lost. An owned future.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> { async { todo!() } }
    /// Ready when the lease is Stopping (deadline - grace reached, closed, or lost).
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> { async { todo!() } }
    /// Ready when the deadline differs from `seen`; gives the new one. Never ready after the loss.
    pub fn renewed(&self, seen: Instant) -> impl Future<Output = Instant> + Send + 'static + use<> { async move { todo!() } }
    pub async fn release(self) -> Result<Released> { todo!() }
}
