//! A policy on the command line: what is given is changed, what is not stays.

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};

/// Options of numbers, and the members that they set.
const NUMBERS: [(&str, &str, &str); 5] = [
    ("sessions-max", "sessions_max", "Live sessions at once"),
    ("timeout-max", "timeout_seconds_max", "The longest timeout of a call, seconds"),
    ("idle-timeout-max", "idle_timeout_seconds_max", "The longest idle time of a session, seconds"),
    ("lifetime-max", "max_lifetime_seconds_max", "The longest life of a session, seconds"),
    ("iterations-max", "iterations_max", "The most rounds of the gateway's tool loop"),
];

/// What `--clear` takes: the option whose member is taken out.
const CLEARABLE: [&str; 7] =
    ["image", "purpose-hint", "sessions-max", "timeout-max", "idle-timeout-max", "lifetime-max", "iterations-max"];

/// The options of a policy.
pub(super) fn options(mut command: Command) -> Command {
    let value = |name: &'static str, shown: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(shown).help(help)
    };
    command = command
        .arg(value("enabled", "BOOL", "Whether code may be run at all").value_parser(value_parser!(bool)))
        .arg(value("tool", "NAME", "A tool kind that is allowed; repeatable, replaces all").action(ArgAction::Append))
        .arg(value("image", "NAME", "The one image that sessions run"))
        .arg(value("purpose-hint", "TEXT", "What the tools are for, where a request does not say"));
    for (name, _, help) in NUMBERS {
        command = command.arg(value(name, "N", help).value_parser(value_parser!(u32)));
    }
    let clear = value("clear", "OPTION", "Takes a bound out again; repeatable").action(ArgAction::Append);
    command.arg(clear.value_parser(CLEARABLE.to_vec()))
}

/// The policy after the options; the control plane checks it.
///
/// # Errors
/// When the policy that was there is no object.
pub(super) fn changed(matches: &ArgMatches, policy: Value) -> anyhow::Result<Value> {
    let Value::Object(mut policy) = policy else { bail!("the control plane's policy is no object") };
    for name in matches.get_many::<String>("clear").unwrap_or_default() {
        policy.remove(member(name));
    }
    let mut set = |name: &str, value: Option<Value>| set(&mut policy, name, value);
    set("enabled", matches.get_one::<bool>("enabled").map(|value| json!(value)));
    set("image", matches.get_one::<String>("image").map(|value| json!(value)));
    set("purpose-hint", matches.get_one::<String>("purpose-hint").map(|value| json!(value)));
    set("tools", matches.get_many::<String>("tool").map(|names| json!(names.collect::<Vec<_>>())));
    for (name, _, _) in NUMBERS {
        set(name, matches.get_one::<u32>(name).map(|value| json!(value)));
    }
    Ok(Value::Object(policy))
}

fn set(policy: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        policy.insert(member(name).to_owned(), value);
    }
}

fn member(option: &str) -> &str {
    let number = NUMBERS.iter().find(|(name, _, _)| *name == option);
    number.map_or(if option == "purpose-hint" { "purpose_hint" } else { option }, |(_, member, _)| member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_their_members_alone() {
        let given = ["x", "--timeout-max", "60", "--tool", "a", "--tool", "b", "--clear", "image", "--enabled", "true"];
        let matches = options(Command::new("x")).try_get_matches_from(given).unwrap();
        let before = json!({"enabled": false, "tools": ["c"], "image": "i", "sessions_max": 3});
        let after = json!({"enabled": true, "tools": ["a", "b"], "sessions_max": 3, "timeout_seconds_max": 60});
        assert_eq!(changed(&matches, before).unwrap(), after);
        assert!(CLEARABLE.iter().all(|name| !member(name).contains('-')));
    }
}
