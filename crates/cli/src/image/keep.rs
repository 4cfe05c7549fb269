//! `tag`, `remove`, `prune` and `verify`.

use std::process::ExitCode;

use clap::ArgMatches;
use ringfence_image::{Entry, Listed, Removed, Store};
use serde_json::{Value, json};

use super::{failed, wants_json};
use crate::client_commands::{print, print_json, text};
use crate::failure::Failure;
use crate::progress::Teller;

pub(super) fn tag(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let entry = ringfence_image::tag(store, &text(matches, "image"), &text(matches, "name"), &mut Teller::new());
    super::bring::tell(&entry.map_err(failed)?, matches);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn remove(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut outcomes = Vec::new();
    for image in asked(matches) {
        let removed = ringfence_image::remove(store, image, &mut Teller::new()).map_err(failed)?;
        if !wants_json(matches) {
            match &removed {
                Removed::Name { name } => print(format!("the name {name} is gone; the image has others\n")),
                Removed::Image { id } => print(format!("the image {id} is gone\n")),
            }
        }
        outcomes.push(match removed {
            Removed::Name { name } => json!({"name": name}),
            Removed::Image { id } => json!({"id": id}),
        });
    }
    if wants_json(matches) {
        print_json(&json!({"removed": outcomes}));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn prune(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let pruned = ringfence_image::prune(store, &mut Teller::new()).map_err(failed)?;
    if wants_json(matches) {
        print_json(&json!({"images": pruned.images, "others": pruned.others, "in_use": pruned.held}));
        return Ok(ExitCode::SUCCESS);
    }
    let line = |what: &str, names: &[String]| names.iter().map(|name| format!("{what} {name}\n")).collect::<String>();
    let done = [line("took away the image", &pruned.images), line("took away", &pruned.others)].concat();
    print(done + &line("left in use:", &pruned.held));
    if pruned.images.is_empty() && pruned.others.is_empty() && pruned.held.is_empty() {
        print("nothing to take away\n");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn verify(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (mut entries, mut rows): (Vec<Entry>, Vec<Value>) = Default::default();
    let mut damaged = false;
    let mut say = |id: &str, name: &str, state: &str| {
        damaged |= state != "intact";
        if !wants_json(matches) {
            print(format!("{name}: {state}\n"));
        }
        rows.push(json!({"id": id, "name": name, "state": state}));
    };
    let named: Vec<&String> = asked(matches).collect();
    for image in &named {
        entries.push(store.find(image).map_err(failed)?);
    }
    if named.is_empty() {
        for listed in store.list().map_err(failed)? {
            match listed {
                Listed::Image(entry) => entries.push(*entry),
                Listed::Foreign { id, .. } => say(&id, &id, "unreadable"),
            }
        }
    }
    for entry in entries {
        let intact = store.is_intact(&entry).map_err(failed)?;
        say(&entry.manifest.id, &entry.title(), if intact { "intact" } else { "damaged" });
    }
    if wants_json(matches) {
        print_json(&json!(rows));
    }
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn asked(matches: &ArgMatches) -> impl Iterator<Item = &String> {
    matches.get_many::<String>("image").into_iter().flatten()
}
