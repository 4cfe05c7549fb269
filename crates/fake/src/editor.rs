//! The text editor's commands.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::programs::Run;
use crate::workspace::{Disk, is_inside, relative};

/// What each file was before its edits; `None` where it was not there.
pub(crate) type History = BTreeMap<String, Vec<Option<String>>>;

/// Runs a command; `None` where the input is malformed.
pub(crate) fn run(input: &Value, disk: &mut Disk, history: &mut History) -> Option<Run> {
    let path = input["path"].as_str().filter(|path| !path.is_empty())?;
    let field = |name: &str| input[name].as_str();
    let change: Box<dyn FnOnce(Option<String>) -> Result<String, String>> = match input["command"].as_str()? {
        "view" => return Some(view(input, path, disk)),
        "undo_edit" => return Some(undo(path, disk, history)),
        "create" => {
            let text = field("file_text")?.to_owned();
            Box::new(move |old| if old.is_some() { Err("the file exists".to_owned()) } else { Ok(text) })
        }
        "str_replace" => {
            let (old, new) = (field("old_str")?.to_owned(), field("new_str")?.to_owned());
            Box::new(move |text| {
                let text = text.ok_or("there is no such file")?;
                if text.matches(&old).count() == 1 {
                    Ok(text.replace(&old, &new))
                } else {
                    Err("not found once".to_owned())
                }
            })
        }
        "insert" => {
            let (line, new) =
                (usize::try_from(input["insert_line"].as_i64()?).unwrap_or(usize::MAX), field("new_str")?.to_owned());
            Box::new(move |text| {
                let mut lines: Vec<String> =
                    text.ok_or("there is no such file")?.split_inclusive('\n').map(str::to_owned).collect();
                if line > lines.len() {
                    return Err("there is no such line".to_owned());
                }
                lines.insert(line, format!("{}\n", new.trim_end_matches('\n')));
                Ok(lines.concat())
            })
        }
        _ => return None,
    };
    let Some(absolute) = disk.resolve(path).filter(|absolute| is_inside(absolute)) else {
        return Some(failed(format!("{path}: outside of the workspace")));
    };
    let old = text(&absolute, disk);
    Some(match change(old.clone()) {
        Err(reason) => failed(format!("{path}: {reason}")),
        Ok(new) => {
            history.entry(absolute.clone()).or_default().push(old);
            disk.write(&absolute, new.into_bytes());
            let produced = vec![relative(&absolute).to_owned()];
            Run { stdout: format!("{path}: done\n"), produced, ..Run::default() }
        }
    })
}

fn view(input: &Value, path: &str, disk: &Disk) -> Run {
    let Some(absolute) = disk.resolve(path).filter(|absolute| is_inside(absolute)) else {
        return failed(format!("{path}: outside of the workspace"));
    };
    let Some(text) = text(&absolute, disk) else { return failed(format!("{path}: there is no such file")) };
    let whole = [Value::from(1), Value::from(-1)];
    let range = input["view_range"].as_array().map_or(whole.as_slice(), Vec::as_slice);
    let bound = |at: usize| range.get(at).and_then(Value::as_i64).and_then(|line| usize::try_from(line).ok());
    let (first, last) = (bound(0).unwrap_or(1), bound(1).unwrap_or(usize::MAX));
    let shown = text.split_inclusive('\n').take(last).skip(first.saturating_sub(1)).collect();
    Run { stdout: shown, ..Run::default() }
}

fn undo(path: &str, disk: &mut Disk, history: &mut History) -> Run {
    let absolute = disk.resolve(path).unwrap_or_default();
    match history.get_mut(&absolute).and_then(Vec::pop) {
        None => return failed(format!("{path}: there is nothing to undo")),
        Some(Some(text)) => disk.write(&absolute, text.into_bytes()),
        Some(None) => drop(disk.remove(&absolute)),
    }
    Run { stdout: format!("{path}: undone\n"), ..Run::default() }
}

fn text(absolute: &str, disk: &Disk) -> Option<String> {
    disk.file(absolute).map(|file| String::from_utf8_lossy(&file.content).into_owned())
}

fn failed(line: String) -> Run {
    Run { stderr: format!("{line}\n"), return_code: 1, ..Run::default() }
}
