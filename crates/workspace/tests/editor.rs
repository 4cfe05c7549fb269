//! The text editor as a caller sees it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by a panic"
)]

mod place;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use place::{Place, VIEW_BYTES_MAX, path};
use proptest::prelude::*;
use ringfence_op::EditCommand;
use ringfence_workspace::EditReport;

fn create(text: &str) -> EditCommand {
    EditCommand::Create { file_text: text.to_owned() }
}

fn view(range: Option<(i64, i64)>) -> EditCommand {
    EditCommand::View { view_range: range }
}

fn replace(old: &str, new: &str) -> EditCommand {
    EditCommand::StrReplace { old_str: old.to_owned(), new_str: new.to_owned() }
}

fn insert(line: i64, new: &str) -> EditCommand {
    EditCommand::Insert { insert_line: line, new_str: new.to_owned() }
}

fn done(report: &EditReport) {
    assert_eq!((report.return_code, report.stderr.as_str()), (0, ""), "{report:?}");
}

fn refused(report: &EditReport, name: &str) {
    assert_eq!((report.return_code, report.stdout.as_str(), report.files.len()), (1, "", 0), "{report:?}");
    assert!(report.stderr.starts_with(name) && report.stderr.lines().count() == 1, "{report:?}");
}

#[test]
fn a_round_trip() {
    let place = Place::new();
    done(&place.edit("a/b.txt", create("one\ntwo\nthree\n")));
    assert_eq!(place.edit("a/b.txt", view(None)).stdout, "one\ntwo\nthree\n");
    assert_eq!(place.edit("a/b.txt", view(Some((2, 3)))).stdout, "two\nthree\n");
    assert_eq!(place.edit("/workspace/a/b.txt", view(Some((2, -1)))).stdout, "two\nthree\n");
    done(&place.edit("a/b.txt", replace("two", "2")));
    done(&place.edit("a/b.txt", insert(0, "zero")));
    assert_eq!(place.get("a/b.txt").unwrap(), b"zero\none\n2\nthree\n");
    done(&place.edit("a/b.txt", EditCommand::UndoEdit));
    done(&place.edit("./a/b.txt", EditCommand::UndoEdit));
    assert_eq!(place.get("a/b.txt").unwrap(), b"one\ntwo\nthree\n");
    done(&place.edit("a/b.txt", EditCommand::UndoEdit));
    assert_eq!(place.everything(), [""; 0], "the file and its folder are taken back");
    refused(&place.edit("a/b.txt", EditCommand::UndoEdit), "a/b.txt");
    refused(&place.edit("never.txt", EditCommand::UndoEdit), "never.txt");
}

#[test]
fn refusals_change_nothing_and_name_the_path() {
    let place = Place::new();
    fs::write(place.dir.join("f.txt"), "dup\ndup\n").unwrap();
    fs::create_dir(place.dir.join("folder")).unwrap();
    symlink("/etc/hostname", place.dir.join("out")).unwrap();
    let inode = fs::metadata(place.dir.join("f.txt")).unwrap().ino();
    for (name, command) in [
        ("f.txt", create("clobber")),
        ("f.txt", replace("dup", "x")),
        ("f.txt", replace("absent", "x")),
        ("f.txt", replace("", "x")),
        ("f.txt", insert(99, "x")),
        ("f.txt", insert(-1, "x")),
        ("f.txt", view(Some((5, 2)))),
        ("f.txt", view(Some((1, 3)))),
        ("f.txt", view(Some((0, 1)))),
        ("nope.txt", view(None)),
        ("nope.txt", replace("a", "b")),
        ("folder", create("x")),
        ("folder", replace("a", "b")),
        ("folder", view(Some((1, 2)))),
        ("f.txt/x", create("x")),
        ("../../etc/hostname", view(None)),
        ("/etc/hostname", create("x")),
        ("out", view(None)),
        ("out", replace("a", "b")),
        ("out", create("x")),
        ("", create("x")),
    ] {
        refused(&place.edit(name, command), name);
    }
    refused(&place.edit("a\0b\nc", view(None)), "a\\u{0}b\\nc: ");
    refused(&place.edit(&"x".repeat(5000), view(None)), "xxx");
    assert_eq!(place.everything(), ["f.txt", "folder", "out"]);
    assert_eq!(place.get("f.txt").unwrap(), b"dup\ndup\n");
    assert_eq!(fs::metadata(place.dir.join("f.txt")).unwrap().ino(), inode);
}

