//! The short run of every target.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use ringfence_fuzz::limits::{MUTATIONS, MUTATIONS_OF_FORMS, MUTATIONS_WITH_FILES};
use ringfence_fuzz::{TARGETS, corpus, exercise, target};

fn short_run(name: &str, mutations: u64) {
    let target = target(name).unwrap_or_else(|| panic!("no target {name}"));
    let runs = exercise(&corpus(name), target, mutations).unwrap();
    assert!(runs > mutations, "{name}: {runs} runs");
}

macro_rules! short_runs {
    ($($name:ident: $mutations:expr),* $(,)?) => {
        $(#[test]
        fn $name() {
            short_run(stringify!($name), $mutations);
        })*

        #[test]
        fn every_target_has_a_short_run_and_a_corpus() {
            let run: BTreeSet<&str> = [$(stringify!($name)),*].into();
            let known: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(run, known);
            let corpora = std::fs::read_dir(corpus("frames").parent().unwrap()).unwrap();
            let corpora: BTreeSet<String> =
                corpora.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            assert_eq!(corpora.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
        }
    };
}

short_runs! {
    frames: MUTATIONS,
    form: MUTATIONS_OF_FORMS,
    head: MUTATIONS,
    body: MUTATIONS,
    path: MUTATIONS,
    grant: MUTATIONS,
    document: MUTATIONS,
    reference: MUTATIONS,
    editor: MUTATIONS_WITH_FILES,
    archive: MUTATIONS_WITH_FILES,
    tape: MUTATIONS,
    layer: MUTATIONS_WITH_FILES,
}
