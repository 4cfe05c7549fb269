//! `ringfence man`: the manual, a page for each command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_mangen::Man;

use super::{ended, print};

const AFTER: &str = "\
Example: ringfence man --out /usr/local/share/man/man1

Exit status: 0 done, 1 a page could not be written, 2 wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let out = Arg::new("out").long("out").value_name("FOLDER").value_parser(value_parser!(PathBuf));
    Command::new("man")
        .about("Writes the manual: a page for each command into a folder, or the first one to standard output")
        .after_help(AFTER)
        .arg(out.help("The folder; it is made where it is not there"))
}

/// Writes it.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    ended(write(matches.get_one::<PathBuf>("out").map(PathBuf::as_path)))
}

fn write(folder: Option<&Path>) -> anyhow::Result<()> {
    let mut root = crate::args::command().disable_help_subcommand(true);
    root.build();
    let Some(folder) = folder else {
        print(page(&root)?);
        return Ok(());
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write_pages(&root, folder)
}

/// A page for a command and for each below it; what is hidden has none.
fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command)?).with_context(|| path.display().to_string())?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_pages(below, folder))
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).context("a page")?;
    Ok(page)
}
