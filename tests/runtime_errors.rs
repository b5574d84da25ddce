//! A runtime that cannot start says why and what to do about it, and leaves nothing behind.
//!
//! What needs a crippled process runs in a child: the same test again, alone, in a process of its own.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;

use std::error::Error;
use std::process::Command;

use common::{PATIENCE, cores, open_descriptors, threads_named, within};
use corelet::runtime::{Cores, Runtime, RuntimeBuilder, StartError};

const CHILD: &str = "CORELET_TEST_CHILD";

/// Runs `body` in a child process that does nothing else. `test` is the name of the calling test.
#[track_caller]
fn in_child(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}", output.status);
}

#[track_caller]
fn refused(builder: RuntimeBuilder) -> StartError {
    within(PATIENCE, move || builder.build().map(drop).unwrap_err())
}

/// The error names all of `words`.
#[track_caller]
fn assert_says(error: &StartError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn a_core_that_does_not_exist_is_named_with_those_that_do() {
    let error = refused(Runtime::builder().cores(Cores::List(vec![0, 9999])));
    match &error {
        StartError::UnknownCore { asked, available } => {
            assert!(*asked == 9999 || *asked == 0);
            assert!(!available.is_empty() && !available.contains(asked));
        }
        other => panic!("{other:?}"),
    }
    let error = refused(Runtime::builder().cores(Cores::List(vec![9999])));
    assert_says(&error, &["9999", "available", "nproc", "taskset"]);
}

#[test]
fn more_cores_than_there_are_is_told_with_both_numbers() {
    let error = refused(Runtime::builder().cores(Cores::Count(100_000)));
    let StartError::TooFewCores { asked: 100_000, available } = error else { panic!("{error:?}") };
    assert!(available >= 1);
    assert_says(&error, &["100000", &available.to_string()]);
}

#[test]
fn no_cores_at_all_is_refused() {
    for chosen in [Cores::Count(0), Cores::List(Vec::new())] {
        for pinned in [true, false] {
            let error = refused(Runtime::builder().cores(chosen.clone()).pinned(pinned));
            assert!(matches!(error, StartError::NoCores), "{error:?}");
            assert_says(&error, &["at least one"]);
        }
    }
}

#[test]
fn sizes_out_of_range_are_told_with_the_range() {
    let one = || cores(1);
    let wrong = [
        (one().submission_entries(0), "submission_entries", "1 to 32,768", 0),
        (one().submission_entries(32_769), "submission_entries", "1 to 32,768", 32_769),
        (one().completion_entries(255), "completion_entries", "submission_entries", 255),
        (one().completion_entries(65_537), "completion_entries", "65,536", 65_537),
        (one().receive_buffers(0, 4096), "receive_buffers", "power of two", 0),
        (one().receive_buffers(3, 4096), "receive_buffers", "power of two", 3),
        (one().receive_buffers(8, 63), "receive_buffers", "64", 63),
        (one().receive_buffers(8, (1 << 20) + 1), "receive_buffers", "1,048,576", (1 << 20) + 1),
    ];
    for (builder, setting, range, value) in wrong {
        let error = refused(builder.clone());
        let StartError::InvalidSize { got, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*got, value);
        assert_says(&error, &[setting, range, &value.to_string()]);
        assert!(matches!(builder.build_guests(), Err(StartError::InvalidSize { .. })));
    }
}

#[test]
fn the_largest_and_the_smallest_sizes_work() {
    within(PATIENCE, || {
        for builder in [
            cores(1).submission_entries(1).completion_entries(1).receive_buffers(1, 64),
            cores(1).submission_entries(32_768).completion_entries(65_536).receive_buffers(32_768, 64),
            cores(1).receive_buffers(16, 1 << 20),
        ] {
            assert_eq!(builder.build().unwrap().block_on(|| async { 1 }).unwrap(), 1);
        }
    });
}

#[test]
fn more_cores_than_can_be_told_apart_are_refused_and_given_back() {
    in_child("more_cores_than_can_be_told_apart_are_refused_and_given_back", || {
        let base = open_descriptors();
        for _ in 0..2 {
            let error = cores(1025).build_guests().map(drop).unwrap_err();
            let StartError::TooManyCores { limit: 1024 } = error else { panic!("{error:?}") };
            assert_says(&error, &["1024", "end a runtime"]);
            assert_eq!(open_descriptors(), base);
        }
        let (_handle, all) = cores(1024).build_guests().unwrap();
        assert!(matches!(cores(1).build_guests(), Err(StartError::TooManyCores { .. })));
        drop((_handle, all));
        assert_eq!(cores(1).build().unwrap().block_on(|| async { 1 }).unwrap(), 1);
    });
}

#[test]
fn out_of_descriptors_is_told_with_the_limit_at_whatever_point_it_happens() {
    in_child("out_of_descriptors_is_told_with_the_limit_at_whatever_point_it_happens", || {
        drop(cores(2).build().unwrap());
        let base = open_descriptors();
        let mut refusals = 0;
        // From room for nothing but the standard streams up to enough.
        for limit in 3.. {
            set_limit(libc::RLIMIT_NOFILE, limit);
            let outcome = cores(2).thread_name("nofd").build();
            set_limit(libc::RLIMIT_NOFILE, 1024);
            match outcome {
                Ok(runtime) => {
                    assert_eq!(runtime.block_on(|| async { 1 }).unwrap(), 1);
                    break;
                }
                Err(error) => {
                    let StartError::Descriptors { limit: Some(told) } = error else { panic!("{error:?}") };
                    assert_eq!(told, limit);
                    assert_says(&error, &["descriptors", &limit.to_string(), "ulimit -n", "LimitNOFILE="]);
                    refusals += 1;
                }
            }
            assert_eq!(open_descriptors(), base, "with a limit of {limit}");
            common::eventually("no thread is left", || threads_named("nofd-") == 0);
        }
        assert!(refusals >= 4, "two doorbells and two rings: {refusals}");
    });
}

fn set_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: 1024.max(value) };
    // SAFETY: reads the structure it is given.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// From now on `syscall` fails with `errno`, for this thread and those it starts.
