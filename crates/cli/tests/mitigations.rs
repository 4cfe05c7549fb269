//! What holds sessions and the server is named, with what misses it when it is gone; and no program that is built as
//! usual can be told to leave any of it out. That something does miss it is shown by `security/mitigations-off`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_attack::catalogue;
use ringfence_probe::Address;
use ringfence_testkit::ServerOptions;
use ringfence_weaken::Mitigation;
use toml::{Table, Value};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn described() -> Vec<Table> {
    let text = fs::read_to_string(root().join("security/mitigations.toml")).unwrap();
    let Value::Array(all) = text.parse::<Table>().unwrap().remove("mitigation").unwrap() else { panic!("no list") };
    all.into_iter().map(|one| one.as_table().unwrap().clone()).collect()
}

fn words(entry: &Table, key: &str) -> Vec<String> {
    let list = entry.get(key).and_then(Value::as_array);
    list.into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_mitigation_is_described_where_it_is_and_by_what_misses_it() {
    let attacks: BTreeSet<String> = catalogue().unwrap().into_iter().map(|(_, attack)| attack.name).collect();
    let entries = described();
    let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    let known: Vec<&str> = Mitigation::ALL.iter().map(|one| one.name()).collect();
    assert_eq!(names, known, "security/mitigations.toml (left) and crates/weaken (right), in one order");
    for (entry, mitigation) in entries.iter().zip(Mitigation::ALL) {
        let name = mitigation.name();
        assert!(!entry["does"].as_str().unwrap().is_empty(), "{name}");
        let (attacked, tested) = (words(entry, "attacks"), words(entry, "tests"));
        assert!(!attacked.is_empty() || !tested.is_empty(), "{name}: nothing would miss it");
        for attack in attacked {
            assert!(attacks.contains(&attack), "{name}: there is no attack {attack}");
        }
        for test in tested {
            let (program, test) = test.split_once(':').unwrap();
            let folder = match program {
                "jail" => "crates/jail/src",
                "interp" => "crates/interp/src",
                "cells" => "crates/jail/tests/cells",
                "own_processes" | "namespaces" => "crates/cli/tests",
                _ => "crates/server/tests",
            };
            assert!(is_said_in(&root().join(folder), &format!("fn {test}(")), "{name}: there is no test {test}");
        }
        for other in words(entry, "with") {
            assert!(known.contains(&other.as_str()) && other != name, "{name} with {other}");
        }
        let place = entry["where"].as_str().unwrap();
        let text = fs::read_to_string(root().join(place)).unwrap();
        if place.ends_with(".py") {
            let of_the_program = mitigation.python_lines().iter().filter(|(program, _)| text.starts_with(program));
            let lines: Vec<&str> = of_the_program.map(|(_, line)| *line).collect();
            assert!(!lines.is_empty(), "{name} is not in {place}");
            for line in lines {
                assert!(text.lines().any(|one| one == line), "{name}: {place} has no line '{line}'");
            }
        } else {
            assert!(text.contains(&format!("Mitigation::{mitigation:?}")), "{name} is not in {place}");
        }
    }
}

fn is_said_in(folder: &Path, what: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            is_said_in(&path, what)
        } else {
            fs::read_to_string(path).is_ok_and(|text| text.contains(what))
        }
    })
}

#[test]
fn a_program_that_is_built_as_usual_leaves_nothing_out() {
    let program = fs::read(PROGRAM).unwrap();
    assert!(!program.windows(8).any(|eight| eight == b"WEAKENED"), "the variable is in the program");
    let names = "filter_of_interpreters,self_check_of_interpreters";
    let mut server = ServerOptions::new(PROGRAM).env("WEAKENED", names).start();
    let attacks = catalogue().unwrap();
    let attacks: Vec<_> = attacks.into_iter().filter(|(_, attack)| attack.name == "new_user_namespace").collect();
    assert_eq!(attacks.len(), 1);
    let address = Address::parse(&format!("http://{}", server.address()), None).unwrap();
    let report = ringfence_attack::run(&address, &attacks, |_| ());
    assert!(report.all_held(), "{}", report.to_text());
    assert!(!server.log().contains("built for proofs"));
}
