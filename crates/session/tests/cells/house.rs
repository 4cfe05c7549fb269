//! Room, files, and what is left when all is over.

use ringfence_op::{Edit, EditCommand, FaultKind, Operation, WorkspacePath};
use ringfence_session::{Lease, Sessions};

use crate::{SESSIONS_MAX, bash, lease, python, release, try_call};

crate::cases![
    a_full_house_says_when_to_come_back,
    produced_files_are_named,
    an_edit_names_its_file,
    nothing_is_left,
    a_newborn_interpreter_shows_nothing_of_its_parent,
    what_the_kernel_counts_for_the_host_is_not_used_up_by_one,
];

async fn a_full_house_says_when_to_come_back(sessions: Sessions) {
    let mut ids = Vec::new();
    for _ in 0..SESSIONS_MAX {
        ids.push(lease(&sessions).await);
    }
    let fault = sessions.create(Lease::default()).await.expect_err("no room");
    assert!(matches!(fault.kind(), FaultKind::Capacity { retry_after_seconds: 1..=60 }), "{fault:?}");
    for id in ids {
        release(&sessions, id).await;
    }
    let id = lease(&sessions).await;
    release(&sessions, id).await;
}

async fn produced_files_are_named(sessions: Sessions) {
    let id = lease(&sessions).await;
    let path = WorkspacePath::parse("given.csv").expect("a path");
    let (mut upload, hold) = sessions.files(id).expect("files").upload(Some(&path), 1 << 20).expect("an upload");
    upload.write_chunk(b"a,b\n1,2\n").expect("a write");
    upload.commit().expect("a commit");
    drop(hold);
    let outcome = python(&sessions, id, "print(open('given.csv').read(), end='')").await;
    assert_eq!((outcome.report.stdout.as_str(), outcome.files.len()), ("a,b\n1,2\n", 0), "{:?}", outcome.files);
    let outcome =
        python(&sessions, id, "import os\nos.makedirs('sub')\nopen('sub/out.txt','w').write('x')\nopen('.h','w')")
            .await;
    let names: Vec<_> = outcome.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["sub/out.txt"]);
    assert_eq!(bash(&sessions, id, "echo 2 >> given.csv").await.files.len(), 1);
    assert_eq!(bash(&sessions, id, "cat given.csv").await.files.len(), 0);
    let listing = sessions.files(id).expect("files").list(WorkspacePath::root(), true).await.expect("a listing");
    assert!(listing.files.iter().any(|file| file.path.as_str() == "sub/out.txt"));
    release(&sessions, id).await;
}

async fn an_edit_names_its_file(sessions: Sessions) {
    let id = lease(&sessions).await;
    let command = EditCommand::Create { file_text: "one\n".to_owned() };
    let edit = Operation::Edit(Edit { path: "note.txt".to_owned(), command });
    let outcome = try_call(&sessions, id, edit.clone()).await.expect("an outcome");
    assert_eq!((outcome.report.return_code, outcome.files.len()), (0, 1), "{outcome:?}");
    assert_eq!(try_call(&sessions, id, edit).await.expect("an outcome").report.return_code, 1);
    assert_eq!(bash(&sessions, id, "cat note.txt").await.report.stdout, "one\n");
    release(&sessions, id).await;
}

async fn nothing_is_left(sessions: Sessions) {
    let before = descriptors();
    for _ in 0..10 {
        let id = lease(&sessions).await;
        bash(&sessions, id, "sleep 50 & echo x > f").await;
        python(&sessions, id, "import os; os._exit(3)").await;
        python(&sessions, id, "print(1)").await;
        release(&sessions, id).await;
    }
    while sessions.counts().warm < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let after = descriptors();
    assert!(after <= before + 2, "{before} descriptors before, {after} after");
    assert_eq!((sessions.counts().sessions, sessions.counts().ending), (0, 0));
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the list of descriptors").count()
}

/// Writes down what each new process holds as its descriptor 4: where the zygote has its link to the keeper.
const SPY: &str = r#"
import os
found, seen, last = open("found", "w"), set(), os.getpid()
open("watching", "w").close()
while True:
    for pid in range(last + 1, last + 4):
        try:
            held = os.readlink("/proc/%d/fd/4" % pid)
        except PermissionError:
            last = pid - 1
            continue
        except OSError:
            continue
        if held not in seen:
            seen.add(held)
            print(pid, held, file=found, flush=True)
"#;

async fn a_newborn_interpreter_shows_nothing_of_its_parent(sessions: Sessions) {
    let id = lease(&sessions).await;
    let start = format!(
        "import os, subprocess, sys, time\nopen('spy.py', 'w').write({SPY:?})\n\
         spy = subprocess.Popen([sys.executable or 'python3', 'spy.py'], start_new_session=True)\n\
         while not os.path.exists('watching'): time.sleep(0.01)\nprint(spy.poll())"
    );
    assert_eq!(python(&sessions, id, &start).await.report.stdout, "None\n");
    for _ in 0..40 {
        python(&sessions, id, "import os; os._exit(3)").await;
        assert_eq!(python(&sessions, id, "print(1)").await.report.stdout, "1\n");
    }
    let seen = "import os; print([os.kill(int(p), 0) for p in os.listdir('/proc') if p.isdigit() \
                and b'spy.py' in open('/proc/%s/cmdline' % p, 'rb').read()], open('found').read())";
    assert_eq!(python(&sessions, id, seen).await.report.stdout, "[None] \n", "the spy lives, and saw nothing");
    release(&sessions, id).await;
}

/// Takes what there is of inotify instances, queued signals and timers; says whether there was any, and an end.
const TAKE_ALL: &str = "
import ctypes, os, signal
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
def many(take):
    count = 0
    while count < 5000 and take() >= 0: count += 1
    return 0 < count < 5000
print(many(libc.inotify_init), many(lambda: libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1))))
";

async fn what_the_kernel_counts_for_the_host_is_not_used_up_by_one(sessions: Sessions) {
    let ids = [lease(&sessions).await, lease(&sessions).await, lease(&sessions).await];
    for id in ids {
        assert_eq!(python(&sessions, id, TAKE_ALL).await.report.stdout, "True True\n");
    }
    for id in ids {
        release(&sessions, id).await;
    }
}
