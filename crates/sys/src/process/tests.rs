use super::*;

#[test]
fn a_child_has_the_descriptors_up_to_the_highest() {
    let null = || std::fs::File::open("/dev/null").unwrap();
    let (low, high) = (null(), rustix::io::fcntl_dupfd_cloexec(null(), 300).unwrap());
    let is_open = |number: RawFd| std::path::Path::new(&format!("/proc/self/fd/{number}")).exists();
    let (kept, gone) = (low.as_raw_fd(), high.as_raw_fd());
    let program =
        || Program { file: opened("/bin/true"), arguments: vec![c"true".into()], environment: Vec::new() };
    let look = || match (is_open(kept), is_open(gone)) {
        (true, false) => Ok(()),
        _ => Err(("descriptors", io::Error::from_raw_os_error(libc::EMFILE))),
    };
    let begun: Vec<Begun> =
        (0..3).map(|_| begin_start(&program(), Pids::Shared, kept, look).unwrap()).collect();
    for begun in begun {
        let child = begun.finish().unwrap();
        child.wait_blocking();
    }
    assert!(is_open(gone));
    let whole = start(&program(), Pids::Shared, look).unwrap_err();
    assert_eq!(whole.step, "descriptors");
    drop(high);
}

#[test]
fn a_child_that_is_begun_says_what_failed() {
    let program =
        Program { file: opened("/dev/null"), arguments: vec![c"none".into()], environment: Vec::new() };
    let begun = begin_start(&program, Pids::Shared, 0, || Ok(())).unwrap();
    assert_eq!(begun.finish().unwrap_err().step, "exec");
    let begun = begin_start(&program, Pids::Shared, 0, || Err(("layer", io::ErrorKind::Other.into())));
    assert_eq!(begun.unwrap().finish().unwrap_err().step, "layer");
}

#[test]
fn a_wait_for_a_child_has_an_end() {
    let program =
        Program { file: opened("/bin/true"), arguments: vec![c"true".into()], environment: Vec::new() };
    let (reading, writing) = io::pipe().unwrap();
    let held = || match rustix::io::read(&reading, &mut [0; 1]) {
        Ok(_) => Ok(()),
        Err(error) => Err(("hold", error.into())),
    };
    let begun = begin_start(&program, Pids::Shared, reading.as_raw_fd(), held).unwrap();
    assert!(!begun.is_over_by(Instant::now() + Duration::from_millis(20)));
    rustix::io::write(&writing, b"x").unwrap();
    assert!(begun.is_over_by(Instant::now() + Duration::from_secs(30)));
    begun.finish().unwrap().wait_blocking();
}

fn opened(path: &str) -> OwnedFd {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}
