//! Reads a topic with Sentry's Arroyo and writes what it measured as JSON.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sentry_arroyo::backends::kafka::config::KafkaConfig;
use sentry_arroyo::backends::kafka::types::KafkaPayload;
use sentry_arroyo::backends::kafka::InitialOffset;
use sentry_arroyo::processing::strategies::commit_offsets::CommitOffsets;
use sentry_arroyo::processing::strategies::run_task::RunTask;
use sentry_arroyo::processing::strategies::{ProcessingStrategy, ProcessingStrategyFactory};
use sentry_arroyo::processing::StreamProcessor;
use sentry_arroyo::types::{Message, Topic};

/// User and system time of this process, in seconds.
fn cpu() -> f64 {
    // SAFETY: getrusage fills the struct that it is given.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

struct Counter {
    want: u64,
    records: AtomicU64,
    sum: AtomicU64,
    first: Mutex<Option<Instant>>,
    last: Mutex<Option<(Instant, f64)>>,
    complete: AtomicBool,
}

impl Counter {
    fn add(&self, value: u64) {
        self.sum.fetch_add(value, Ordering::Relaxed);
        let n = self.records.fetch_add(1, Ordering::Relaxed) + 1;
        if n == 1 {
            *self.first.lock().unwrap() = Some(Instant::now());
        }
        if n == self.want {
            *self.last.lock().unwrap() = Some((Instant::now(), cpu()));
            self.complete.store(true, Ordering::Release);
        }
    }
}

struct Factory(Arc<Counter>);

impl ProcessingStrategyFactory<KafkaPayload> for Factory {
    fn create(&self) -> Box<dyn ProcessingStrategy<KafkaPayload>> {
        let counter = self.0.clone();
        let add = move |m: Message<KafkaPayload>| {
            let value = m.payload().payload().map_or(0, |p| {
                p.first_chunk().map_or(0, |b| u64::from_be_bytes(*b))
            });
            counter.add(value);
            m.try_map(|_| Ok(value))
        };
        Box::new(RunTask::new(add, CommitOffsets::new(Duration::from_secs(1))))
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, group, want, variant] = args.as_slice() else {
        panic!("usage: peer ADDRESS TOPIC GROUP RECORDS VARIANT");
    };
    // Also if the parent is killed.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(150));
        std::process::exit(1);
    });
    let mut params = HashMap::from([("enable.auto.offset.store".into(), "false".into())]);
    if variant == "tuned" {
        params.insert("fetch.queue.backoff.ms".into(), "10".into());
    }
    let counter = Arc::new(Counter {
        want: want.parse().expect("RECORDS is a number"),
        records: AtomicU64::new(0),
        sum: AtomicU64::new(0),
        first: Mutex::new(None),
        last: Mutex::new(None),
        complete: AtomicBool::new(false),
    });
    let (began, began_cpu) = (Instant::now(), cpu());
    let config = KafkaConfig::new_consumer_config(
        vec![address.clone()],
        group.clone(),
        InitialOffset::Earliest,
        false,
        300_000,
        Some(params),
    );
    let processor = StreamProcessor::with_kafka(config, Factory(counter.clone()), Topic::new(topic), None);
    let mut handle = processor.get_handle();
    let watched = counter.clone();
    std::thread::spawn(move || {
        while !watched.complete.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        handle.signal_shutdown();
    });
    processor.run().expect("the processor failed");

    let first = counter.first.lock().unwrap().expect("there was no record");
    let (last, last_cpu) = counter.last.lock().unwrap().expect("it ended before the last record");
    println!(
        r#"{{"records": {}, "sum": {}, "seconds": {}, "first_seconds": {}, "cpu_seconds": {}, "version": "2.49.0"}}"#,
        counter.records.load(Ordering::Relaxed),
        counter.sum.load(Ordering::Relaxed),
        (last - began).as_secs_f64(),
        (first - began).as_secs_f64(),
        last_cpu - began_cpu,
    );
}
