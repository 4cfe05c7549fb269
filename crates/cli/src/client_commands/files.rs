//! `ringfence files`: files of a session that is held.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use ringfence_client::Session;
use serde_json::json;

use super::fetch::fetch;
use super::transfer::{Bar, Counted};
use super::{Connection, block_on, ended, print, print_json, text};

const AFTER: &str = "\
Paths are relative to the session's workspace, which is where its programs run.

Example: ringfence files put \"$SESSION\" sales.csv && ringfence files get \"$SESSION\" chart.png

Exit status: 0 done, 1 the backend could not be reached or refused (no such session, no such file, too large), 2 wrong \
arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let word =
        |name: &'static str, value: &'static str, help: &'static str| Arg::new(name).value_name(value).help(help);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let each = |name: &'static str, about: &'static str| {
        Command::new(name)
            .about(about)
            .after_help(AFTER)
            .arg(word("session", "SESSION", "The session's id").required(true))
            .arg(flag("json", "Show the answer as one JSON object"))
            .args(super::connection_args())
    };
    Command::new("files")
        .about("Lists, fetches, uploads and removes files of a session")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            each("ls", "Lists the files of a folder")
                .arg(word("path", "FOLDER", "The folder; without it the workspace itself").default_value(""))
                .arg(flag("recursive", "Also in the folders below, where the backend can").short('r')),
        )
        .subcommand(each("get", "Fetches a file").arg(word("path", "PATH", "The file").required(true)).arg(word(
            "local",
            "LOCAL",
            "Where to; - is standard output; without it the file's own name, here",
        )))
        .subcommand(
            each("put", "Uploads a file")
                .arg(word("local", "LOCAL", "The file; - is standard input").required(true))
                .arg(word("path", "PATH", "Where to; without it the file's own name")),
        )
        .subcommand(
            each("rm", "Removes a file, where the backend can").arg(word("path", "PATH", "The file").required(true)),
        )
}

/// Does what is asked.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let Some((what, matches)) = matches.subcommand() else { return ExitCode::from(2) };
    ended(block_on(async {
        let session = Connection::of(matches)?.client()?.attach(text(matches, "session"));
        match what {
            "ls" => list(matches, &session).await,
            "get" => get(matches, &session).await,
            "put" => put(matches, &session).await,
            _ => remove(matches, &session).await,
        }
    }))
}

async fn list(matches: &ArgMatches, session: &Session) -> anyhow::Result<()> {
    let folder = text(matches, "path");
    let files = match matches.get_flag("recursive") {
        true => session.list_recursive(&folder).await?,
        false => session.list(&folder).await?,
    };
    if matches.get_flag("json") {
        let files: Vec<_> = files
            .iter()
            .map(|file| json!({"path": file.path, "size_bytes": file.size_bytes, "modified_at": file.modified_at, "mime_type": file.mime_type}))
            .collect();
        print_json(&json!({"files": files}));
    } else {
        for file in files {
            // Names are the programs' to choose: none may speak to the terminal.
            print(format!("{:>12}  {}\n", file.size_bytes, file.path.escape_debug()));
        }
    }
    Ok(())
}

async fn get(matches: &ArgMatches, session: &Session) -> anyhow::Result<()> {
    let path = text(matches, "path");
    let local = match matches.get_one::<String>("local") {
        Some(local) => local.clone(),
        None => match Path::new(&path).file_name().and_then(|name| name.to_str()) {
            Some(name) => name.to_owned(),
            None => bail!("{path:?} is no file's name"),
        },
    };
    if local == "-" {
        session.open(&path).await?.write_to(&mut tokio::io::stdout()).await?;
        return Ok(());
    }
    let local = PathBuf::from(local);
    let local = if local.is_dir() { super::fetch::place(&local, last(&path))? } else { local };
    let bytes = fetch(session, &path, &local).await?;
    if matches.get_flag("json") {
        print_json(&json!({"path": path, "local": local, "size_bytes": bytes}));
    }
    Ok(())
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

async fn put(matches: &ArgMatches, session: &Session) -> anyhow::Result<()> {
    let local = text(matches, "local");
    let path = match (matches.get_one::<String>("path"), local.as_str()) {
        (Some(path), _) => path.clone(),
        (None, "-") => bail!("standard input has no name: say where it is to go"),
        (None, local) => last(local).to_owned(),
    };
    let stored = if local == "-" {
        let reader = Counted { reader: tokio::io::stdin(), bar: Bar::new(&path, None) };
        session.put_reader(&path, reader, None).await?
    } else {
        let reader = tokio::fs::File::open(&local).await.with_context(|| local.clone())?;
        let metadata = reader.metadata().await.with_context(|| local.clone())?;
        if !metadata.is_file() {
            bail!("{local} is no file");
        }
        let reader = Counted { reader, bar: Bar::new(&path, Some(metadata.len())) };
        session.put_reader(&path, reader, Some(metadata.len())).await?
    };
    if matches.get_flag("json") {
        print_json(&json!({"path": stored.path, "size_bytes": stored.size_bytes}));
    }
    Ok(())
}

async fn remove(matches: &ArgMatches, session: &Session) -> anyhow::Result<()> {
    let path = text(matches, "path");
    session.remove(&path).await?;
    if matches.get_flag("json") {
        print_json(&json!({"path": path, "removed": true}));
    }
    Ok(())
}