fn forbid(syscall: libc::c_long, errno: i32) {
    const RETURN_ERRNO: u32 = 0x0005_0000;
    const RETURN_ALLOW: u32 = 0x7fff_0000;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // Load the number of the call; if it is the one, refuse it, otherwise allow it.
        instruction((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        instruction((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, syscall as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, RETURN_ERRNO | errno as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, RETURN_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions are alive for the length of the calls, which only restrict this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

/// What building two cores says when setting up a ring fails with `errno`.
fn refused_by_kernel(syscall: libc::c_long, errno: i32) -> StartError {
    drop(cores(2).build().unwrap());
    let base = open_descriptors();
    forbid(syscall, errno);
    let error = cores(2).thread_name("deny").build().map(drop).unwrap_err();
    assert_eq!(open_descriptors(), base);
    common::eventually("no thread is left", || threads_named("deny-") == 0);
    // A guest is told when it starts.
    let (_handle, mut guests) = cores(1).build_guests().unwrap();
    let again = guests.remove(0).start().map(drop).unwrap_err();
    assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&again));
    error
}

#[test]
fn a_kernel_without_io_uring_is_an_error_that_says_what_is_needed() {
    in_child("a_kernel_without_io_uring_is_an_error_that_says_what_is_needed", || {
        let error = refused_by_kernel(libc::SYS_io_uring_setup, libc::ENOSYS);
        assert!(matches!(error, StartError::Unsupported), "{error:?}");
        assert_says(&error, &["no io_uring", "ENOSYS", "5.19", "CONFIG_IO_URING"]);
    });
}

#[test]
fn a_forbidden_io_uring_is_an_error_that_says_who_may_allow_it() {
    in_child("a_forbidden_io_uring_is_an_error_that_says_who_may_allow_it", || {
        let error = refused_by_kernel(libc::SYS_io_uring_setup, libc::EPERM);
        assert!(matches!(error, StartError::Denied { .. }), "{error:?}");
        assert_says(&error, &["not permitted", "EPERM", "kernel.io_uring_disabled", "seccomp"]);
    });
}

#[test]
fn a_low_limit_on_locked_memory_is_told_with_the_limit() {
    in_child("a_low_limit_on_locked_memory_is_told_with_the_limit", || {
        set_limit(libc::RLIMIT_MEMLOCK, 65_536);
        let error = refused_by_kernel(libc::SYS_io_uring_setup, libc::ENOMEM);
        let StartError::MemoryLock { limit: Some(65_536) } = error else { panic!("{error:?}") };
        assert_says(&error, &["locked memory", "65536", "ulimit -l", "LimitMEMLOCK=", "smaller rings"]);
    });
}

#[test]
fn a_ring_refused_for_another_reason_keeps_the_cause() {
    in_child("a_ring_refused_for_another_reason_keeps_the_cause", || {
        let error = refused_by_kernel(libc::SYS_io_uring_setup, libc::EINVAL);
        let StartError::Ring(cause) = &error else { panic!("{error:?}") };
        assert_eq!(cause.raw_os_error(), Some(libc::EINVAL));
        assert!(error.source().unwrap().to_string().contains("Invalid argument"));
    });
}

#[test]
fn a_forbidden_registration_is_an_error_too() {
    in_child("a_forbidden_registration_is_an_error_too", || {
        let error = refused_by_kernel(libc::SYS_io_uring_register, libc::EPERM);
        assert!(matches!(error, StartError::Denied { .. }), "{error:?}");
    });
}

#[test]
fn a_forbidden_kernel_entry_ends_the_core_and_not_the_process() {
    in_child("a_forbidden_kernel_entry_ends_the_core_and_not_the_process", || {
        forbid(libc::SYS_io_uring_enter, libc::EPERM);
        let runtime = cores(2).build().unwrap();
        let error = within(PATIENCE, move || {
            runtime.block_on(|| corelet::runtime::sleep(std::time::Duration::from_millis(1)))
        });
        assert!(error.unwrap_err().is_cancelled());
    });
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    in_child("threads_that_cannot_be_started_are_an_error", || {
        drop(cores(2).build().unwrap());
        let base = open_descriptors();
        forbid(libc::SYS_clone3, libc::EAGAIN);
        let outcome = cores(2).build();
        match outcome {
            Err(StartError::Thread(cause)) => assert_eq!(cause.raw_os_error(), Some(libc::EAGAIN)),
            other => panic!("{other:?}"),
        }
        assert_eq!(open_descriptors(), base);
    });
}

#[test]
fn a_failed_start_leaves_no_thread_and_no_descriptor() {
    in_child("a_failed_start_leaves_no_thread_and_no_descriptor", || {
        drop(cores(1).build().unwrap());
        let base = open_descriptors();
        for _ in 0..20 {
            drop(cores(1).submission_entries(0).build().unwrap_err());
            drop(Runtime::builder().cores(Cores::Count(100_000)).build().unwrap_err());
        }
        assert_eq!(open_descriptors(), base);
    });
}

#[test]
fn start_errors_travel() {
    fn travels<T: Error + Send + Sync + 'static>() {}
    travels::<StartError>();
}
