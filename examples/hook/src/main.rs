//! A specialised server: the worker of a site that calculates, `GET /2+3*4.calc`.
//!
//! Runs in: the worker of the site that names it, under its uid, inside its jail. Sees: requests. Never: opens anything.
//!
//! In the configuration: `worker = ["bin/hook"]`, and `[[site.route]]` with `suffix = ".calc"` and `hook = "calc"`.

use std::process::ExitCode;

use bulkhead_server::{Answer, Method, Request, Server, StatusCode};

/// The sum that the path asks for, or the one in the body; a file of that name, where there is no digit in it.
async fn calc(request: Request) -> Answer {
    let path = request.uri().path().trim_start_matches('/').trim_end_matches(".calc").to_owned();
    match *request.method() {
        Method::POST => match request.body().await {
            Ok(body) => answer(&String::from_utf8_lossy(&body)),
            Err(_) => Answer::status(StatusCode::BAD_REQUEST),
        },
        _ if path.bytes().any(|byte| byte.is_ascii_digit()) => answer(&path),
        _ => Answer::Pass,
    }
}

fn answer(words: &str) -> Answer {
    // What is no sum is not there.
    sum(words).map_or(Answer::None, |number| Answer::text(format!("{words} = {number}\n")))
}

/// Adds up products: `2+3*4`.
fn sum(words: &str) -> Option<i64> {
    let product =
        |words: &str| words.split('*').try_fold(1_i64, |all, one| all.checked_mul(one.trim().parse().ok()?));
    words.split('+').try_fold(0_i64, |all, one| all.checked_add(product(one)?))
}

fn main() -> ExitCode {
    Server::new().hook("calc", calc).run()
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn it_calculates() {
        assert_eq!(sum("2+3*4"), Some(14));
        assert_eq!(sum("9223372036854775807+1"), None);
        assert_eq!(sum("two"), None);
    }
}
