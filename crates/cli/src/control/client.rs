//! The commands that speak to a control plane by its URL, as its admin. They print what it answers, as JSON.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_probe::{Address, Connection, percent_encoded};
use ringfence_secret::{create_private, read_line};
use serde_json::{Value, json};

use super::policy;
use crate::client_commands::{authorities, ca_file_arg, print, text};

/// Where the control plane is.
pub(super) const URL_VARIABLE: &str = "RINGFENCE_CONTROL_URL";
/// The file of the admin's token.
pub(super) const TOKEN_FILE_VARIABLE: &str = "RINGFENCE_CONTROL_TOKEN_FILE";
/// The file of authorities that its certificate may lead to.
pub(super) const CA_FILE_VARIABLE: &str = "RINGFENCE_CONTROL_CA_FILE";

fn value(name: &'static str, shown: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(shown).help(help)
}

fn id(name: &'static str) -> Arg {
    Arg::new("id").value_name(name).required(true)
}

fn group(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).subcommand_required(true).arg_required_else_help(true)
}

/// The command lines.
pub(super) fn commands() -> [Command; 5] {
    let name = value("name", "TEXT", "For people");
    let sub = |name: &'static str, about: &'static str| Command::new(name).about(about);
    let workspaces = group("workspaces", "Workspaces and their policies")
        .subcommand(sub("list", "Lists them"))
        .subcommand(sub("show", "Shows one").arg(id("ID")))
        .subcommand(policy::options(
            sub("create", "Makes one; nothing is allowed unless it is said").arg(id("ID")).arg(name.clone()),
        ))
        .subcommand(policy::options(sub("set", "Changes what is given").arg(id("ID")).arg(name.clone())))
        .subcommand(sub("delete", "Deletes one: it gets no more grants; its id is never used again").arg(id("ID")));
    let tokens = group("tokens", "Tokens of gateways, users and front doors")
        .subcommand(sub("list", "Lists them, without their secrets"))
        .subcommand(
            sub("create", "Makes one")
                .arg(value("kind", "KIND", "Whose it is").required(true).value_parser(["gateway", "user", "gate"]))
                .arg(name.required(true))
                .arg(
                    value("workspace", "ID", "A workspace that it may name; repeatable, a user's is one")
                        .action(ArgAction::Append),
                )
                .arg(
                    value("out", "FILE", "Where the secret goes, with mode 0600; it is shown nowhere else")
                        .required(true)
                        .value_parser(value_parser!(PathBuf)),
                ),
        )
        .subcommand(sub("revoke", "Revokes one").arg(id("ID")));
    let keys = group("keys", "Signing keys")
        .subcommand(sub("list", "Lists them and says which one signs"))
        .subcommand(
            sub("rotate", "Makes the next key: published now, signing after the lead time")
                .arg(
                    value("algorithm", "NAME", "EdDSA or ES256")
                        .default_value("EdDSA")
                        .value_parser(["EdDSA", "ES256"]),
                )
                .arg(value("at-once", "", "Sign with it at once, as after a leak").action(ArgAction::SetTrue)),
        )
        .subcommand(sub("revoke", "Takes one out at once").arg(id("KID")));
    let usage = sub("usage", "Sums of usage")
        .arg(value("workspace", "ID", "Of this workspace alone"))
        .arg(value("from", "DAY", "The first day, YYYY-MM-DD in UTC"))
        .arg(value("to", "DAY", "The last day"))
        .arg(value("by", "NAMES", "What is told apart: workspace, day, tool, by commas"))
        .arg(value("csv", "", "As CSV").action(ArgAction::SetTrue));
    let audit = sub("audit", "Every change and every grant")
        .arg(value("workspace", "ID", "Of this workspace alone"))
        .arg(value("after", "N", "Lines after the one of this id"))
        .arg(value("limit", "N", "At most so many; 100 unless given"));
    [workspaces, tokens, keys, usage, audit].map(connected)
}

/// With the arguments that say where the control plane is.
fn connected(command: Command) -> Command {
    let url =
        value("url", "URL", "Where the control plane is").env(URL_VARIABLE).default_value("http://127.0.0.1:8090");
    let file = value("token-file", "FILE", "The file of the admin's token (mode 0600)").env(TOKEN_FILE_VARIABLE);
    let file = file.value_parser(value_parser!(PathBuf));
    command.args([url, file, ca_file_arg(CA_FILE_VARIABLE)].map(|arg| arg.global(true)))
}

/// A control plane, asked as its admin.
struct Plane(Connection);

impl Plane {
    fn of(matches: &ArgMatches) -> anyhow::Result<Self> {
        let Some(path) = matches.get_one::<PathBuf>("token-file") else {
            bail!("the admin's token is needed: --token-file, or the variable {TOKEN_FILE_VARIABLE}");
        };
        let token = read_line(path, 1)?;
        let (token, authorities) = (token.as_str().to_owned(), authorities(matches)?);
        let address = Address::believing(&text(matches, "url"), Some(token), authorities.as_deref())?;
        Ok(Plane(Connection::new(&address)))
    }

