//! The store and its command: outcomes, statuses, what is in use, and what a kill at any moment leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::roots::static_root;
use crate::{House, Ran, options};

fn declaration(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_command_builds_lists_names_and_takes_away() {
    let house = House::new();
    let folder = house.folder();
    fs::write(folder.join("note"), "a note\n").unwrap();
    let mine = declaration(folder, "mine", "base = 'host'\n[files]\n'/opt/note' = 'note'\n");
    assert!(house.image(&["list"]).out.contains("not built"));
    let built = house.image(&["build", &mine, "--json"]).json();
    let id = built["id"].as_str().unwrap();
    assert_eq!((built["names"].clone(), built["bytes"].clone()), (json!(["mine"]), json!(7)));
    assert_eq!(house.image(&["build", &mine, "--json"]).json()["id"], id);

    house.image(&["tag", "mine", "team/mine:1"]).ok();
    assert_eq!(house.image(&["list", "--json"]).json()[0]["names"], json!(["mine", "team/mine:1"]));
    let text = house.image(&["inspect", &id[..12]]).out;
    assert!(text.contains("names: mine team/mine:1\n") && text.contains("interpreter: Python 3."), "{text}");

    assert_eq!(house.image(&["verify"]).out, "mine: intact\n");
    let file = Path::new(built["folder"].as_str().unwrap()).join("files/0");
    fs::write(&file, "b note\n").unwrap();
    let verified = house.image(&["verify", "mine"]);
    assert_eq!((verified.status, verified.out.as_str()), (1, "mine: damaged\n"));

    assert!(house.image(&["remove", "mine"]).out.contains("has others"));
    assert_eq!(house.image(&["remove", "team/mine:1", "--json"]).json(), json!({"removed": [{"id": id}]}));
    assert_eq!(house.image(&["list", "--json"]).json(), json!([]));
    assert_eq!(house.image(&["prune"]).out, "nothing to take away\n");
}

#[test]
fn what_is_wrong_is_told_with_a_status_and_a_way_out() {
    let house = House::new();
    let folder = house.folder();
    let bad = declaration(folder, "bad", "base = 'host'\ncolour = 'red'\n");
    let orphan = declaration(folder, "orphan", "base = 'gold'\n");
    let archive = folder.join("x.tar").display().to_string();
    fs::write(&archive, "no archive").unwrap();
    let long = "x".repeat(300);
    let cases: [(&[&str], i32, &str); 9] = [
        (&["inspect", "gold"], 3, "`gold`"),
        (&["remove", "gold"], 3, "`gold`"),
        (&["verify", "gold"], 3, "`gold`"),
        (&["build", &bad], 2, "colour"),
        (&["build", &orphan], 3, "`gold`"),
        (&["build", "/nonexistent.toml"], 1, "/nonexistent.toml"),
        (&["build", "bare", "--python", "/nonexistent"], 1, "/nonexistent"),
        (&["import", &archive], 1, "x.tar"),
        (&["pull", "not a reference"], 2, "not a reference"),
    ];
    for (arguments, status, word) in cases {
        let ran = house.image(arguments);
        assert!(ran.status == status && ran.err.contains(word) && ran.out.is_empty(), "{arguments:?}: {ran:?}");
    }
    house.image(&["build", "bare"]).ok();
    assert_eq!(house.image(&["tag", "bare", &long]).status, 2);
    assert_eq!(house.image(&["polish"]).status, 2);
}

#[test]
fn an_image_that_a_server_runs_stays() {
    let house = House::new();
    let server = options().state_dir(house.folder()).args(["--images", ""]).start();
    let removed = house.image(&["remove", "bare"]);
    assert!(removed.status == 1 && removed.err.contains("in use"), "{removed:?}");
    assert_eq!(house.image(&["verify", "bare"]).out, "bare: intact\n");
    assert_eq!(server.client().lease(&json!({})).python("print(6 * 7)"), "42\n");
    drop(server);
    house.image(&["remove", "bare"]).ok();
}

#[test]
fn a_store_of_another_version_is_left_alone() {
    let house = House::new();
    fs::create_dir_all(house.folder().join("images")).unwrap();
    fs::write(house.folder().join("images/names.json"), r#"{"format": 99, "names": {}}"#).unwrap();
    for arguments in [vec!["list"], vec!["build", "bare"], vec!["prune"], vec!["remove", "bare"]] {
        let ran = house.image(&arguments);
        assert!(ran.status == 1 && ran.err.contains("format 99"), "{arguments:?}: {ran:?}");
    }
    let (status, _, said) = options().state_dir(house.folder()).run_to_end();
    assert!(status.code() == Some(3) && said.contains("format 99"), "{said}");
}

/// Kills the command at many moments of its work; whatever is in the store afterwards is whole, and the next command
/// works.
#[test]
fn a_kill_at_any_moment_leaves_whole_images_alone() {
    let house = House::new();
    let root = house.folder().join("root.tar");
    static_root(&root);
    let root = root.display().to_string();
    let import = ["import", "--root", root.as_str(), "--name", "box"];
    let begun = std::time::Instant::now();
    house.image(&import).ok();
    let whole_ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
    house.image(&["remove", "box"]).ok();
    let rounds: u64 = 40;
    let (mut killed, mut finished) = (0, 0);
    for round in 0..rounds {
        let remove = round % 4 == 3;
        let arguments: Vec<&str> = if remove { vec!["remove", "box"] } else { import.to_vec() };
        let mut child = house.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread over the time that the whole takes, and a little beyond: a short wait here is what is being varied.
        std::thread::sleep(Duration::from_millis(whole_ms * (round + 1) / rounds));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            finished += 1
        } else {
            killed += 1
        }
        let listed = house.image(&["list", "--json"]).json();
        for image in listed.as_array().unwrap() {
            assert_eq!(image.get("unreadable"), None, "{image}");
            assert_eq!(house.image(&["verify", image["id"].as_str().unwrap()]).status, 0, "round {round}");
        }
    }
    assert!(killed > 0, "{killed} killed, {finished} finished");
    house.image(&import).ok();
    house.image(&["prune"]).ok();
    let left: Vec<_> = fs::read_dir(house.folder().join("images")).unwrap().map(|e| e.unwrap().file_name()).collect();
    let hidden = left.iter().filter(|name| name.to_string_lossy().starts_with('.') && *name != ".lock");
    assert_eq!(hidden.count(), 0, "{left:?}");
    assert_eq!(left.len(), 3, "one image, the names and the lock: {left:?}");
}

#[test]
fn two_processes_that_build_at_once_make_one_image() {
    let house = House::new();
    let build =
        || house.command(&["build", "bare", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let children: Vec<_> = (0..4).map(|_| build()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["names"], json!(["bare"]));
    }
    assert_eq!(house.image(&["list", "--json"]).json().as_array().unwrap().len(), 1);
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Ran {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap();
        Ran { status, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// It must have worked.
    fn ok(&self) {
        assert_eq!(self.status, 0, "{self:?}");
    }
}

impl House {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.arg("image").args(arguments).arg("--state-dir").arg(self.folder());
        command.env_remove("RINGFENCE_STATE_DIR").env_remove("RINGFENCE_CONFIG").stdin(Stdio::null());
        command
    }

    /// Runs `ringfence image` on this folder.
    pub(crate) fn image(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(arguments))
    }
}

/// What builds cells has another id than whoever fills the store: a hardened unit's umask must not shut it out.
#[test]
fn whatever_the_umask_what_is_served_can_be_entered() {
    let house = House::new();
    let archive = house.folder().join("root.tar");
    static_root(&archive);
    fs::create_dir(house.folder().join("images")).unwrap();
    // As an earlier version made it, with such a umask.
    fs::set_permissions(house.folder().join("images"), fs::Permissions::from_mode(0o700)).unwrap();
    let import = house.command(&["import", "--root", &archive.display().to_string(), "--name", "box"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(import.get_program()).args(import.get_args());
    shell.envs(import.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let imported = Ran::of(&mut shell);
    assert_eq!(imported.status, 0, "{imported:?}");
    let id = house.image(&["inspect", "box", "--json"]).json()["id"].as_str().unwrap().to_owned();
    for (place, least) in
        [("", 0o011), (&*id, 0o055), (&*format!("{id}/root"), 0o055), (&*format!("{id}/root/etc"), 0o055)]
    {
        let path = house.folder().join("images").join(place);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & least, least, "{}: {mode:o}", path.display());
    }
}
