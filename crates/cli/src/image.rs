//! `ringfence image`: the store of images, looked at and kept.

pub(crate) mod bring;
mod keep;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_image::{ImageError, Store};

use crate::failure::{self, Failure, Kind};
use crate::settings::Values;

/// Below the commands of `image --help`.
const AFTER: &str = "\
An IMAGE is a name, an id (or 12 digits or more of its beginning), or the digest of an OCI image. Images are in the same \
state folder as those of `serve`: --state-dir, RINGFENCE_STATE_DIR, the file of RINGFENCE_CONFIG, or the default.

A minute to an image of your own:
  printf 'base = \"scientific\"\\npreloads = [\"sympy\"]\\n' > mine.toml
  ringfence image build mine.toml
  ringfence serve --image mine

Exit status: 0 done, 1 it failed, or `verify` found damage, 2 the command line or a setting is wrong, 3 there is no such \
image. docs/images.md says more.";

/// The command line.
pub(crate) fn command() -> Command {
    let state = Arg::new("state-dir").long("state-dir").value_name("FOLDER").global(true);
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).global(true);
    Command::new("image")
        .about("Images: list, inspect, build, lock, import, pull, name, remove, prune, verify")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(state.help("Where images are kept"))
        .arg(json.help("Tell the outcome as JSON"))
        .subcommand(Command::new("list").about("Shows all images"))
        .subcommand(Command::new("inspect").about("Shows everything that is known of an image").arg(image("IMAGE")))
        .subcommand(build())
        .subcommand(lock())
        .subcommand(import())
        .subcommand(pull())
        .subcommand(
            Command::new("tag")
                .about("Gives an image a further name; an image that had it loses it")
                .arg(image("IMAGE"))
                .arg(Arg::new("name").value_name("NAME").required(true)),
        )
        .subcommand(
            Command::new("remove")
                .about("Takes a name away; with its last name, or by its id, the image itself")
                .arg(image("IMAGE").num_args(1..)),
        )
        .subcommand(
            Command::new("prune").about(
                "Takes away images without a name that no server runs, and what was fetched for builds and pulls",
            ),
        )
        .subcommand(
            Command::new("verify")
                .about("Reads images to the last byte: whether each is what it was when it was made")
                .arg(image("IMAGE").num_args(0..).required(false).help("All images where none is named")),
        )
}

fn image(name: &'static str) -> Arg {
    Arg::new("image").value_name(name).required(true)
}

fn name() -> Arg {
    Arg::new("name").long("name").value_name("NAME")
}

fn build() -> Command {
    let python = Arg::new("python").long("python").value_name("PATH").value_parser(value_parser!(PathBuf));
    Command::new("build")
        .about("Builds an image from a declaration; one that is there already is left as it is")
        .arg(
            Arg::new("declaration")
                .value_name("FILE")
                .required(true)
                .help("A declaration, or `scientific`, `bare`, `node`"),
        )
        .arg(python.help("The machine's Python to stand on, where the declaration names none"))
}

fn lock() -> Command {
    let python = Arg::new("python").long("python").value_name("PATH").value_parser(value_parser!(PathBuf));
    Command::new("lock")
        .about("Writes the lock of a declaration's requirements: each package, pinned with its digest")
        .arg(Arg::new("declaration").value_name("FILE").required(true).value_parser(value_parser!(PathBuf)))
        .arg(python.help("The machine's Python to stand on, where the declaration names none"))
}

fn import() -> Command {
    let root = Arg::new("root").long("root").action(ArgAction::SetTrue).conflicts_with("which");
    Command::new("import")
        .about("Takes in what `docker save` wrote, an OCI layout (folder or archive), or the archive of a root")
        .arg(Arg::new("path").value_name("PATH").required(true).value_parser(value_parser!(PathBuf)))
        .arg(name().help("What to call it; else the name that the archive gives it, or the file's"))
        .arg(Arg::new("which").long("which").value_name("NAME").help("Which one, where the archive holds several"))
        .arg(root.help("It is a plain root filesystem, as mmdebstrap or `docker export` write it"))
}

fn pull() -> Command {
    let plain = Arg::new("plain-http").long("plain-http").value_name("HOST").action(ArgAction::Append);
    Command::new("pull")
        .about("Takes in an image from a registry, with the credentials of Docker's configuration file")
        .arg(Arg::new("reference").value_name("REFERENCE").required(true))
        .arg(name().help("What to call it; else the reference"))
        .arg(plain.help("A registry (host or host:port) that is asked without TLS; those on this machine always are"))
}

/// Does what the subcommand says.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::FAILURE };
    failure::ended(open(matches).and_then(|store| act(verb, &store, matches)))
}

fn act(verb: &str, store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match verb {
        "list" => show::list(store, matches),
        "inspect" => show::inspect(store, matches),
        "build" => bring::build(store, matches),
        "lock" => bring::lock(store, matches),
        "import" => bring::import(store, matches),
        "pull" => bring::pull(store, matches),
        "tag" => keep::tag(store, matches),
        "remove" => keep::remove(store, matches),
        "prune" => keep::prune(store, matches),
        _ => keep::verify(store, matches),
    }
}

/// The same state folder as `serve` would take.
fn open(matches: &ArgMatches) -> Result<Store, Failure> {
    let flag = |name: &str| (name == "state-dir").then(|| matches.get_one::<String>(name).cloned()).flatten();
    let variable = |name: &str| std::env::var(name).ok();
    let file = std::env::var_os(crate::args::CONFIG_VARIABLE).map(PathBuf::from);
    let values = Values::gather(flag, variable, file.as_deref());
    let state_dir = values.and_then(|values| crate::config::state_dir(&values));
    Ok(Store::at(&state_dir.map_err(Failure::of(Kind::Configuration))?))
}

/// A failure with its way out, and the status that the help names.
fn failed(error: ImageError) -> Failure {
    let help = error.help();
    let kind = match error {
        ImageError::Unknown { .. } => Kind::Image,
        ImageError::Declaration { .. } | ImageError::Name { .. } => Kind::Configuration,
        _ => Kind::Serving,
    };
    Failure::new(kind, error).help(help)
}

fn wants_json(matches: &ArgMatches) -> bool {
    matches.get_flag("json")
}
