//! `list` and `inspect`.

use std::process::ExitCode;

use clap::ArgMatches;
use indicatif::HumanBytes;
use ringfence_image::{Declaration, Entry, Interpreter, Listed, Source, Store};
use ringfence_op::ImageLimits;
use serde_json::{Value, json};

use super::{failed, wants_json};
use crate::client_commands::{print, print_json};
use crate::failure::Failure;

/// Digits of an id that are shown where a person reads.
const ID_DIGITS_SHOWN: usize = 12;

pub(super) fn list(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let listed = store.list().map_err(failed)?;
    if wants_json(matches) {
        let all: Vec<Value> = listed.iter().map(row_as_json).collect();
        print_json(&json!(all));
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["NAME", "ID", "PYTHON", "LIBC", "SIZE"].map(str::to_owned)];
    rows.extend(listed.iter().flat_map(rows_of));
    let there = |name: &str| listed.iter().any(|one| names(one).iter().any(|known| known == name));
    for name in Declaration::shipped_names().filter(|name| !there(name)) {
        rows.push([name, "-", "-", "-", "not built"].map(str::to_owned));
    }
    print(table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn names(listed: &Listed) -> &[String] {
    match listed {
        Listed::Image(entry) => &entry.names,
        Listed::Foreign { .. } => &[],
    }
}

fn row_as_json(listed: &Listed) -> Value {
    match listed {
        Listed::Image(entry) => as_json(entry),
        Listed::Foreign { id, why } => json!({"id": id, "unreadable": why.to_string()}),
    }
}

/// One for each name; an image without a name has one as well.
fn rows_of(listed: &Listed) -> Vec<[String; 5]> {
    let short = |id: &str| id.chars().take(ID_DIGITS_SHOWN).collect::<String>();
    let entry = match listed {
        Listed::Image(entry) => entry,
        Listed::Foreign { id, why } => {
            return vec![["-".to_owned(), id.clone(), "-".to_owned(), "-".to_owned(), format!("unreadable: {why}")]];
        }
    };
    let facts = &entry.manifest.facts;
    let python = match &facts.interpreter {
        Interpreter::Python { version, .. } => version.clone(),
        Interpreter::None(_) => "none".to_owned(),
    };
    let row = |name: &str| {
        let size = HumanBytes(entry.manifest.bytes).to_string();
        [name.to_owned(), short(&entry.manifest.id), python.clone(), facts.libc.to_string(), size]
    };
    match entry.names.as_slice() {
        [] => vec![row("-")],
        names => names.iter().map(|name| row(name)).collect(),
    }
}

fn table(rows: &[[String; 5]]) -> String {
    let mut widths = [0; 5];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

pub(super) fn inspect(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let asked = matches.get_one::<String>("image").map(String::as_str).unwrap_or_default();
    let entry = store.find(asked).map_err(failed)?;
    let text = if wants_json(matches) { format!("{}\n", as_json(&entry)) } else { as_text(&entry) };
    print(text);
    Ok(ExitCode::SUCCESS)
}

/// An image for programs.
pub(super) fn as_json(entry: &Entry) -> Value {
    let mut value = json!(entry.manifest);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("names".to_owned(), json!(entry.names));
        fields.insert("folder".to_owned(), json!(entry.folder));
    }
    value
}

/// Those that it names, by the names of settings.
fn limits(limits: &ImageLimits) -> String {
    let bytes = |bytes: u64| HumanBytes(bytes).to_string();
    let rows = [
        ("memory", limits.memory_bytes.map(bytes)),
        ("processes", limits.processes.map(|count| count.to_string())),
        ("cpus", limits.cpu_millis.map(|millis| format!("{}", millis as f64 / 1000.0))),
        ("workspace-bytes", limits.workspace_bytes.map(bytes)),
        ("workspace-files", limits.workspace_inodes.map(|count| count.to_string())),
        ("tmp-bytes", limits.tmp_bytes.map(bytes)),
        ("timeout-max", limits.timeout_seconds_max.map(|seconds| format!("{seconds} s"))),
    ];
    let named = rows.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
    named.collect::<Vec<_>>().join(", ")
}

/// An image for people, a line for each fact.
fn as_text(entry: &Entry) -> String {
    let (manifest, facts) = (&entry.manifest, &entry.manifest.facts);
    let interpreter = match &facts.interpreter {
        Interpreter::Python { path, version } => format!("Python {version} ({})", path.display()),
        Interpreter::None(why) => format!("none: {why}"),
    };
    let source = match &manifest.source {
        Source::Declared { base: None, .. } => "declared, on this machine".to_owned(),
        Source::Declared { base: Some(base), .. } => format!("declared, on the image {base}"),
        Source::Oci { reference, digest } => format!("{reference} ({digest})"),
    };
    let packages = match &manifest.source {
        Source::Declared { packages, .. } => packages.join(" "),
        Source::Oci { .. } => String::new(),
    };
    let environment = facts.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let rows = [
        ("id", manifest.id.clone()),
        ("names", entry.names.join(" ")),
        ("source", source),
        ("interpreter", interpreter),
        ("libc", facts.libc.to_string()),
        ("shell", facts.shell.display().to_string()),
        ("languages", facts.languages.join(" ")),
        ("packages", packages),
        ("preloads", facts.preloads.join(" ")),
        ("environment", environment.collect::<Vec<_>>().join(" ")),
        ("limits", limits(&facts.limits)),
        ("size", HumanBytes(manifest.bytes).to_string()),
        ("folder", entry.folder.display().to_string()),
    ];
    let lines = rows.iter().filter(|(_, value)| !value.is_empty());
    // What an image says of itself is a stranger's: nothing in it moves the cursor.
    lines.map(|(name, value)| format!("{name}: {}\n", value.escape_debug())).collect()
}
