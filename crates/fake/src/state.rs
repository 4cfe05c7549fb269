//! The sessions, and who may ask.

use std::collections::BTreeMap;

use crate::editor::History;
use crate::programs::Variables;
use crate::workspace::Disk;
use crate::{Asked, Reply, Rules, routes};

/// All that a fake knows.
pub(crate) struct State {
    pub(crate) rules: Rules,
    pub(crate) requests: Vec<String>,
    pub(crate) table: BTreeMap<String, Session>,
    pub(crate) leased: u64,
    /// What all sessions share where a fault makes them.
    pub(crate) shared: Session,
}

/// One session.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) variables: Variables,
    pub(crate) disk: Disk,
    pub(crate) history: History,
    pub(crate) calls: u64,
    /// What Python programs wrote.
    pub(crate) written: Vec<String>,
    /// Uploads that no program sees, where a fault wants that.
    pub(crate) hidden: Disk,
}

impl State {
    pub(crate) fn new(rules: Rules) -> Self {
        State { rules, requests: Vec::new(), table: BTreeMap::new(), leased: 0, shared: Session::default() }
    }

    pub(crate) fn sessions(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn answer(&mut self, asked: &Asked) -> Reply {
        self.requests.push(format!("{} {}", asked.method, asked.path));
        let wanted = self.rules.token.as_ref().map(|token| format!("Bearer {token}"));
        let reply = if wanted.is_some() && asked.header("authorization") != wanted.as_deref() {
            Reply::refusal(401, "a bearer token is wanted")
        } else {
            routes::answer(self, asked)
        };
        match self.rules.twist.clone() {
            Some(twist) => twist(asked, reply),
            None => reply,
        }
    }
}
