//! The founding metrics, as whoever installs a recorder sees them.

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::stores::memory::Memory;
use tenure::{Client, Clock};

/// What was counted and timed, by name and labels.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct One(Seen, String);

impl One {
    fn add(&self, value: f64) {
        self.0.0.lock().expect("no panic").entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }
    fn absolute(&self, value: u64) {
        self.add(value as f64);
    }
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Seen {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn values(&self, key: &str) -> Vec<f64> {
        self.0.lock().expect("no panic").get(key).cloned().unwrap_or_default()
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

/// One test: a process has one recorder.
#[tokio::test]
async fn leases_acquired_and_lost_and_heartbeats_are_measured() {
    let seen = Seen::default();
    metrics::set_global_recorder(seen.clone()).expect("the only recorder");
    let clock = Clock::manual();
    let client = Client::builder().clock(clock.clone()).build(Memory::new(clock.clone()).client()).unwrap();
    let lease = client.lease("x").acquire().await.unwrap();
    assert_eq!(seen.values("lease_acquired{}"), [1.0]);
    clock.advance(Duration::from_millis(3_400));
    Clock::system()
        .timeout(Duration::from_secs(20), async {
            while seen.values("heartbeat_latency{}").is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("a heartbeat");
    client.revoke(lease.name(), lease.token(), true).await.unwrap();
    let lost = lease.lost();
    clock.advance(Duration::from_millis(3_400));
    Clock::system().timeout(Duration::from_secs(20), lost).await.expect("the loss");
    // A loss is announced an instant after it is latched.
    let announced = async {
        while seen.values("lease_lost{reason=revoked}").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    Clock::system().timeout(Duration::from_secs(20), announced).await.expect("the loss is measured");
    assert_eq!(seen.values("lease_lost{reason=revoked}"), [1.0]);
    assert_eq!(seen.values("lease_acquired{}"), [1.0]);
}
