//! `ringfence run`: one program in a session of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_client::{ClientError, ExecResult, FileEntry, Lease, LeaseOptions, ToolCall};

use super::ends::{self, Ends};
use super::fetch::{fetch, place};
use super::outcome::{NOT_RUN, as_json, by_signal, exit, show};
use super::source::{call, call_args, read};
use super::{Connection, block_on, complain, connection_args, print_json};

const AFTER: &str = "\
Leases a session, uploads the inputs into its working directory, runs the program, fetches what it wrote, and releases \
the session. A file that ends in .sh is a shell script; anything else is Python.

Example: ringfence run plot.py --input sales.csv --output-dir out

Exit status: the program's own (124 after its time, 137 without memory, where the backend says so); 125 where it could \
not be run at all or what it wrote could not be fetched, 130 after ctrl-C, 143 after SIGTERM, 129 where its terminal is gone, 2 \
for wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let program = Arg::new("program").value_name("FILE").required(true);
    let input = Arg::new("input").long("input").short('i').value_name("LOCAL[=PATH]").action(ArgAction::Append);
    let output = Arg::new("output-dir").long("output-dir").short('o').value_name("DIR");
    Command::new("run")
        .about("Runs one program in a session of its own")
        .after_help(AFTER)
        .arg(program.help("The program; - reads it from standard input"))
        .arg(input.help("Upload a file, under its own name or another path; may be given again"))
        .arg(
            output.value_parser(value_parser!(PathBuf)).help(
                "Fetch what the program wrote into this folder: the files that its result names, and all at the top",
            ),
        )
        .arg(Arg::new("image").long("image").value_name("IMAGE").help("Ask for an image"))
        .args(call_args())
        .args(connection_args())
}

/// Runs it.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    block_on(session(matches)).unwrap_or_else(|error| {
        complain(&error);
        ExitCode::from(NOT_RUN)
    })
}

async fn session(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let place = matches.get_one::<String>("program").map(String::as_str).unwrap_or_default();
    let text = read(place)?;
    let is_bash = matches.get_flag("bash") || Path::new(place).extension().is_some_and(|end| end == "sh");
    let mut options = LeaseOptions::default();
    if let Some(image) = matches.get_one::<String>("image") {
        options = options.image(image);
    }
    if let Some(folder) = matches.get_one::<PathBuf>("output-dir") {
        // Before the program runs: it is too late when it has.
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut ends = Ends::listen()?;
    let client = Connection::of(matches)?.client()?;
    let lease = match ends::lease(&client, &options, &mut ends).await? {
        Ok(lease) => lease,
        Err(number) => return Ok(by_signal(number)),
    };
    let call = call(matches, text, is_bash);
    let worked = tokio::select! {
        worked = work(matches, &lease, &call) => worked.map(|done| exit(&done)),
        number = ends.next() => Ok(by_signal(number)),
    };
    // Whether or not: the program has run, and its status counts.
    ends::release(lease, &mut ends).await;
    worked
}

async fn work(matches: &ArgMatches, lease: &Lease, call: &ToolCall) -> anyhow::Result<ExecResult> {
    for input in matches.get_many::<String>("input").into_iter().flatten() {
        let (local, path) = match input.split_once('=') {
            Some((local, path)) => (local, path),
            None => (input.as_str(), name_of(input)?),
        };
        lease.put_local(path, Path::new(local)).await.with_context(|| format!("uploading {local}"))?;
    }
    let folder = matches.get_one::<PathBuf>("output-dir");
    let before = if folder.is_some() { listing(lease).await? } else { Vec::new() };
    let done = lease.run(call).await?;
    if matches.get_flag("json") {
        print_json(&as_json(lease.id(), &done));
    } else {
        show(&done);
    }
    if let Some(folder) = folder {
        fetch_all(lease, &done, &before, folder).await?;
    }
    Ok(done)
}

fn name_of(local: &str) -> anyhow::Result<&str> {
    match Path::new(local).file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(name),
        None => bail!("{local} has no name to upload it under: say {local}=NAME"),
    }
}

/// The files of the workspace's top; empty where the backend lists none.
async fn listing(lease: &Lease) -> anyhow::Result<Vec<FileEntry>> {
    match lease.list("").await {
        Err(ClientError::NotFound { .. }) => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

/// Fetches what the result names, and what has appeared or changed since `before`: not every backend names all.
async fn fetch_all(lease: &Lease, done: &ExecResult, before: &[FileEntry], folder: &Path) -> anyhow::Result<()> {
    let mut names: Vec<String> = done.files.iter().map(|file| file.filename.clone()).collect();
    let changed = listing(lease).await?.into_iter().filter(|file| !before.contains(file)).map(|file| file.path);
    names.extend(changed.filter(|path| done.files.iter().all(|file| file.filename != *path)).collect::<Vec<_>>());
    for name in names {
        let local = place(folder, &name)?;
        fetch(lease, &name, &local).await.with_context(|| format!("fetching {name:?}"))?;
    }
    Ok(())
}
