//! A file of a form, kept.
//!
//! Runs in: a service's worker. Sees: bytes that a client made up. Never: keeps more of them than the limit; uses the
//! client's name.

use std::io;

use http::StatusCode;

use super::{Files, NewFile};
use crate::{FormError, Part, Response};

/// A file that was kept whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The name among the service's files.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
}

/// Why a file was not kept; converts into the [`Response`] to be given.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The form could not be read.
    #[error(transparent)]
    Form(#[from] FormError),
    /// The file is longer than the limit, in bytes; 413.
    #[error("a file may have {0} bytes")]
    TooLong(u64),
    /// The disk says so; 507 if it is full, or the service's uid has used up its quota, else 500.
    #[error("the file could not be kept: {0}")]
    Disk(#[from] io::Error),
}

impl Part<'_> {
    /// Keeps the rest of the content, at most `bytes_max` of it, under a random name. It is on the disk, whole, when
    /// this returns; if it is not whole, nothing is left of it.
    ///
    /// # Errors
    /// [`SaveError`] converts into the [`Response`] to be given.
    pub async fn save(&mut self, files: &Files, bytes_max: u64) -> Result<Saved, SaveError> {
        let file = self.receive(files, bytes_max).await?;
        let bytes = file.bytes();
        Ok(Saved { name: file.finish_somehow().await?, bytes })
    }

    /// The same under a name of the service's, in place of a file that was called so.
    ///
    /// # Errors
    /// As there, and when no file can be called so.
    pub async fn save_as(&mut self, files: &Files, name: &str, bytes_max: u64) -> Result<Saved, SaveError> {
        let file = self.receive(files, bytes_max).await?;
        let bytes = file.bytes();
        file.finish(name).await?;
        Ok(Saved { name: name.to_owned(), bytes })
    }

    async fn receive(&mut self, files: &Files, bytes_max: u64) -> Result<NewFile, SaveError> {
        let mut file = files.create().await?;
        while let Some(piece) = self.chunk().await? {
            if file.bytes() + piece.len() as u64 > bytes_max {
                return Err(SaveError::TooLong(bytes_max));
            }
            file.write(&piece).await?;
        }
        Ok(file)
    }
}

impl From<SaveError> for Response {
    fn from(error: SaveError) -> Self {
        let status = match error {
            SaveError::Form(error) => return error.into(),
            SaveError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            SaveError::Disk(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        // The rest of the body cannot be told from a next request.
        Self::status_page(status).with_close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::path::Path;

    use http::header::CONTENT_TYPE;

    use crate::Request;

    fn upload(content: &str) -> Request {
        let body = format!(
            "--XX\r\nContent-Disposition: form-data; name=f; filename=\"../x\"\r\n\r\n{content}\r\n--XX--"
        );
        let mut request = Request::post("/", body);
        request.headers_mut().insert(CONTENT_TYPE, "multipart/form-data; boundary=XX".parse().unwrap());
        request
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn run<F: Future<Output = ()>>(test: impl FnOnce(Files) -> F) {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path()).unwrap();
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test(files));
    }

    #[test]
    fn a_file_is_kept_whole_under_a_name_of_ours() {
        run(|files| async move {
            let content = "x".repeat(700_000);
            let mut request = upload(&content);
            let mut parts = request.multipart().unwrap();
            let saved = parts.next().await.unwrap().unwrap().save(&files, 700_000).await.unwrap();
            assert_eq!((saved.name.len(), saved.bytes), (32, 700_000));
            assert_eq!(names(files.folder()), [saved.name.as_str()]);
            assert_eq!(files.read(&saved.name).await.unwrap(), content.as_bytes());
            let mut request = upload("2");
            let mut parts = request.multipart().unwrap();
            let mut part = parts.next().await.unwrap().unwrap();
            assert_eq!(part.save_as(&files, &saved.name, 10).await.unwrap().bytes, 1);
            assert_eq!(files.read(&saved.name).await.unwrap(), b"2");
            files.remove(&saved.name).await.unwrap();
            assert!(names(files.folder()).is_empty());
        });
    }

    #[test]
    fn what_is_not_whole_leaves_nothing() {
        run(|files| async move {
            let mut request = upload(&"x".repeat(700_000));
            let mut parts = request.multipart().unwrap();
            let mut part = parts.next().await.unwrap().unwrap();
            assert!(matches!(part.save(&files, 699_999).await, Err(SaveError::TooLong(699_999))));
            let mut request =
                Request::post("/", "--XX\r\nContent-Disposition: form-data; name=f\r\n\r\nhalf");
            request.headers_mut().insert(CONTENT_TYPE, "multipart/form-data; boundary=XX".parse().unwrap());
            let mut parts = request.multipart().unwrap();
            let mut part = parts.next().await.unwrap().unwrap();
            assert!(matches!(part.save(&files, 10_000).await, Err(SaveError::Form(_))));
            let mut file = files.create().await.unwrap();
            file.write(b"half").await.unwrap();
            assert_eq!(names(files.folder()).len(), 1);
            drop(file);
            let file = files.create().await.unwrap();
            assert!(file.finish("../x").await.is_err());
            assert_eq!(names(files.folder()), Vec::<String>::new());
        });
    }

    #[test]
    fn no_name_leads_elsewhere() {
        run(|files| async move {
            for name in ["a", "a.b", "A-b_c.txt", &"a".repeat(200)] {
                assert_eq!(files.path(name).unwrap().parent(), Some(files.folder()), "{name}");
            }
            for name in ["", ".", "..", ".part-1", "a/b", "../a", "/a", "a\0", "ä", &"a".repeat(201)] {
                assert_eq!(files.path(name), None, "{name}");
                assert_eq!(files.read(name).await.unwrap_err().kind(), io::ErrorKind::NotFound);
            }
        });
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed() {
        run(|files| async move {
            let old = files.folder().join(".part-old");
            let file = fs::File::create(&old).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            fs::write(files.folder().join(".part-new"), "").unwrap();
            fs::write(files.folder().join("kept"), "").unwrap();
            Files::in_folder(files.folder()).unwrap();
            let mut left = names(files.folder());
            left.sort();
            assert_eq!(left, [".part-new", "kept"]);
        });
    }
}
