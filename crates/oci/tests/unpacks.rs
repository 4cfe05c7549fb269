//! From an archive to a folder.

use std::os::unix::fs::MetadataExt;

use ringfence_oci::{Blobs, ImportOptions, Owners, UnpackLimits, import_root, unpack};

#[test]
fn a_plain_root_becomes_a_folder() {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("root.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&archive).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(5);
    header.set_mode(0o4751);
    header.set_mtime(1_000_000_000);
    builder.append_data(&mut header, "etc/hello", &b"hello"[..]).unwrap();
    builder.finish().unwrap();
    let blobs = Blobs::open(&home.path().join("blobs")).unwrap();
    let found = import_root(&archive, &blobs, &ImportOptions::default(), &mut ()).unwrap();
    assert_eq!(import_root(&archive, &blobs, &ImportOptions::default(), &mut ()).unwrap(), found);
    let into = home.path().join("root");
    let unpacked = unpack(&found, &blobs, &into, Owners::Drop, &UnpackLimits::default(), &mut ()).unwrap();
    assert_eq!((unpacked.entries, unpacked.file_bytes), (1, 5));
    let file = into.join("etc/hello");
    assert_eq!(std::fs::read(&file).unwrap(), b"hello");
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o751, 1_000_000_000));
}