#[test]
fn an_edit_changes_what_was_asked_and_not_one_byte_more() {
    let place = Place::new();
    let before = b"\xef\xbb\xbfa\r\n\tb\r\nc\x0cd\r\n\xff\xfe\xe2\x80\xa8last";
    fs::write(place.dir.join("dos.txt"), before).unwrap();
    fs::set_permissions(place.dir.join("dos.txt"), fs::Permissions::from_mode(0o741)).unwrap();
    done(&place.edit("dos.txt", replace("\tb", "\tB")));
    assert_eq!(place.get("dos.txt").unwrap(), b"\xef\xbb\xbfa\r\n\tB\r\nc\x0cd\r\n\xff\xfe\xe2\x80\xa8last");
    done(&place.edit("dos.txt", insert(4, "new")));
    assert_eq!(place.get("dos.txt").unwrap(), b"\xef\xbb\xbfa\r\n\tB\r\nc\x0cd\r\n\xff\xfe\xe2\x80\xa8last\r\nnew\r\n");
    let meta = fs::metadata(place.dir.join("dos.txt")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o741, place.owner_id), "mode kept, the session's own");
    done(&place.edit("dos.txt", EditCommand::UndoEdit));
    done(&place.edit("dos.txt", EditCommand::UndoEdit));
    assert_eq!(place.get("dos.txt").unwrap(), before);
    let shown = place.edit("dos.txt", view(Some((4, 4))));
    assert_eq!(shown.stdout, "\u{fffd}\u{fffd}\u{2028}last");
}

#[test]
fn undo_leaves_alone_what_somebody_else_changed() {
    let place = Place::new();
    done(&place.edit("f", create("one\n")));
    done(&place.edit("f", replace("one", "two")));
    fs::write(place.dir.join("f"), "three\n").unwrap();
    refused(&place.edit("f", EditCommand::UndoEdit), "f");
    assert_eq!(place.get("f").unwrap(), b"three\n");
    fs::write(place.dir.join("f"), "two\n").unwrap();
    done(&place.edit("f", EditCommand::UndoEdit));
    fs::remove_file(place.dir.join("f")).unwrap();
    refused(&place.edit("f", EditCommand::UndoEdit), "f");
    fs::write(place.dir.join("f"), "one\n").unwrap();
    done(&place.edit("f", EditCommand::UndoEdit));
    assert_eq!(place.everything(), [""; 0]);
}

#[test]
fn links_share_the_stack_of_the_file_they_lead_to() {
    let place = Place::new();
    done(&place.edit("real/f", create("one\n")));
    symlink("real/f", place.dir.join("link")).unwrap();
    symlink("real/made", place.dir.join("dangling")).unwrap();
    let report = place.edit("link", replace("one", "two"));
    assert_eq!(report.files[0].path.as_str(), "real/f");
    assert!(fs::symlink_metadata(place.dir.join("link")).unwrap().is_symlink());
    done(&place.edit("real/f", EditCommand::UndoEdit));
    assert_eq!(place.get("link").unwrap(), b"one\n");
    done(&place.edit("dangling", create("x")));
    assert_eq!(place.get("real/made").unwrap(), b"x");
}

