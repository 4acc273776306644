//! Whether something is there, apart from whether that could be found out.
//!
//! Runs in: every process that writes down, or decides, whose something is. Sees: errors of the kernel. Never: takes an
//! error for an absence: where memory or descriptors run out for a moment, "there is none" would stay true afterwards.

use std::io::{self, ErrorKind};

/// Whether an error says that there is nothing of a name.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What a call has found; `None` if there is nothing of the name.
///
/// # Errors
/// Whether there is something could not be found out.
pub fn if_there<T, E: Into<io::Error>>(found: Result<T, E>) -> io::Result<Option<T>> {
    match found.map_err(Into::into) {
        Err(error) if is_absence(&error) => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_absence_is_what_the_kernel_says_is_not_there_and_nothing_else() {
        let folder = tempfile_folder();
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        let look = |path: &std::path::Path| if_there(path.symlink_metadata()).map(|found| found.is_some());
        assert!(look(&file).unwrap());
        assert!(!look(&folder.join("none")).unwrap() && !look(&file.join("below")).unwrap());
        assert!(look(&folder.join("x".repeat(300))).is_err());
        assert!(if_there::<(), _>(Err(rustix::io::Errno::NOMEM)).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile_folder() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("bulkhead-absence-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
