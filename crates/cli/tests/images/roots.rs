//! Roots that were made elsewhere: one of Debian's packages, one that is a static program alone.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{House, lease, options};

/// What Debian's Python, shell and tools are made of; `{}` is the version of its Python.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "libacl1",
    "libattr1",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgmp10",
    "libpcre2-8-0",
    "libpython{}-minimal",
    "libpython{}-stdlib",
    "libselinux1",
    "libssl3",
    "libtinfo6",
    "python{}-minimal",
    "python3-minimal",
    "zlib1g",
];

/// Runs a program on a text; gives what it wrote.
fn run(program: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program:?}");
    output.stdout
}

/// The files of Debian's own packages as an archive: what debootstrap would make of them, without the network.
pub(crate) fn debian_root(archive: &Path) {
    let script = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = run(Command::new("/usr/bin/python3").args(["-c", script]), b"");
    let version = String::from_utf8(version).unwrap();
    let packages: Vec<String> = PACKAGES.iter().map(|package| package.replace("{}", version.trim())).collect();
    let listed = run(Command::new("dpkg-query").arg("--listfiles").args(&packages), b"");
    let listed = String::from_utf8(listed).unwrap();
    let wanted = |path: &&str| {
        path.starts_with('/')
            && !["/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/."].iter().any(|no| path.starts_with(no))
    };
    let there = |path: &&str| fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir());
    let mut files: Vec<&str> = listed.lines().filter(wanted).filter(there).map(|path| &path[1..]).collect();
    files.sort_unstable();
    files.dedup();
    let mut tar = Command::new("tar");
    tar.args(["--create", "--directory=/", "--file"]).arg(archive).args(["--no-recursion", "--files-from=-"]);
    run(&mut tar, files.join("\n").as_bytes());
}

/// One static program under the names of its tools, and nothing else.
pub(crate) fn static_root(archive: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy("/bin/busybox", bin.join("busybox")).expect("/bin/busybox of the Debian package busybox-static");
    for tool in ["sh", "cat", "echo", "ls", "id", "uname"] {
        std::os::unix::fs::symlink("busybox", bin.join(tool)).unwrap();
    }
    let mut tar = Command::new("tar");
    run(tar.args(["--create", "--directory"]).arg(folder.path()).arg("--file").arg(archive).arg("bin"), b"");
}

#[test]
fn a_debian_root_runs_its_own_python_and_shell() {
    let house = House::new();
    let archive = house.folder().join("debian.tar");
    debian_root(&archive);
    let built =
        house.image(&["import", "--root", &archive.display().to_string(), "--name", "debian:12", "--json"]).json();
    assert_eq!(built["facts"]["libc"], "glibc");
    assert_eq!(built["facts"]["interpreter"]["python"]["path"], "/usr/bin/python3");
    let digest = built["source"]["oci"]["digest"].as_str().unwrap();
    let server = options().state_dir(house.folder()).start();
    let mut client = server.client();
    for name in ["debian:12", built["id"].as_str().unwrap(), digest, &format!("registry/debian@{digest}")] {
        assert_eq!(lease(&mut client, &json!({"image": name})).1, "debian:12", "{name}");
    }
    let mut session = client.lease(&json!({"image": "debian:12"}));
    assert_eq!(
        session.python("import sys, ctypes; x = 6; print(sys.executable, sys.prefix)"),
        "/usr/bin/python3 /usr\n"
    );
    assert_eq!(session.python("print(x * 7)"), "42\n");
    assert_eq!(
        session.python("import os; print(os.getuid(), os.getcwd(), os.path.exists('/usr/bin/node'))"),
        "1000 /workspace False\n"
    );
    assert_eq!(
        session.python("open('f', 'w').write('kept'); print(open('/etc/passwd').read().count('sandbox'))"),
        "2\n"
    );
    assert_eq!(
        session.bash("cat f; echo $BASH_VERSION | head -c 2; touch /usr/x 2>&1 | tail -c 22"),
        "kept5.Read-only file system\n"
    );
    let failed = session.execute(&json!({"tool": "code_execution", "input": {"code": "1 / 0"}}));
    assert!(failed.to_string().contains("ZeroDivisionError"), "{failed}");
    assert_eq!(session.python("import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout)"), "5\n\n");
    session.release();
    // The default image's own.
    assert!(client.lease(&json!({})).python("import sys; print(sys.executable)").contains("/opt/ringfence"));
}

#[test]
fn an_image_without_a_python_serves_the_shell_and_the_editor() {
    let house = House::new();
    let archive = house.folder().join("box.tar");
    static_root(&archive);
    let built = house.image(&["import", "--root", &archive.display().to_string(), "--json"]).json();
    assert_eq!((built["names"].clone(), built["facts"]["libc"].clone()), (json!(["box"]), json!("none")));
    assert_eq!(built["facts"]["interpreter"]["none"], "it holds no Python");
    let server = options().state_dir(house.folder()).args(["--image", "box"]).start();
    assert!(server.ready_line("image").unwrap().starts_with("box (no interpreter"), "{server:?}");
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.bash("echo one > f; cat f; id -u; ls /"), "one\n1000\nbin\ndev\netc\nproc\ntmp\nworkspace\n");
    let edit = json!({"tool": "text_editor_code_execution", "input": {"command": "view", "path": "f"}});
    let viewed = session.execute(&edit);
    assert!(viewed.to_string().contains("one"), "{viewed}");
    let ran: Value = session.execute(&json!({"tool": "code_execution", "input": {"code": "print(1)"}}));
    assert!(ran.to_string().contains("no Python interpreter"), "{ran}");
    assert_eq!(session.bash("cat f"), "one\n", "the session lives on");
}

#[test]
fn a_declaration_stands_on_a_root_and_shares_its_files() {
    let house = House::new();
    let archive = house.folder().join("box.tar");
    static_root(&archive);
    house.image(&["import", "--root", &archive.display().to_string()]);
    fs::write(house.folder().join("tool.sh"), "#!/bin/sh\necho tool $WHO\n").unwrap();
    fs::set_permissions(house.folder().join("tool.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let text = "base = 'box'\n[environment]\nWHO = 'me'\n[files]\n'/bin/tool' = 'tool.sh'\n";
    fs::write(house.folder().join("mine.toml"), text).unwrap();
    let mine = house.folder().join("mine.toml").display().to_string();
    let built = house.image(&["build", &mine, "--json"]).json();
    let inode = |folder: &str| {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(Path::new(folder).join("root/bin/busybox")).unwrap())
    };
    let below = house.image(&["inspect", "box", "--json"]).json();
    assert_eq!(inode(built["folder"].as_str().unwrap()), inode(below["folder"].as_str().unwrap()));
    house.image(&["remove", "box"]);
    let server = options().state_dir(house.folder()).args(["--image", "mine"]).start();
    assert_eq!(server.client().lease(&json!({})).bash("tool"), "tool me\n");
}
