//! A control plane that takes batches of usage, and can be down, slow to say that it took one, or killed in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::client::PATIENCE;
use super::{Backend, Reply, Then};

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Takes,
    /// Refuses, as one does that is down behind a proxy.
    Down,
    /// Takes it and dies before it says so.
    TakesAndDies,
}

/// What was taken, by the rules of `docs/gate.md`: a batch whose key is known is taken already.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) batches: BTreeMap<String, Value>,
    /// Records by their id, and how often each came in batches that counted.
    pub(crate) records: BTreeMap<String, (Value, usize)>,
    /// Every batch as it came: the same key must come with the same records.
    pub(crate) came: usize,
    pub(crate) quarrels: Vec<String>,
}

/// A control plane on a port of its own.
pub(crate) struct Control {
    pub(crate) server: Backend,
    pub(crate) books: Arc<Mutex<Books>>,
    pub(crate) mood: Arc<Mutex<Mood>>,
}

pub(crate) const USAGE_TOKEN: &str = "usage-canary-55aa";

impl Control {
    pub(crate) async fn start() -> Self {
        let server = Backend::start("control").await;
        let (books, mood) = (Arc::new(Mutex::new(Books::default())), Arc::new(Mutex::new(Mood::Takes)));
        let (own_books, own_mood) = (Arc::clone(&books), Arc::clone(&mood));
        server.twist(move |seen| {
            let mut books = own_books.lock().unwrap();
            let mood = *own_mood.lock().unwrap();
            if seen.header("authorization") != Some(&format!("Bearer {USAGE_TOKEN}")) || seen.path != "/v1/usage" {
                return Some(Reply::empty("401 Unauthorized\r\ncontent-length: 0"));
            }
            if mood == Mood::Down {
                return Some(Reply::json("503 Service Unavailable", "{}"));
            }
            books.take(seen.header("idempotency-key").unwrap(), seen.json());
            Some(match mood {
                Mood::TakesAndDies => Reply(Vec::new(), Then::Close),
                _ => Reply::json("200 OK", "{}"),
            })
        });
        Control { server, books, mood }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/v1/usage", self.server.url())
    }

    pub(crate) fn feels(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Waits until the books are as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Books) -> bool) {
        let asking = async {
            while !wanted(&self.books.lock().unwrap()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, asking).await.is_err() {
            panic!("never: {:?}", self.books.lock().unwrap());
        }
    }
}

impl Books {
    fn take(&mut self, key: &str, batch: Value) {
        self.came += 1;
        if batch["batch"] != key {
            self.quarrels.push(format!("{key} is not the batch's own key"));
        }
        if let Some(known) = self.batches.get(key) {
            if *known != batch {
                self.quarrels.push(format!("{key} came with other records"));
            }
            return;
        }
        for record in batch["records"].as_array().unwrap() {
            let id = record["id"].as_str().unwrap().to_owned();
            self.records.entry(id).or_insert((record.clone(), 0)).1 += 1;
        }
        self.batches.insert(key.to_owned(), batch);
    }

    /// Nothing came twice, and every key meant one batch.
    pub(crate) fn balance(&self) {
        assert!(self.quarrels.is_empty(), "{:?}", self.quarrels);
        for (record, times) in self.records.values() {
            assert_eq!(*times, 1, "{record}");
        }
    }

    /// The records of calls with this outcome.
    pub(crate) fn calls(&self, outcome: &str) -> BTreeSet<String> {
        let calls =
            self.records.iter().filter(|(_, (record, _))| record["kind"] == "call" && record["outcome"] == outcome);
        calls.map(|(id, _)| id.clone()).collect()
    }
}
