//! Tests on the real file system of the temporary directory, which must support direct I/O.

use super::*;
use crate::io::executor::run_here;

fn with_disk<F: Future<Output = ()>>(test: impl FnOnce(Rc<RingDisk>, PathBuf) -> F) {
    let directory = tempfile::tempdir().expect("temporary directory");
    run_here(async {
        let disk = RingDisk::new(directory.path()).expect("disk");
        test(Rc::new(disk), directory.path().to_owned()).await;
    })
    .expect("executor");
}

const CREATE: OpenMode = OpenMode {
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    durable: false,
    cached: false,
};

const READ: OpenMode = OpenMode {
    write: false,
    create: false,
    create_new: false,
    truncate: false,
    durable: false,
    cached: false,
};

fn block(blocks: usize, fill: u8) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_ALIGN);
    assert!(buffer.iter().all(|&byte| byte == 0), "zeroed");
    buffer.fill(fill);
    buffer.freeze().written
}

#[test]
fn durable_writes_read_back_and_the_flag_is_set() {
    with_disk(|disk, root| async move {
        let path = root.join("journal");
        let durable = OpenMode { durable: true, ..CREATE };
        let file = disk.open(&path, durable).await.expect("open");
        assert!(open_flags(&path).contains(&(libc::O_DSYNC | libc::O_DIRECT | libc::O_RDWR)));
        file.write_at(block(2, 7), 0).await.expect("write");
        file.write_at(block(1, 9), BLOCK_ALIGN as u64).await.expect("overwrite");
        assert_eq!(file.length().await.expect("length"), 8192);
        let bytes = file.read_at(0, 16384).await.expect("read");
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..4096].iter().all(|&byte| byte == 7));
        assert!(bytes[4096..].iter().all(|&byte| byte == 9));
        assert_eq!(fs::read(&path).expect("read"), &bytes[..]);
        file.close().await.expect("close");
        assert_eq!(open_flags(&path), Vec::<i32>::new());
    });
}

#[test]
fn a_relaxed_file_has_no_such_flag_and_syncs_by_itself() {
    with_disk(|disk, root| async move {
        let path = root.join("segment");
        let file = disk.open(&path, CREATE).await.expect("open");
        assert_eq!(open_flags(&path), [libc::O_DIRECT | libc::O_RDWR]);
        file.write_at(block(1, 1), 0).await.expect("write");
        file.sync_data().await.expect("sync");
    });
}

#[test]
fn a_cached_file_is_written_at_once_and_read_back_directly() {
    with_disk(|disk, root| async move {
        let path = root.join("journal");
        let file = disk.open(&path, OpenMode { cached: true, ..CREATE }).await.expect("open");
        assert_eq!(open_flags(&path), [libc::O_RDWR]);
        let mut write = file.write_at(block(2, 7), 0);
        let written = futures_lite::future::poll_once(&mut write).await;
        written.expect("no waiting").expect("write");
        let direct = disk.open(&path, READ).await.expect("open");
        assert_eq!(direct.read_at(0, 8192).await.expect("read"), vec![7u8; 8192]);
    });
}

