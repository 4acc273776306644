//! The head of a CGI answer: what a site worker reads of a script.

pub fn fuzz(data: &[u8]) {
    fastcgi::reply::fuzz(data);
}