#[test]
fn special_and_large_files_get_a_clear_answer() {
    let place = Place::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for command in
        [view(None), view(Some((1, 1))), create("x"), replace("a", "b"), insert(0, "x"), EditCommand::UndoEdit]
    {
        refused(&place.edit("pipe", command), "pipe");
    }
    assert!(place.edit("pipe", view(None)).stderr.contains("FIFO"));

    let ten_mb = "0123456789abcde\n".repeat(10 << 16);
    fs::write(place.dir.join("big"), &ten_mb).unwrap();
    let shown = place.edit("big", view(None)).stdout;
    let dropped = ten_mb.len() - VIEW_BYTES_MAX;
    assert!(shown.contains(&format!("\n[... {dropped} bytes not shown ...]\n")), "{}", &shown[2000..2200]);
    assert_eq!(place.edit("big", view(Some((655_359, -1)))).stdout, "0123456789abcde\n".repeat(2));
    done(&place.edit("big", insert(655_360, "end")));
    assert!(place.get("big").unwrap().ends_with(b"e\nend\n"));

    let huge = fs::File::create(place.dir.join("huge")).unwrap();
    huge.set_len(ringfence_workspace::limits::EDIT_BYTES_MAX + 1).unwrap();
    for command in [view(Some((1, 1))), replace("a", "b"), insert(0, "x")] {
        let report = place.edit("huge", command);
        refused(&report, "huge");
        assert!(report.stderr.contains("16777217 bytes"), "{report:?}");
    }
    done(&place.edit("huge", view(None)));
}

#[test]
fn a_folder_is_shown_two_levels_deep() {
    let place = Place::new();
    for name in ["z.txt", "a/b/c/too_deep", "a/f", ".git/config", "a/__pycache__/x.pyc", "node_modules/x"] {
        place.put(name, b"").unwrap();
    }
    fs::write(place.dir.join("new\nline"), "").unwrap();
    assert_eq!(place.edit("", view(None)).stdout, "a/\na/b/\na/f\nnew\\nline\nz.txt\n");
    assert_eq!(place.edit("/workspace/a", view(None)).stdout, "a/b/\na/b/c/\na/f\n");
    for n in 0..1100 {
        place.put(&format!("many/f{n:04}"), b"").unwrap();
    }
    let shown = Place::edit(&place, "many", view(None)).stdout;
    assert!(shown.contains("bytes not shown") && shown.ends_with("[... 100 entries not shown ...]\n"), "{shown}");
    assert!(shown.len() < VIEW_BYTES_MAX + 100);
}

#[test]
fn an_edit_names_its_file_and_no_later_call_does() {
    let place = Place::new();
    let made = place.edit("out/f.txt", create("1"));
    assert_eq!(made.files.len(), 1);
    assert_eq!(place.workspace.path_of(&made.files[0].file_id), Some(path("out/f.txt")));
    let changed = place.edit("out/f.txt", replace("1", "2"));
    assert_eq!(changed.files, made.files, "the same file, the same id");
    assert!(place.edit("out/f.txt", view(None)).files.is_empty());
    assert_eq!(place.edit("out/f.txt", EditCommand::UndoEdit).files, made.files);
    assert!(place.edit(".env", create("1")).files.is_empty(), "hidden files are left out");
    assert_eq!(place.changed(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever edits succeed, taking them back in turn gives every state again, to the byte.
    #[test]
    fn undo_restores_each_state(
        first in "[ab\r\n\u{e9}]{0,24}",
        edits in prop::collection::vec(
            ("[ab\n]{1,3}", "[abc\r\n]{0,5}", -1i64..8, any::<bool>()), 0..12,
        ),
    ) {
        let place = Place::new();
        let mut states = vec![first.clone().into_bytes()];
        done(&place.edit("f", create(&first)));
        for (old, new, line, is_insert) in edits {
            let before = place.get("f").unwrap();
            let report = place.edit("f", if is_insert { insert(line, &new) } else { replace(&old, &new) });
            let after = place.get("f").unwrap();
            if report.return_code == 0 {
                states.push(after);
            } else {
                prop_assert_eq!(before, after);
            }
        }
        while let Some(state) = states.pop() {
            prop_assert_eq!(place.get("f").unwrap(), state);
            done(&place.edit("f", EditCommand::UndoEdit));
        }
        prop_assert!(!place.dir.join("f").exists());
    }
}