    /// The body of a successful answer.
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Vec<u8>> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.0.call(method, path, "application/json", body.as_bytes());
        let answer = answer.context("the control plane does not answer")?;
        if !(200..300).contains(&answer.status) {
            let parsed: Option<Value> = serde_json::from_slice(&answer.body).ok();
            let detail = parsed.as_ref().and_then(|body| body.get("detail")?.as_str()).unwrap_or("it gives no reason");
            bail!("the control plane answered {}: {detail}", answer.status);
        }
        if answer.body_bytes > answer.body.len() as u64 {
            bail!("the answer is larger than this command holds: ask for less");
        }
        Ok(answer.body)
    }

    fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let answer = self.call(method, path, body)?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).context("the control plane's answer is no JSON")
    }

    /// Every entry of a list that comes in pages.
    fn all(&mut self, path: &str, member: &str) -> anyhow::Result<Value> {
        let (mut entries, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.json("GET", &format!("{path}?limit=1000&after={}", percent_encoded(&after)), None)?;
            entries.extend(page.get(member).and_then(Value::as_array).into_iter().flatten().cloned());
            match page.get("next").and_then(Value::as_str) {
                // A page that does not go on would be asked for for ever.
                Some(next) if next > after.as_str() => after = next.to_owned(),
                _ => return Ok(json!({ member: entries })),
            }
        }
    }
}

/// Does what the subcommand says.
pub(super) fn run(group: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    let (name, inner) = matches.subcommand().unwrap_or((group, matches));
    let mut plane = Plane::of(inner)?;
    let of_id = |path: &str| format!("{path}/{}", percent_encoded(&text(inner, "id")));
    let answer = match (group, name) {
        ("workspaces", "list") => plane.all("/v1/workspaces", "workspaces")?,
        ("workspaces", "show") => plane.json("GET", &of_id("/v1/workspaces"), None)?,
        ("workspaces", "create") => {
            let policy = policy::changed(inner, json!({"enabled": false, "tools": ["code_execution"]}))?;
            let body = json!({"id": text(inner, "id"), "name": inner.get_one::<String>("name"), "policy": policy});
            plane.json("POST", "/v1/workspaces", Some(&body))?
        }
        ("workspaces", "set") => {
            let path = of_id("/v1/workspaces");
            let mut now = plane.json("GET", &path, None)?;
            let policy = policy::changed(inner, now.get_mut("policy").map(Value::take).unwrap_or_default())?;
            // Of the version that was read alone: a change meanwhile is not overwritten.
            let (name, version) = (inner.get_one::<String>("name"), now.get("version"));
            plane.json("PUT", &path, Some(&json!({"name": name, "policy": policy, "version": version})))?
        }
        ("workspaces", _) => plane.json("DELETE", &of_id("/v1/workspaces"), None)?,
        ("tokens", "list") => plane.all("/v1/tokens", "tokens")?,
        ("tokens", "create") => create_token(&mut plane, inner)?,
        ("tokens", _) => plane.json("DELETE", &of_id("/v1/tokens"), None)?,
        ("keys", "list") => plane.json("GET", "/v1/keys", None)?,
        ("keys", "rotate") => {
            let body = json!({"algorithm": text(inner, "algorithm"), "at_once": inner.get_flag("at-once")});
            plane.json("POST", "/v1/keys", Some(&body))?
        }
        ("keys", _) => plane.json("DELETE", &of_id("/v1/keys"), None)?,
        ("usage", _) if inner.get_flag("csv") => {
            let path = format!("/v1/usage.csv{}", query(inner, &["workspace", "from", "to", "by"]));
            print(plane.call("GET", &path, None)?);
            return Ok(());
        }
        ("usage", _) => {
            plane.json("GET", &format!("/v1/usage{}", query(inner, &["workspace", "from", "to", "by"])), None)?
        }
        _ => plane.json("GET", &format!("/v1/audit{}", query(inner, &["workspace", "after", "limit"])), None)?,
    };
    if !answer.is_null() {
        print(serde_json::to_string_pretty(&answer)? + "\n");
    }
    Ok(())
}

fn query(matches: &ArgMatches, names: &[&str]) -> String {
    let given = names.iter().filter_map(|name| {
        let value = matches.get_one::<String>(name)?;
        Some(format!("{name}={}", percent_encoded(value)))
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// Makes a token whose secret goes to a file: a terminal and its log keep what they show.
fn create_token(plane: &mut Plane, matches: &ArgMatches) -> anyhow::Result<Value> {
    let workspaces = matches.get_many::<String>("workspace").map(|ids| ids.collect::<Vec<_>>());
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    // The file first: a token whose secret is lost would have to be revoked.
    create_private(&out, b"")?;
    let kept = (|| {
        let body = json!({"kind": text(matches, "kind"), "name": text(matches, "name"), "workspaces": workspaces});
        let mut made = plane.json("POST", "/v1/tokens", Some(&body))?;
        let secret = made.get("token").and_then(Value::as_str).context("the control plane gave no token")?;
        std::fs::write(&out, format!("{secret}\n")).with_context(|| out.display().to_string())?;
        made.as_object_mut().map(|made| made.remove("token"));
        Ok(made)
    })();
    if kept.is_err() {
        let _ = std::fs::remove_file(&out);
    }
    kept
}