#[test]
fn the_unaligned_end_of_a_file_is_read_short() {
    with_disk(|disk, root| async move {
        let path = root.join("segment");
        let content: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
        disk.write(&path, &content).await.expect("write");
        let file = disk.open(&path, READ).await.expect("open");
        assert_eq!(file.length().await.expect("length"), 10_000);
        let all = file.read_at(0, 1024 * 1024).await.expect("read");
        assert_eq!(all, content);
        let last = file.read_at(8192, 4096).await.expect("read");
        assert_eq!(last, content[8192..]);
        assert_eq!(file.read_at(12_288, 4096).await.expect("read"), Bytes::new());
        assert_eq!(file.read_at(0, 0).await.expect("read"), Bytes::new());
        let error = file.read_at(1, 4096).await.expect_err("unaligned");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = file.write_at(block(1, 0), 0).await.expect_err("read-only");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn allocating_keeps_the_length_and_cutting_changes_it() {
    with_disk(|disk, root| async move {
        let file = disk.open(&root.join("segment"), CREATE).await.expect("open");
        file.write_at(block(1, 5), 0).await.expect("write");
        file.allocate(4096, 1024 * 1024).await.expect("allocate");
        assert_eq!(file.length().await.expect("length"), 4096);
        file.set_length(100).await.expect("cut");
        assert_eq!(file.read_at(0, 4096).await.expect("read"), vec![5u8; 100]);
        file.set_length(8192).await.expect("extend");
        assert_eq!(file.length().await.expect("length"), 8192);
    });
}

#[test]
fn opening_reports_what_the_system_says() {
    with_disk(|disk, root| async move {
        let missing = disk.open(&root.join("missing"), READ).await;
        assert_eq!(os_error(missing), libc::ENOENT);
        let path = root.join("file");
        drop(disk.open(&path, CREATE).await.expect("open"));
        let exclusive = OpenMode { create_new: true, ..CREATE };
        assert_eq!(os_error(disk.open(&path, exclusive).await), libc::EEXIST);
        let truncate = OpenMode { truncate: true, ..CREATE };
        disk.write(&path, b"content").await.expect("write");
        let file = disk.open(&path, truncate).await.expect("open");
        assert_eq!(file.length().await.expect("length"), 0);
        let directory = disk.open(&root, CREATE).await;
        assert_eq!(os_error(directory), libc::EISDIR);
    });
}

#[test]
fn names_are_listed_renamed_removed_and_synced() {
    with_disk(|disk, root| async move {
        let topic = root.join("topics/orders-0");
        disk.create_directory(&topic).await.expect("create");
        disk.create_directory(&topic).await.expect("create again");
        disk.write(&topic.join("partition.metadata"), b"version: 0").await.expect("write");
        disk.append(&topic.join("log"), b"one").await.expect("append");
        disk.append(&topic.join("log"), b"two").await.expect("append");
        disk.replace(&root.join("format"), b"1").await.expect("replace");
        let entries = disk.list(&root, true, &["partition.metadata"]).await.expect("list");
        let seen: Vec<(&str, bool, u64, Option<&[u8]>)> = entries
            .iter()
            .map(|entry| {
                let path = entry.path.to_str().expect("text");
                (path, entry.is_directory, entry.length, entry.content.as_deref())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("format", false, 1, None),
                ("topics", true, 0, None),
                ("topics/orders-0", true, 0, None),
                ("topics/orders-0/log", false, 6, None),
                ("topics/orders-0/partition.metadata", false, 10, Some(&b"version: 0"[..])),
            ]
        );
        assert_eq!(disk.list(&root, false, &[]).await.expect("list").len(), 2);
        assert_eq!(disk.read(&topic.join("log")).await.expect("read"), b"onetwo");

        disk.rename(&topic, &root.join("topics/gone")).await.expect("rename");
        disk.remove(&root.join("topics/gone/log")).await.expect("remove");
        disk.sync_directory(&root.join("topics")).await.expect("sync");
        disk.sync_filesystem().await.expect("sync");
        disk.remove_tree(&root.join("topics")).await.expect("remove");
        disk.remove_tree(&root.join("topics")).await.expect("missing is fine");
        let missing = disk.list(&root.join("topics"), true, &[]).await;
        assert_eq!(missing.expect_err("missing").kind(), io::ErrorKind::NotFound);
        let missing = disk.remove(&root.join("topics")).await;
        assert_eq!(os_error(missing), libc::ENOENT);
        let space = disk.space().await.expect("space");
        assert!(space.available_bytes > 0 && space.total_bytes >= space.available_bytes);
    });
}

#[test]
fn bytes_read_may_be_dropped_on_another_thread() {
    with_disk(|disk, root| async move {
        let path = root.join("segment");
        disk.write(&path, &[3u8; 8192]).await.expect("write");
        let file = disk.open(&path, READ).await.expect("open");
        for _ in 0..100 {
            let bytes = file.read_at(0, 8192).await.expect("read");
            let slice = bytes.slice(100..200);
            let sum = std::thread::spawn(move || {
                let sum: u32 = slice.iter().map(|&byte| u32::from(byte)).sum();
                drop((slice, bytes));
                sum
            })
            .join()
            .expect("reader");
            assert_eq!(sum, 300);
        }
    });
}

#[test]
fn a_dropped_write_keeps_its_memory_until_the_kernel_is_done() {
    with_disk(|disk, root| async move {
        let file = disk.open(&root.join("segment"), CREATE).await.expect("open");
        for _ in 0..50 {
            let buffer = block(16, 4);
            let mut write = file.write_at(buffer, 0);
            let _ = futures_lite::future::poll_once(&mut write).await;
            drop(write);
        }
        file.write_at(block(16, 6), 0).await.expect("write");
        let bytes = file.read_at(0, 65536).await.expect("read");
        assert!(bytes.iter().all(|&byte| byte == 6 || byte == 4));
    });
}

fn os_error<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.raw_os_error().expect("an error of the system"),
    }
}

/// Flags of this process's descriptors of `path` that matter here.
fn open_flags(path: &Path) -> Vec<i32> {
    let wanted = libc::O_DSYNC | libc::O_DIRECT | libc::O_ACCMODE;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").expect("descriptors") {
        let entry = entry.expect("entry");
        if !fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            continue;
        }
        let name = entry.file_name();
        let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(name)).expect("info");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
        let flags = i32::from_str_radix(flags.trim(), 8).expect("octal");
        found.push(flags & wanted);
    }
    found
}
