//! The control plane over real sockets, on a real SQLite and a real PostgreSQL: the same cases on both.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod backup;
mod bad_input;
mod grants;
mod openapi;
mod prune;
mod rotation;
mod support;
mod tokens;
mod usage;
mod workspaces;

use ringfence_testkit::Postgres;
use support::{Database, Setup, watch};

/// A case gets a control plane of its own on a database of its own.
type Case = (&'static str, fn(&Setup));

const CASES: &[Case] = &[
    ("workspaces: made, listed, replaced, deleted", workspaces::lifecycle),
    ("workspaces: pages", workspaces::pages),
    ("workspaces: two writers", workspaces::two_writers),
    ("tokens: shown once, revoked, each of its kind", tokens::lifecycle),
    ("tokens: bound to workspaces", tokens::bound),
    ("grants: what the policy says, or less", grants::from_policy),
    ("grants: refused", grants::refused),
    ("grants: the audit has ids, never the grant", grants::audited),
    ("resolve: the hosted call", grants::resolve),
    ("keys: a rotation without a hole", rotation::without_a_hole),
    ("keys: revoked, at once, other algorithms", rotation::emergency),
    ("keys: a replica, as after a restart", rotation::replicas),
    ("keys: files", rotation::files),
    ("usage: each record once", usage::once),
    ("usage: several front doors at once", usage::at_once),
    ("usage: sums and CSV", usage::sums),
    ("usage: extremes", usage::extremes),
    ("prune: rolled up, closed, refused and counted", prune::rolled_up),
    ("prune: portions", prune::portions),
    ("prune: while everything is sent again", prune::at_once),
    ("prune: by itself, the audit too", prune::by_itself),
    ("prune: a clock that is ahead", prune::clock_ahead),
    ("prune: bounds", prune::bounds),
    ("prune: an earlier schema", prune::earlier_schema),
    ("bad input: bodies, queries, paths, credentials", bad_input::refused),
    ("bad input: broken connections", bad_input::broken),
    ("start: again, and a newer schema", support::start_again),
];

fn run(databases: impl Fn() -> Database) {
    watch::begin();
    for (name, case) in CASES {
        eprintln!("-- {name}");
        let setup = Setup::new(databases());
        case(&setup);
    }
    watch::nothing_found();
}

#[test]
fn every_case_on_sqlite() {
    run(Database::sqlite);
}

#[test]
fn every_case_on_postgresql() {
    let mut postgres = Postgres::start();
    run(|| Database::postgres(&postgres));
    eprintln!("-- the database is away for a while");
    let setup = Setup::new(Database::postgres(&postgres));
    usage::database_away(&setup, &mut postgres);
    drop(setup);
    watch::nothing_found();
    assert!(postgres.end().success(), "PostgreSQL ended well");
}
